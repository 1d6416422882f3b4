"""Jobs that need several slots or several resources: all or none, and no job is passed over forever."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.model import State
from daybreak.store.protocol import Claim, Store
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    exchange,
    get_job,
    needs,
    provide,
    settle,
    state_of,
    used,
)

PLECS = needs("plecs")


class ResourceSets:
    async def test_several_slots_of_one_are_all_or_none(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        two = await accept(store, resources=needs(plecs=2))
        also = await accept(store, resources=needs(plecs=2))
        one = await accept(store, resources=PLECS)
        assert await claim_ids(store, 9) == [two, one]
        assert await used(store, "plecs") == 3
        assert await state_of(store, also) is State.BLOCKED

    async def test_several_resources_are_all_or_none(self, store: Store) -> None:
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        only_b = await accept(store, resources=needs("b"))
        lease = await claim_one(store)
        both = await accept(store, resources=needs("a", "b"))
        only_a = await accept(store, resources=needs("a"))
        first = await claim_one(store)
        assert (lease.job, first.job) == (only_b, only_a)
        assert (await get_job(store, both)).blocked_on == "b"
        assert await used(store, "a") == 1
        await settle(store, lease)
        assert await claim_jobs(store) == []
        assert (await get_job(store, both)).blocked_on == "a"
        await settle(store, first)
        assert await claim_ids(store) == [both]
        assert (await used(store, "a"), await used(store, "b")) == (1, 1)
        await assert_sound(store)

    async def test_what_one_cannot_use_goes_to_the_next(self, store: Store) -> None:
        """A is freed, the first in line lacks b: a must not lie idle."""
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        await accept(store, resources=needs("b"))
        await claim_one(store)
        await accept(store, resources=needs("a"))
        holder = await claim_one(store)
        both = await accept(store, resources=needs("a", "b"), priority=0)
        only_a = await accept(store, resources=needs("a"))
        assert await claim_jobs(store, 9) == []
        await settle(store, holder)
        answer = await exchange(store, claim=Claim(worker="w1", limit=9, lease_for=LEASE))
        assert answer.leases == []
        assert answer.again
        assert await claim_ids(store, 9) == [only_a]
        assert (await get_job(store, both)).blocked_on == "b"

    async def test_a_job_that_needs_two_slots_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        now = NOON
        await accept_all(store, 2, resources=PLECS)
        running = await claim_jobs(store, 2, now=now)
        big = await accept(store, resources=needs(plecs=2), now=now)
        started: list[str] = []
        for _ in range(60):
            await accept(store, resources=PLECS, now=now)
            now += SECOND
            await settle(store, running.pop(0), now=now)
            leases = await claim_jobs(store, 9, now=now)
            started += [lease.job for lease in leases]
            running += leases
            if big in started or not running:
                break
        leases = [] if big in started else await claim_jobs(store, 9, now=now)
        assert big in started + [lease.job for lease in leases]
        assert now - NOON < timedelta(seconds=40)
        await assert_sound(store)

    async def test_a_job_that_needs_two_resources_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        now = NOON
        await accept(store, resources=needs("a"), now=now)
        await accept(store, resources=needs("b"), now=now)
        running = await claim_jobs(store, 2, now=now)
        both = await accept(store, resources=needs("a", "b"), now=now)
        for _ in range(80):
            await accept(store, resources=needs("a"), now=now)
            await accept(store, resources=needs("b"), now=now)
            now += SECOND
            await settle(store, running.pop(0), now=now)
            running += await claim_jobs(store, 9, now=now)
            if any(lease.job == both for lease in running) or not running:
                break
        running += await claim_jobs(store, 9, now=now)
        assert both in [lease.job for lease in running]
        assert now - NOON < MINUTE
        await assert_sound(store)

    async def test_what_is_kept_for_one_is_free_again_when_it_goes(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=PLECS)
        first, second = await claim_jobs(store, 2)
        big = await accept(store, resources=needs(plecs=2))
        small = await accept_all(store, 2, resources=PLECS)
        assert await claim_jobs(store) == []
        late = NOON + MINUTE
        await settle(store, first, now=late)
        assert await claim_jobs(store, 9, now=late) == []
        await amend(store, "cancel", big, now=late)
        assert await claim_ids(store, 9, now=late) == small[:1]
        await settle(store, second, now=late)
        assert await claim_ids(store, 9, now=late) == small[1:]

    async def test_very_many_that_do_not_fit_are_not_looked_at_all_the_time(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        await accept_all(store, 2, resources=PLECS)
        [one, _] = await claim_jobs(store, 2)
        await accept(store, resources=PLECS)
        [third] = await claim_jobs(store)
        await accept_all(store, 120, resources=needs(plecs=3))
        for _ in range(2):
            assert await claim_jobs(store) == []
        await settle(store, third)
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE))
        assert answer.leases == []
        assert answer.next_in is None or answer.next_in >= SECOND
        await settle(store, one)
        await assert_sound(store)

    async def test_more_slots_than_there_are_wait_and_hold_up_nobody(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        huge = await accept(store, resources=needs(plecs=5))
        small = await accept_all(store, 2, resources=PLECS)
        assert await claim_ids(store, 9, now=NOON + HOUR) == small
        assert await state_of(store, huge) is State.BLOCKED
        await provide(store, "plecs", slots=7, now=NOON + HOUR)
        assert await claim_ids(store, 9, now=NOON + HOUR) == [huge]

    async def test_a_job_that_is_tried_again_by_a_person_waits_anew(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=PLECS)
        running = await claim_jobs(store, 2)
        big = await accept(store, resources=needs(plecs=2))
        assert await claim_jobs(store) == []
        assert await amend(store, "cancel", big) == ["done"]
        later = NOON + MINUTE
        assert await amend(store, "retry", big, now=later) == ["done"]
        small = await accept(store, resources=PLECS, now=later)
        assert await claim_jobs(store, now=later) == []
        await settle(store, running[0], now=later)
        assert await claim_ids(store, now=later) == [small], "nothing is kept for who has just come back"
