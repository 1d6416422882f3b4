"""Promise 4: `max_running` and capacity are never exceeded, and never leak."""

from __future__ import annotations

import asyncio

from daybreak.core.model import Cancelled, Done, HandedBack, Lost, Outcome, Put, State, Suspended, TimedOut
from daybreak.core.queue_marks import FULL_QUEUE
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import LATEST, Claim, Store
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    exchange,
    find_all,
    follow,
    needs,
    provide,
    reap,
    run_one,
    settle,
    spec,
    state_of,
    verdicts,
)

EVERY_OUTCOME: tuple[Outcome, ...] = (
    Done(), OOPS, FATAL, TimedOut(MINUTE), Lost(), Cancelled(), Suspended(), HandedBack(),
)  # fmt: skip


class MaxRunning:
    async def test_max_running_is_never_exceeded_and_never_leaks(self, store: Store) -> None:
        await configure(store, max_running=2)
        await accept_all(store, 30)
        now = NOON
        for outcome in EVERY_OUTCOME:
            leases = await claim_jobs(store, 9, now=now)
            assert len(leases) == 2, outcome
            assert await claim_jobs(store, 9, now=now, worker="w2") == []
            for lease in leases:
                assert await settle(store, lease, outcome, now=now)
            now += MINUTE

    async def test_max_running_counts_a_lease_that_ran_out_until_it_is_settled(self, store: Store) -> None:
        await configure(store, max_running=1)
        first, second = await accept_all(store, 2)
        await claim_one(store)
        assert await claim_jobs(store, now=NOON + HOUR) == []
        [taken] = await reap(store, now=NOON + HOUR)
        assert await claim_jobs(store, now=NOON + HOUR) == []
        await settle(store, taken, Lost(), now=NOON + HOUR)
        assert await claim_ids(store, 9, now=NOON + HOUR) == [first]
        assert await state_of(store, second) is State.QUEUED

    async def test_max_running_holds_under_concurrent_claims(self, store: Store) -> None:
        await configure(store, max_running=3)
        await accept_all(store, 20)
        claims = await asyncio.gather(*(claim_jobs(store, 2, worker=f"w{n}") for n in range(8)))
        assert sum(map(len, claims)) == 3

    async def test_max_running_of_one_queue_is_no_limit_for_another(self, store: Store) -> None:
        await configure(store, "small", max_running=1)
        small = await accept_all(store, 3, queue="small", priority=0)
        big = await accept_all(store, 3, queue="big", priority=9)
        assert await claim_ids(store, 9, queues=("small", "big")) == [small[0], *big]

    async def test_max_running_counts_all_tasks_of_the_queue(self, store: Store) -> None:
        await configure(store, max_running=2)
        for task in ("a", "b", "c"):
            await accept(store, task)
        assert len(await claim_jobs(store, 9, tasks=frozenset({("a", 1)}))) == 1
        assert len(await claim_jobs(store, 9, tasks=frozenset({("b", 1), ("c", 1)}))) == 1

    async def test_a_settlement_makes_room_for_the_claim_it_travels_with(self, store: Store) -> None:
        await configure(store, max_running=1)
        first, second = await accept_all(store, 2)
        lease = await claim_one(store)
        assert lease.job == first
        done = settlement_of(lease, Done(), chance=0, by="w1")
        answer = await exchange(store, settle=[done], claim=Claim(worker="w1", limit=5))
        assert [lease.job for lease in answer.leases] == [second]

    async def test_a_lowered_limit_stops_claims_until_enough_have_ended(self, store: Store) -> None:
        await accept_all(store, 9)
        leases = await claim_jobs(store, 3)
        await configure(store, max_running=2)
        for left in (3, 2):
            assert await claim_jobs(store, 9) == [], left
            await settle(store, leases.pop())
        assert len(await claim_jobs(store, 9)) == 1

    async def test_max_running_zero_runs_nothing(self, store: Store) -> None:
        await configure(store, max_running=0)
        await accept(store)
        assert await claim_jobs(store, 9) == []

    async def test_a_paused_queue_gives_nothing_and_what_runs_goes_on(self, store: Store) -> None:
        first, second = await accept_all(store, 2)
        lease = await claim_one(store)
        await configure(store, paused=True)
        assert await claim_jobs(store, 9) == []
        assert await settle(store, lease)
        assert await state_of(store, first) is State.COMPLETED
        await accept(store)
        await configure(store, paused=False)
        assert (await claim_ids(store, 9))[0] == second


