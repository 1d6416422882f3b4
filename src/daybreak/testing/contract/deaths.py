"""Crashes: a job fails because of crashes only after a crash while it ran alone, and an attempt is charged for a crash
only if the job had started. The holder of a lease sets these two bits."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from daybreak.core.model import Done, HandedBack, Lease, Lost, Outcome, Reason, Settlement, State, Suspended
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Beat, Claim, Exchange, Extended, Store
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
    amend,
    assert_sound,
    beat,
    claim_jobs,
    claim_one,
    get_job,
    reap,
    settle,
)

SAID: Final = (True, False, None)
BEGUN: Final = (True, True, False, False, False)
COMES_BACK: Final[tuple[Outcome, ...]] = (Lost(), Lost(alone=True), HandedBack(), Suspended(), OOPS)


class Deaths:
    async def test_what_a_holder_says_of_its_lease_comes_back_when_it_is_taken_over(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        leases = await claim_jobs(store, 3)
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
        lease = await claim_one(store)
        await beat(store, lease, alone=True)
        await beat(store, lease, now=NOON + SECOND)
        await beat(store, lease, progress=0.5, message="half", checkpoint=b"50", now=NOON + 2 * SECOND)
        [taken] = await reap(store, now=NOON + HOUR)
        assert taken.alone

    async def test_a_holder_may_take_it_back(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, alone=True)
        await beat(store, lease, alone=False)
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_a_lease_that_ran_out_and_was_revived_keeps_it(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, alone=True)
        assert (await beat(store, lease, now=NOON + HOUR)).held
        assert [taken.alone for taken in await reap(store, now=NOON + 2 * HOUR)] == [True]

    async def test_what_people_ask_of_a_running_job_leaves_it(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, alone=True)
        await amend(store, "suspend", job)
        await amend(store, "resume", job)
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [True]

    async def test_reaper_after_reaper_passes_it_on(self, store: Store) -> None:
        await accept(store)
        await beat(store, await claim_one(store), alone=True)
        for step in (1, 2, 3):  # each dies before it can settle
            [taken] = await reap(store, lease_for=LEASE, now=NOON + step * LEASE)
            assert taken.alone

    async def test_the_next_claim_starts_without_it(self, store: Store) -> None:
        for outcome in COMES_BACK:
            job = await accept(store)
            lease = await claim_one(store)
            await beat(store, lease, alone=True)
            await settle(store, lease, outcome)
            await amend(store, "resume", job)
            again = await claim_one(store, now=NOON + MINUTE)
            [taken] = await reap(store, now=NOON + MINUTE + LEASE)
            assert (taken.job, again.alone, taken.alone) == (job, False, False), outcome
            await settle(store, taken, now=NOON + MINUTE + LEASE)

    async def test_a_retry_by_a_person_starts_without_it(self, store: Store) -> None:
        job = await accept(store, retry=ONCE)
        lease = await claim_one(store)
        await beat(store, lease, alone=True)
        await settle(store, lease, Lost(alone=True))
        await amend(store, "retry", job)
        assert not (await claim_one(store)).alone
        assert [taken.alone for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_a_lost_lease_cannot_say_so(self, store: Store) -> None:
        await accept(store)
        slow = await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        assert await beat(store, slow, alone=True, now=NOON + LEASE) == Extended(held=False)
        await settle(store, taken, Lost(), now=NOON + LEASE)
        second = await claim_one(store, worker="w2", now=NOON + LEASE)
        assert not (await beat(store, slow, alone=True, now=NOON + LEASE)).held
        [taken] = await reap(store, now=NOON + HOUR)
        assert (taken.fence, taken.alone) == (second.fence + 1, False)

    async def test_a_lost_lease_cannot_take_it_back(self, store: Store) -> None:
        await accept(store)
        slow = await claim_one(store)
        await beat(store, slow, alone=True)
        await reap(store, lease_for=LEASE, now=NOON + LEASE)
        assert not (await beat(store, slow, alone=False, now=NOON + LEASE)).held
        assert [taken.alone for taken in await reap(store, now=NOON + 2 * LEASE)] == [True]

    async def test_a_job_ends_through_deaths_only_after_it_died_alone(self, store: Store) -> None:
        job = await accept(store, retry=ONCE, deaths=2)
        now = NOON
        for died in range(1, 5):  # in company, so often that both its attempts and its deaths are used up
            await claim_one(store, now=now)
            now += LEASE
            await _settle_taken(store, now)
            found = await get_job(store, job)
            assert (found.state, found.attempt, found.lost) == (State.QUEUED, died, died)
        lease = await claim_one(store, now=now)
        assert (lease.lost, lease.attempt) == (4, 5)
        await beat(store, lease, alone=True, now=now)
        await _settle_taken(store, now + LEASE)
        found = await get_job(store, job)
        assert (found.state, found.reason, found.attempt, found.lost) == (State.FAILED, Reason.LOST, 5, 5)
        assert found.failure is not None
        assert found.failure.message.endswith("the job crashed 5 times, the last time while it ran alone")
        await assert_sound(store, [job])

    # -- begun ---------------------------------------------------------------------------------------------------------

    async def test_what_is_claimed_ahead_has_not_begun(self, store: Store) -> None:
        jobs = await accept_all(store, 5)
        leases = await claim_jobs(store, 5, begins=2)
        assert [(lease.job, lease.begun) for lease in leases] == list(zip(jobs, BEGUN, strict=True))
        taken = await reap(store, now=NOON + LEASE)
        assert {lease.job: lease.begun for lease in taken} == dict(zip(jobs, BEGUN, strict=True))

    async def test_a_claim_that_does_not_say_how_many_begin_begins_all(self, store: Store) -> None:
        for begins in (None, 3, 9):
            await accept_all(store, 3)
            assert [lease.begun for lease in await claim_jobs(store, 3, begins=begins)] == [True] * 3
            taken = await reap(store, now=NOON + LEASE)
            assert [lease.begun for lease in taken] == [True] * 3
            await store.exchange(Exchange(settle=[_done(lease) for lease in taken]), now=NOON + LEASE)

    async def test_a_claim_of_one_job_may_be_ahead(self, store: Store) -> None:
        await accept(store)
        assert not (await claim_one(store, begins=0)).begun
        assert [taken.begun for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_work_claimed_ahead_beside_settlements_has_not_begun(self, store: Store) -> None:
        await accept_all(store, 4)
        first = await claim_jobs(store, 2)
        done = [_done(lease) for lease in first]
        claim = Claim(worker="w1", limit=2, lease_for=LEASE, begins=1)
        answer = await store.exchange(Exchange(settle=done, claim=claim), now=NOON)
        assert [lease.begun for lease in answer.leases] == [True, False]
        assert [taken.begun for taken in await reap(store, now=NOON + LEASE)] == [True, False]

    async def test_jobs_of_several_queues_with_a_past_are_claimed_ahead_in_the_order_of_the_answer(
        self, store: Store
    ) -> None:
        for queue in ("a", "b", "a", "b"):
            await accept(store, queue=queue)
        for lease in await claim_jobs(store, 4, queues=("a", "b")):
            await beat(store, lease, checkpoint=b"half")
            await settle(store, lease, HandedBack())
        leases = await claim_jobs(store, 4, queues=("a", "b"), begins=1)
        assert [lease.begun for lease in leases] == [True, False, False, False]
        begun = {lease.job: lease.begun for lease in leases}
        assert {lease.job: lease.begun for lease in await reap(store, now=NOON + LEASE)} == begun

    async def test_a_repeated_claim_answers_what_has_begun(self, store: Store) -> None:
        await accept_all(store, 3)
        leases = await claim_jobs(store, 2, call="c1", begins=1)
        again = await claim_jobs(store, 3, call="c1", begins=1, repeats=True)
        assert [lease.begun for lease in again] == [True, False, False]
        assert [lease.fence for lease in again[:2]] == [lease.fence for lease in leases]
        await beat(store, again[1], begun=True)
        again = await claim_jobs(store, 3, call="c1", begins=0, repeats=True)
        assert [lease.begun for lease in again] == [True, True, False]

    async def test_what_was_claimed_ahead_begins_when_its_holder_says_so(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        leases = await claim_jobs(store, 3, begins=0)
        answers = await store.extend(
            [Beat(seq=each.seq, fence=each.fence, begun=said) for each, said in zip(leases, SAID, strict=True)],
            now=NOON,
        )
        assert answers == [Extended(held=True)] * 3
        taken = await reap(store, now=NOON + LEASE)
        assert {lease.job: lease.begun for lease in taken} == dict(zip(jobs, (True, False, False), strict=True))

    async def test_other_heartbeats_leave_begun_as_it_is(self, store: Store) -> None:
        await accept_all(store, 2)
        for lease in await claim_jobs(store, 2, begins=1):
            await beat(store, lease, alone=True)
            await beat(store, lease, progress=0.5, message="half", checkpoint=b"50", now=NOON + SECOND)
        taken = await reap(store, now=NOON + HOUR)
        assert {(lease.begun, lease.alone) for lease in taken} == {(True, True), (False, True)}

    async def test_a_holder_may_say_that_it_has_not_begun_after_all(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, begun=False)
        assert [taken.begun for taken in await reap(store, now=NOON + LEASE)] == [False]

    async def test_begun_and_alone_are_said_in_one_heartbeat(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store, begins=0)
        await beat(store, lease, begun=True, alone=True)
        assert [(taken.begun, taken.alone) for taken in await reap(store, now=NOON + LEASE)] == [(True, True)]

    async def test_reaper_after_reaper_passes_on_what_had_not_begun(self, store: Store) -> None:
        await accept(store)
        await claim_one(store, begins=0)
        for step in (1, 2, 3):  # each dies before it can settle
            [taken] = await reap(store, lease_for=LEASE, now=NOON + step * LEASE)
            assert not taken.begun

    async def test_a_lost_lease_cannot_say_that_it_begins(self, store: Store) -> None:
        await accept(store)
        slow = await claim_one(store, begins=0)
        await reap(store, lease_for=LEASE, now=NOON + LEASE)
        assert not (await beat(store, slow, begun=True, now=NOON + LEASE)).held
        assert [taken.begun for taken in await reap(store, now=NOON + 2 * LEASE)] == [False]

    async def test_the_next_claim_begins_whatever_became_of_the_last(self, store: Store) -> None:
        for outcome in COMES_BACK:
            job = await accept(store)
            await settle(store, await claim_one(store, begins=0), outcome)
            await amend(store, "resume", job)
            assert (await claim_one(store, now=NOON + MINUTE)).begun, outcome
            [taken] = await reap(store, now=NOON + MINUTE + LEASE)
            assert (taken.job, taken.begun) == (job, True), outcome
            await settle(store, taken, now=NOON + MINUTE + LEASE)

    async def test_a_death_is_charged_to_what_had_begun_and_to_nothing_else(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        leases = await claim_jobs(store, 3, begins=1)
        await beat(store, leases[1], begun=True)
        await _settle_taken(store, NOON + LEASE)
        found = [await get_job(store, job) for job in jobs]
        assert [(each.state, each.attempt, each.lost) for each in found] == [
            (State.QUEUED, 1, 1),
            (State.QUEUED, 1, 1),
            (State.QUEUED, 0, 0),
        ]
        assert [lease.job for lease in await claim_jobs(store, 3, now=NOON + LEASE)] == jobs
        await assert_sound(store, jobs)

    async def test_a_job_that_never_began_outlives_any_number_of_deaths(self, store: Store) -> None:
        job = await accept(store, retry=ONCE, deaths=1)
        now = NOON
        for _ in range(5):
            lease = await claim_one(store, begins=0, now=now)
            await beat(store, lease, alone=True, now=now)
            now += LEASE
            await _settle_taken(store, now)
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.lost) == (State.QUEUED, 0, 0)
        await settle(store, await claim_one(store, now=now), now=now)
        assert (await get_job(store, job)).attempt == 1
        await assert_sound(store, [job])

    async def test_what_is_handed_back_for_later_waits_uncharged(self, store: Store) -> None:
        job = await accept(store)
        await settle(store, await claim_one(store), HandedBack(delay=MINUTE))
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.lost) == (State.SCHEDULED, 0, 0)
        assert await claim_jobs(store, 1, now=NOON + MINUTE - SECOND) == []
        assert (await claim_one(store, now=NOON + MINUTE)).attempt == 1
        await assert_sound(store, [job])


async def _settle_taken(store: Store, now: datetime) -> None:
    """What a reaper does: take over, and pass on what the lease says."""
    taken: list[Lease] = await reap(store, now=now)
    assert taken
    for lease in taken:
        assert await settle(store, lease, Lost(alone=lease.alone), now=now)


def _done(lease: Lease) -> Settlement:
    return settlement_of(lease, Done(), chance=0.5, by=lease.worker)
