"""Slots are reserved for a job that was passed over for too long, and only for it, so that no slot stays idle."""

from __future__ import annotations

from datetime import datetime, timedelta

from daybreak.core.model import Done, Lease, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Store
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    exchange,
    needs,
    provide,
    settle,
    spec,
    state_of,
    used,
)

TWO = needs(plecs=2)
LATE = NOON + 35 * SECOND  # longer than a job is passed over before slots are kept for it


class ReservedSlots:
    async def test_what_is_freed_after_long_goes_to_the_first_in_rank(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        await accept(store, resources=needs(plecs=3))
        holder = await claim_one(store)
        first, second = await accept_all(store, 2, resources=TWO)
        assert await claim_jobs(store, 9) == []
        await settle(store, holder, now=LATE)
        lease = await claim_one(store, limit=9, now=LATE)
        assert lease.job == first
        await settle(store, lease, now=LATE + SECOND)
        assert await claim_ids(store, 9, now=LATE + SECOND) == [second]
        await assert_sound(store)

    async def test_three_slots_stay_busy_with_jobs_of_two_and_three(self, store: Store) -> None:
        """No two of them fit together, so they take 40 s, if none waits while enough is free for it."""
        count, lasts = 33, timedelta(milliseconds=1212)
        await provide(store, "plecs", slots=3)
        await store.insert([spec(resources=needs(plecs=(2, 3, 2)[n % 3])) for n in range(count)], now=NOON)
        now, left = NOON, count
        running: list[tuple[datetime, Lease]] = []
        while left:
            over = [lease for ends, lease in running if ends <= now]
            running = [(ends, lease) for ends, lease in running if ends > now]
            settlements = [settlement_of(lease, Done(), chance=0.5, by=lease.worker) for lease in over]
            left -= len(over)
            for worker in ("w1", "w2"):
                claim = Claim(worker=worker, limit=2, lease_for=HOUR)
                answer = await exchange(store, settle=settlements, claim=claim, now=now)
                running += [(now + lasts, lease) for lease in answer.leases]
                settlements = []
            if running:
                now = min(ends for ends, _ in running)
            elif left and not answer.again:
                assert answer.next_in is not None
                now += answer.next_in
        assert now - NOON == count * lasts
        assert await used(store, "plecs") == 0

    async def test_slots_are_kept_for_the_first_in_rank_of_all_lanes(self, store: Store) -> None:
        """The first claim knows only the task of the second in rank."""
        await provide(store, "plecs", slots=3)
        await accept_all(store, 3, resources=needs("plecs"))
        running = await claim_jobs(store, 3)
        first = await accept(store, "one", resources=needs(plecs=3))
        second = await accept(store, "other", resources=TWO)
        small = await accept(store, "small", resources=needs("plecs"))
        assert await claim_jobs(store, 9) == []
        await settle(store, running[0], now=LATE)
        assert await claim_jobs(store, 9, tasks=frozenset({("other", 1)}), now=LATE) == []
        assert await claim_jobs(store, 9, now=LATE) == []
        for lease in running[1:]:
            await settle(store, lease, now=LATE)
        lease = await claim_one(store, limit=9, now=LATE)
        assert lease.job == first
        await settle(store, lease, now=LATE)
        assert await claim_ids(store, 9, now=LATE) == [second, small]

    async def test_what_is_kept_holds_up_nobody_who_goes_before(self, store: Store) -> None:
        await provide(store, "plecs", slots=5)
        await accept_all(store, 5, resources=needs("plecs"))
        running = await claim_jobs(store, 5)
        first = await accept(store, "one", resources=needs(plecs=3))
        second = await accept(store, "other", resources=needs(plecs=4))
        assert await claim_jobs(store, 9) == []
        for lease in running[:3]:
            await settle(store, lease, now=LATE)
        assert await claim_jobs(store, 9, tasks=frozenset({("other", 1)}), now=LATE) == []
        assert await claim_ids(store, 9, tasks=frozenset({("one", 1)}), now=LATE) == [first]
        assert await state_of(store, second) is State.BLOCKED

    async def test_a_more_urgent_job_takes_over_what_is_kept(self, store: Store) -> None:
        """Else those between the two could pass over both forever."""
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=needs("plecs"))
        running = await claim_jobs(store, 2)
        await accept(store, resources=TWO, priority=7)
        assert await claim_jobs(store) == []
        now = LATE
        await settle(store, running.pop(), now=now)
        assert await claim_jobs(store, 9, now=now) == []
        urgent = await accept(store, resources=TWO, priority=1, now=now)
        started: list[str] = []
        for _ in range(20):
            await accept(store, resources=needs("plecs"), priority=4, now=now)
            running += (leases := await claim_jobs(store, 9, now=now))
            started += [lease.job for lease in leases]
            if urgent in started:
                break
            now += 3 * SECOND
            if running:
                await settle(store, running.pop(0), now=now)
        assert urgent in started
        assert now - LATE < timedelta(seconds=40)
        await assert_sound(store)

    async def test_what_was_kept_of_others_is_free_when_one_goes_before(self, store: Store) -> None:
        """Slots of two resources are kept for one job; when a better-ranked one takes over those of the first, those of
        the second are for anyone."""
        await provide(store, "a", slots=2)
        await provide(store, "b", slots=2)
        await accept_all(store, 1, resources=needs("a", "b"))
        await accept_all(store, 1, resources=needs("a"))
        both, only_a = await claim_jobs(store, 2)
        first = await accept(store, "one", resources=needs(a=2))
        second = await accept(store, "other", resources=needs(a=2, b=2))
        assert await claim_jobs(store, 9) == []
        await settle(store, only_a, now=LATE)
        assert await claim_jobs(store, 9, tasks=frozenset({("other", 1)}), now=LATE) == []
        small = await accept(store, "small", resources=needs("b"), now=LATE)
        assert await claim_jobs(store, 9, tasks=frozenset({("small", 1)}), now=LATE) == []
        assert await claim_jobs(store, 9, tasks=frozenset({("one", 1)}), now=LATE) == []
        assert await claim_ids(store, 9, tasks=frozenset({("small", 1)}), now=LATE) == [small]
        await settle(store, both, now=LATE)
        assert await claim_ids(store, 9, now=LATE) == [first]
        assert await state_of(store, second) is State.BLOCKED

    async def test_nothing_is_kept_for_a_paused_queue(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, queue="other", resources=needs("plecs"))
        running = await claim_jobs(store, 2, queues=("other",))
        await accept_all(store, 3, queue="held", resources=TWO, priority=0)
        small = await accept_all(store, 3, queue="other", resources=needs("plecs"))
        both = ("held", "other")
        assert await claim_jobs(store, 9, queues=both) == []
        await configure(store, "held", paused=True)
        started: list[str] = []
        for lease in running:
            await settle(store, lease, now=LATE)
            started += await claim_ids(store, 9, queues=both, now=LATE)
        assert started == small[:2]

    async def test_nothing_is_kept_for_a_task_that_nobody_knows(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        mine = frozenset({("mine", 1)})
        for _ in range(2):
            await accept(store, "mine", resources=needs("plecs"))
        running = await claim_jobs(store, 2)
        for _ in range(3):
            await accept(store, "theirs", resources=TWO, priority=0)
        small = [await accept(store, "mine", resources=needs("plecs")) for _ in range(2)]
        assert await claim_jobs(store, 9) == []
        started: list[str] = []
        for lease in running:
            await settle(store, lease, now=LATE)
            started += await claim_ids(store, 9, tasks=mine, now=LATE)
        assert started == small

    async def test_what_is_kept_is_given_up_when_nobody_may_claim_the_job_any_more(self, store: Store) -> None:
        """Slots are kept for it while another job still runs; then its queue is paused."""
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, queue="other", resources=needs("plecs"))
        short, _ = await claim_jobs(store, 2, queues=("other",))
        big = await accept(store, queue="held", resources=TWO, priority=0)
        small = await accept(store, queue="other", resources=needs("plecs"))
        both = ("held", "other")
        assert await claim_jobs(store, 9, queues=both) == []
        await settle(store, short, now=LATE)
        assert await claim_jobs(store, 9, queues=both, now=LATE) == [], "kept for the big one"
        for seconds in range(0, 60, 5):
            assert await claim_jobs(store, 9, queues=both, now=LATE + seconds * SECOND) == [], (
                "and as long as it may start"
            )
        await configure(store, "held", paused=True)
        now, started = LATE + MINUTE, list[str]()
        while not started:
            now += 5 * SECOND
            started = await claim_ids(store, 9, queues=both, now=now, lease_for=LEASE)
            assert now - LATE < 2 * MINUTE
        assert started == [small]
        assert await state_of(store, big) is State.QUEUED