class Capacity:
    async def test_capacity_refuses_what_is_too_much_and_only_that(self, store: Store) -> None:
        await configure(store, capacity=2)
        assert await verdicts(store, *(spec() for _ in range(4))) == ["new", "new", "full", "full"]
        assert await verdicts(store, spec(), spec(queue="other")) == ["full", "new"]

    async def test_capacity_counts_every_unfinished_job_and_no_other(self, store: Store) -> None:
        await configure(store, capacity=4)
        await accept_all(store, 2)
        await accept(store, delay=MINUTE)
        suspended = await accept(store)
        await amend(store, "suspend", suspended)
        await claim_one(store)
        assert await verdicts(store, spec()) == ["full"]

    async def test_capacity_is_free_again_after_every_kind_of_end(self, store: Store) -> None:
        await configure(store, capacity=1)
        for outcome in (Done(), FATAL, Cancelled()):
            await accept(store)
            await run_one(store, outcome)
        cancelled = await accept(store)
        await amend(store, "cancel", cancelled)
        await accept(store, expires_in=MINUTE)
        await store.advance(now=NOON + MINUTE)
        await accept(store, now=NOON + HOUR)
        assert await verdicts(store, spec()) == ["full"]

    async def test_capacity_is_not_freed_by_what_does_not_end_a_job(self, store: Store) -> None:
        await configure(store, capacity=1)
        job = await accept(store)
        for outcome in (OOPS, HandedBack(), Suspended()):
            await run_one(store, outcome, now=NOON + HOUR)
            await amend(store, "resume", job, now=NOON + HOUR)
            await store.advance(now=NOON + DAY)
            assert await verdicts(store, spec(), now=NOON + HOUR) == ["full"]
        await reap(store, now=NOON + DAY + LEASE)
        assert await find_all(store) == [job]

    async def test_removing_a_finished_job_frees_no_capacity_twice(self, store: Store) -> None:
        await configure(store, capacity=2)
        await accept_all(store, 2)
        done = await run_one(store)
        await amend(store, "remove", done)
        assert await verdicts(store, spec(), spec()) == ["new", "full"]

    async def test_a_retried_job_counts_again(self, store: Store) -> None:
        await configure(store, capacity=1)
        await accept(store)
        done = await run_one(store)
        await amend(store, "retry", done)
        assert await verdicts(store, spec()) == ["full"]


class FullQueues:
    """That a queue is full is told when a job is refused or shed for it, once until it is known to have room again."""

    async def told(self, store: Store, before: str) -> list[tuple[str, str | None, str]]:
        found, _ = await follow(store, before)
        return [(event.job, event.queue, event.by) for event in found if event.kind == "queue_full"]

    async def test_a_queue_that_refuses_for_its_capacity_tells_so_once(self, store: Store) -> None:
        await configure(store, "q", capacity=1)
        before = (await store.events(LATEST)).cursor
        await accept(store, queue="q")
        assert await self.told(store, before) == []
        full = [spec(queue="q", by="ann"), spec(queue="q", by="bob")]
        assert await verdicts(store, *full) == ["full", "full"]
        assert await verdicts(store, spec(queue="q", by="cid")) == ["full"]
        assert await self.told(store, before) == [("", "q", "ann")]
        [mark] = await store.records(FULL_QUEUE)
        await store.put([Put(kind=FULL_QUEUE, name="q", value=None, expect=mark.revision)])
        assert await verdicts(store, spec(queue="q", by="dan")) == ["full"]
        assert await self.told(store, before) == [("", "q", "ann"), ("", "q", "dan")]
        await assert_sound(store)

    async def test_a_queue_that_sheds_tells_so_before_it_does(self, store: Store) -> None:
        await configure(store, "q", capacity=1, when_full="shed")
        await accept(store, queue="q", priority=9)
        before = (await store.events(LATEST)).cursor
        await accept(store, queue="q", priority=5, by="ann")
        await accept(store, queue="q", priority=1, by="bob")
        found, _ = await follow(store, before)
        assert [event.kind for event in found] == ["queue_full", "shed", "submitted", "shed", "submitted"]
        assert (found[0].queue, found[0].note, found[0].by, found[0].n) == ("q", "q", "ann", 0)

    async def test_what_is_accepted_whatever_the_capacity_tells_nothing(self, store: Store) -> None:
        await configure(store, "q", capacity=0)
        before = (await store.events(LATEST)).cursor
        await exchange(store, put=[Put(kind="note", name="n", value=b"1", inserts=(spec(queue="q"),))])
        await accept(store, queue="without")
        assert await self.told(store, before) == []
        assert await store.records(FULL_QUEUE) == []

    async def test_a_crowded_resource_is_no_full_queue(self, store: Store) -> None:
        await provide(store, "door", slots=0, max_waiting=1)
        before = (await store.events(LATEST)).cursor
        await accept(store, resources=needs("door"))
        assert await claim_jobs(store) == []
        assert await verdicts(store, spec(resources=needs("door"))) == ["full"]
        assert await self.told(store, before) == []
