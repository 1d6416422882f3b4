"""A job ends through deaths only after it died running alone: the one bit of a lease that its holder sets."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from daybreak.model import HandedBack, Lease, Lost, Outcome, Reason, State, Suspended
from daybreak.store import Beat, Extended, Store
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    ONCE,
    OOPS,
    SECOND,
    accept,
    accept_all,
    act,
    assert_sound,
    beat,
    end,
    look,
    reap,
    take,
    take_one,
)

SAID: Final = (True, False, None)
COMES_BACK: Final[tuple[Outcome, ...]] = (Lost(), Lost(alone=True), HandedBack(), Suspended(), OOPS)


class Deaths:
    async def test_what_a_holder_says_of_its_lease_comes_back_when_it_is_taken_over(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        leases = await take(store, 3)
        assert [lease.alone for lease in leases] == [False] * 3
        answers = await store.extend(
            [Beat(seq=each.seq, fence=each.fence, alone=said) for each, said in zip(leases, SAID, strict=True)],
            now=NOON,
        )
        assert answers == [Extended(held=True)] * 3
        taken = await reap(store, now=NOON + LEASE)
        assert {lease.job: lease.alone for lease in taken} == dict(zip(jobs, (True, False, False), strict=True))

    async def test_a_heartbeat_that_does_not_say_so_leaves_it(self, store: Store) -> None:
        await accept(store)
        lease = await take_one(store)
        await beat(store, lease, alone=True)
        await beat(store, lease, now=NOON + SECOND)
        await beat(store, lease, progress=0.5, message="half", checkpoint=b"50", now=NOON + 2 * SECOND)
        [taken] = await reap(store, now=NOON + HOUR)
        assert taken.alone

    async def test_a_holder_may_take_it_back(self, store: Store) -> None:
        await accept(store)
        lease = await take_one(store)
        await beat(store, lease, alone=True)
        await beat(store, lease, alone=False)
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_a_lease_that_ran_out_and_was_revived_keeps_it(self, store: Store) -> None:
        await accept(store)
        lease = await take_one(store)
        await beat(store, lease, alone=True)
        assert (await beat(store, lease, now=NOON + HOUR)).held
        assert [taken.alone for taken in await reap(store, now=NOON + 2 * HOUR)] == [True]

    async def test_what_people_ask_of_a_running_job_leaves_it(self, store: Store) -> None:
        job = await accept(store)
        lease = await take_one(store)
        await beat(store, lease, alone=True)
        await act(store, "suspend", job)
        await act(store, "resume", job)
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [True]

    async def test_reaper_after_reaper_passes_it_on(self, store: Store) -> None:
        await accept(store)
        await beat(store, await take_one(store), alone=True)
        for step in (1, 2, 3):  # each dies before it can settle
            [taken] = await reap(store, lease_for=LEASE, now=NOON + step * LEASE)
            assert taken.alone

    async def test_the_next_claim_starts_without_it(self, store: Store) -> None:
        for outcome in COMES_BACK:
            job = await accept(store)
            lease = await take_one(store)
            await beat(store, lease, alone=True)
            await end(store, lease, outcome)
            await act(store, "resume", job)
            again = await take_one(store, now=NOON + MINUTE)
            [taken] = await reap(store, now=NOON + MINUTE + LEASE)
            assert (taken.job, again.alone, taken.alone) == (job, False, False), outcome
            await end(store, taken, now=NOON + MINUTE + LEASE)

    async def test_a_retry_by_a_person_starts_without_it(self, store: Store) -> None:
        job = await accept(store, retry=ONCE)
        lease = await take_one(store)
        await beat(store, lease, alone=True)
        await end(store, lease, Lost(alone=True))
        await act(store, "retry", job)
        assert not (await take_one(store)).alone
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_a_lost_lease_cannot_say_so(self, store: Store) -> None:
        await accept(store)
        slow = await take_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        assert await beat(store, slow, alone=True, now=NOON + LEASE) == Extended(held=False)
        await end(store, taken, Lost(), now=NOON + LEASE)
        second = await take_one(store, worker="w2", now=NOON + LEASE)
        assert not (await beat(store, slow, alone=True, now=NOON + LEASE)).held
        [taken] = await reap(store, now=NOON + HOUR)
        assert (taken.fence, taken.alone) == (second.fence + 1, False)

    async def test_a_lost_lease_cannot_take_it_back(self, store: Store) -> None:
        await accept(store)
        slow = await take_one(store)
        await beat(store, slow, alone=True)
        await reap(store, lease_for=LEASE, now=NOON + LEASE)
        assert not (await beat(store, slow, alone=False, now=NOON + LEASE)).held
        assert [taken.alone for taken in await reap(store, now=NOON + 2 * LEASE)] == [True]

    async def test_a_job_ends_through_deaths_only_after_it_died_alone(self, store: Store) -> None:
        job = await accept(store, retry=ONCE, deaths=2)
        now = NOON
        for died in range(1, 5):  # in company, so often that both its attempts and its deaths are used up
            await take_one(store, now=now)
            now += LEASE
            await _settle_taken(store, now)
            found = await look(store, job)
            assert (found.state, found.attempt, found.lost) == (State.QUEUED, died, died)
        lease = await take_one(store, now=now)
        assert (lease.lost, lease.attempt) == (4, 5)
        await beat(store, lease, alone=True, now=now)
        await _settle_taken(store, now + LEASE)
        found = await look(store, job)
        assert (found.state, found.reason, found.attempt, found.lost) == (State.FAILED, Reason.LOST, 5, 5)
        assert found.failure is not None
        assert found.failure.message.endswith("died 5 times, the last time running alone")
        await assert_sound(store, [job])


async def _settle_taken(store: Store, now: datetime) -> None:
    """What a reaper does: take over, and pass on what the lease says."""
    taken: list[Lease] = await reap(store, now=now)
    assert taken
    for lease in taken:
        assert await end(store, lease, Lost(alone=lease.alone), now=now)
