"""Full queues shed jobs that wait for a resource or a lock, too."""

from __future__ import annotations

from typing import Any

from daybreak.core.model import JobSpec, Reason, State
from daybreak.store.protocol import Store, job_topic
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    NOON,
    SECOND,
    accept,
    accept_all,
    assert_sound,
    claim_ids,
    claim_jobs,
    configure,
    counted,
    get_job,
    kinds_of,
    needs,
    provide,
    settle,
    spec,
    state_of,
    verdicts,
    waiting,
)
from daybreak.testing.contract.holders import give_back, want
from daybreak.testing.contract.retry_budget import fail, spare

PATIENCE = 10 * SECOND
LATE = NOON + 35 * SECOND  # longer than a job is passed over before slots are kept for it
PLECS = needs("plecs")


def lock(who: str, *names: str, **said: Any) -> JobSpec:
    """A request for locks; of `a` if none is named."""
    return spec("lock", queue="lock", resources=needs(*(names or ("a",))), holder=who, hold_for=LEASE, **said)


class SheddingWaiters:
    async def test_a_full_lock_queue_sheds_the_least_urgent_waiter(self, store: Store) -> None:
        await configure(store, "lock", capacity=4, when_full="shed")
        await provide(store, "a", slots=1)
        holder = await want(store, "ann", "a", priority=9)
        low = await want(store, "bob", "a", priority=8)
        newest = await want(store, "cyd", "a", priority=8)
        normal = await want(store, "dan", "a", priority=5)
        urgent = lock("eve", priority=0, by="eve")
        [answer] = await store.insert([urgent], now=NOON)
        assert (answer.verdict, answer.evicted) == ("new", newest)
        job = await get_job(store, newest)
        assert (job.state, job.reason, job.note) == (State.FAILED, Reason.SHED, f"pushed out by {urgent.id}")
        [*_, told] = await store.history(newest)
        assert (told.kind, told.by, told.reason) == ("shed", "eve", Reason.SHED)
        assert (await counted(store))["failed shed"] == (1, 0)
        assert await waiting(store, "a") == 3
        await assert_sound(store)
        for one in (holder, urgent.id, normal, low):
            assert await state_of(store, one) is State.RUNNING
            assert await give_back(store, one)
        await assert_sound(store)

    async def test_the_holder_of_a_lock_is_never_shed(self, store: Store) -> None:
        await configure(store, "lock", capacity=1, when_full="shed")
        await provide(store, "a", slots=1)
        holder = await want(store, "ann", "a", priority=10)
        assert await verdicts(store, lock("bob", priority=0)) == ["full"]
        assert await state_of(store, holder) is State.RUNNING
        await assert_sound(store)

    async def test_a_waiter_that_is_as_urgent_is_not_shed(self, store: Store) -> None:
        await configure(store, "lock", capacity=2, when_full="shed")
        await provide(store, "a", slots=1)
        await want(store, "ann", "a", priority=5)
        waiter = await want(store, "bob", "a", priority=5)
        assert await verdicts(store, lock("cyd", priority=5), lock("dan", priority=9)) == ["full", "full"]
        assert await state_of(store, waiter) is State.BLOCKED
        assert await verdicts(store, lock("eve", priority=4)) == ["new"]
        assert await state_of(store, waiter) is State.FAILED
        await assert_sound(store)

    async def test_a_full_queue_that_refuses_sheds_no_waiter(self, store: Store) -> None:
        await configure(store, "lock", capacity=2)
        await provide(store, "a", slots=1)
        await want(store, "ann", "a")
        waiter = await want(store, "bob", "a", priority=9)
        assert await verdicts(store, lock("cyd", priority=0)) == ["full"]
        assert await state_of(store, waiter) is State.BLOCKED

    async def test_a_waiter_that_is_shed_is_told(self, store: Store) -> None:
        await configure(store, "lock", capacity=2, when_full="shed")
        await provide(store, "a", slots=1)
        await want(store, "ann", "a")
        waiter = await want(store, "bob", "a", priority=9)
        watch = store.watch([job_topic(waiter)])
        await want(store, "cyd", "a", priority=1)
        assert await watch.wait(PATIENCE)
        watch.close()
        assert await kinds_of(store, waiter) == ["submitted", "shed"]

    async def test_queued_and_blocked_jobs_are_shed_in_one_order(self, store: Store) -> None:
        await configure(store, capacity=4, when_full="shed")
        await provide(store, "plecs", slots=0)
        blocked = await accept(store, "a", priority=8, resources=PLECS)
        newer = await accept(store, "b", priority=7, resources=PLECS)
        assert await claim_jobs(store, 9) == []
        queued = await accept(store, "c", priority=8)
        last = await accept(store, "a", priority=9)
        for victim in (last, queued, blocked, newer):
            [answer] = await store.insert([spec("d", priority=1)], now=NOON)
            assert answer.evicted == victim
            assert (await get_job(store, victim)).reason is Reason.SHED
            await assert_sound(store)
        assert await verdicts(store, spec(priority=1)) == ["full"]
        assert await waiting(store, "plecs") == 0

    async def test_jobs_of_one_batch_shed_one_another(self, store: Store) -> None:
        await configure(store, "lock", capacity=2, when_full="shed")
        await provide(store, "a", slots=1)
        await want(store, "ann", "a", priority=9)
        low, high, higher = lock("bob", priority=8), lock("cyd", priority=3), lock("dan", priority=2)
        answers = await store.insert([low, high, higher, lock("eve", priority=7)], now=NOON)
        assert [answer.verdict for answer in answers] == ["new", "new", "new", "full"]
        assert [answer.evicted for answer in answers] == ["", low.id, high.id, ""]
        assert await state_of(store, higher.id) is State.BLOCKED
        await assert_sound(store)

    async def test_a_retry_that_waits_for_the_budget_may_be_shed(self, store: Store) -> None:
        [failed] = await fail(store, 1)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        await configure(store, capacity=1, when_full="shed")
        [answer] = await store.insert([spec(priority=0)], now=NOON)
        assert answer.evicted == failed
        assert await waiting(store, "retries of server") == 0
        await assert_sound(store)

    async def test_what_was_kept_for_a_job_that_is_shed_is_free(self, store: Store) -> None:
        await configure(store, "small", capacity=1, when_full="shed")
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=PLECS)
        first, _ = await claim_jobs(store, 2)
        large = await accept(store, queue="small", priority=4, resources=needs(plecs=2))
        other = await accept(store, priority=9, resources=PLECS)
        both = ("default", "small")
        assert await claim_jobs(store, 9, queues=both) == []
        await settle(store, first, now=LATE)
        assert await claim_jobs(store, 9, queues=both, now=LATE) == []  # the free slot is kept for the large job
        [answer] = await store.insert([spec(queue="small", priority=1)], now=LATE)
        assert answer.evicted == large
        assert await claim_ids(store, 9, now=LATE) == [other]
        await assert_sound(store)


class SheddingAtAResource:
    """`max_waiting` limits the jobs that wait for one resource. In a queue that sheds, a more urgent job pushes one of
    them out."""

    async def test_a_crowded_resource_sheds_one_who_waits_for_it(self, store: Store) -> None:
        await configure(store, "lock", when_full="shed")
        await provide(store, "a", slots=1, max_waiting=2)
        await provide(store, "b", slots=0)
        await want(store, "ann", "a")
        first, last = await want(store, "bob", "a", priority=6), await want(store, "cyd", "a", priority=6)
        elsewhere = await want(store, "dan", "b", priority=10)
        [answer] = await store.insert([lock("eve", priority=1)], now=NOON)
        assert (answer.verdict, answer.evicted) == ("new", last)
        assert await verdicts(store, lock("fay", priority=6), lock("gus", "b", priority=6)) == ["full", "new"]
        assert await state_of(store, first) is State.BLOCKED
        assert await state_of(store, elsewhere) is State.BLOCKED
        assert await waiting(store, "a") == 2
        await assert_sound(store)

    async def test_in_a_full_queue_too_one_leaves_who_waits_for_it(self, store: Store) -> None:
        await configure(store, "lock", capacity=3, when_full="shed")
        await provide(store, "a", slots=1, max_waiting=1)
        await provide(store, "b", slots=0)
        await want(store, "ann", "a")
        waiter = await want(store, "bob", "a", priority=6)
        elsewhere = await want(store, "cyd", "b", priority=10)
        [answer] = await store.insert([lock("dan", priority=1)], now=NOON)
        assert (answer.verdict, answer.evicted) == ("new", waiter)
        assert await state_of(store, elsewhere) is State.BLOCKED
        await assert_sound(store)

    async def test_jobs_of_other_queues_stay_at_a_crowded_resource(self, store: Store) -> None:
        await configure(store, when_full="shed")
        await provide(store, "plecs", slots=0, max_waiting=1)
        other = await accept(store, queue="other", priority=10, resources=PLECS)
        assert await claim_jobs(store, 9, queues=("other",)) == []
        assert await verdicts(store, spec(priority=0, resources=PLECS)) == ["full"]
        assert await state_of(store, other) is State.BLOCKED

    async def test_no_job_makes_room_at_two_crowded_resources(self, store: Store) -> None:
        await configure(store, "lock", when_full="shed")
        for name in ("a", "b"):
            await provide(store, name, slots=0, max_waiting=1)
        waiters = [await want(store, "ann", "a", priority=9), await want(store, "bob", "b", priority=9)]
        assert await verdicts(store, lock("cyd", "a", "b", priority=0)) == ["full"]
        assert [await state_of(store, one) for one in waiters] == [State.BLOCKED] * 2
        await assert_sound(store)

    async def test_who_replaces_a_waiter_takes_its_place(self, store: Store) -> None:
        await configure(store, "lock", when_full="shed")
        await provide(store, "a", slots=0, max_waiting=1)
        waiter = await want(store, "ann", "a", unique="mine", priority=9)
        again = lock("ann", unique="mine", on_conflict="replace", priority=5)
        [answer] = await store.insert([again], now=NOON + HOUR)
        assert (answer.verdict, answer.evicted) == ("new", waiter)
        assert await state_of(store, waiter) is State.CANCELLED
        assert await waiting(store, "a") == 1
        await assert_sound(store)
