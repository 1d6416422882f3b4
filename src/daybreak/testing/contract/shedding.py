"""Full queues: which jobs are shed, and whose wait is shortened."""

from __future__ import annotations

from daybreak.core.model import Reason, State
from daybreak.store.protocol import Store, job_topic
from daybreak.testing.contract.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    configure,
    counted,
    get_job,
    kinds_of,
    needs,
    provide,
    spec,
    state_of,
    verdicts,
)

PATIENCE = 10 * SECOND


class Shedding:
    async def test_a_full_queue_sheds_the_last_in_line_for_a_more_urgent_job(self, store: Store) -> None:
        await configure(store, capacity=3, when_full="shed")
        first, second, third = await accept_all(store, 3, priority=7)
        urgent = spec(priority=2, by="ann")
        [answer] = await store.insert([urgent], now=NOON)
        assert (answer.verdict, answer.evicted) == ("new", third)
        job = await get_job(store, third)
        assert (job.state, job.reason, job.note) == (State.FAILED, Reason.SHED, f"pushed out by {urgent.id}")
        assert job.finished_at == NOON
        [*_, told] = await store.history(third)
        assert (told.kind, told.by, told.reason) == ("shed", "ann", Reason.SHED)
        assert await claim_ids(store, 9) == [urgent.id, first, second]
        assert (await counted(store))["failed shed"] == (1, 0)
        await assert_sound(store)

    async def test_only_less_urgent_jobs_are_shed(self, store: Store) -> None:
        await configure(store, capacity=2, when_full="shed")
        jobs = await accept_all(store, 2, priority=5)
        assert await verdicts(store, spec(priority=5), spec(priority=9)) == ["full", "full"]
        assert [await state_of(store, job) for job in jobs] == [State.QUEUED] * 2
        assert await verdicts(store, spec(priority=4), spec(priority=4), spec(priority=4)) == ["new", "new", "full"]
        assert [await state_of(store, job) for job in jobs] == [State.FAILED] * 2
        await assert_sound(store)

    async def test_running_suspended_and_scheduled_jobs_are_never_shed(self, store: Store) -> None:
        await configure(store, capacity=4, when_full="shed")
        await accept(store, priority=9)
        assert len(await claim_jobs(store)) == 1
        held = await accept(store, priority=9)
        await amend(store, "suspend", held)
        later = await accept(store, priority=9, delay=HOUR)
        queued = await accept(store, priority=8)
        elsewhere = await accept(store, queue="other", priority=10)
        assert await verdicts(store, spec(priority=0), spec(priority=0)) == ["new", "full"]
        assert await state_of(store, queued) is State.FAILED
        assert await state_of(store, held) is State.SUSPENDED
        assert await state_of(store, later) is State.SCHEDULED
        assert await state_of(store, elsewhere) is State.QUEUED

    async def test_of_several_tasks_the_last_in_line_is_shed(self, store: Store) -> None:
        await configure(store, capacity=3, when_full="shed")
        await accept(store, "a", priority=6)
        last = await accept(store, "b", priority=8)
        await accept(store, "c", priority=7)
        [answer] = await store.insert([spec("d", priority=5)], now=NOON)
        assert answer.evicted == last

    async def test_a_queue_that_refuses_sheds_nothing(self, store: Store) -> None:
        await configure(store, capacity=1)
        job = await accept(store, priority=9)
        assert await verdicts(store, spec(priority=0)) == ["full"]
        assert await state_of(store, job) is State.QUEUED

    async def test_who_waits_for_a_job_that_is_shed_is_told(self, store: Store) -> None:
        await configure(store, capacity=1, when_full="shed")
        job = await accept(store, priority=9)
        watch = store.watch([job_topic(job)])
        await accept(store, priority=1)
        assert await watch.wait(PATIENCE)
        watch.close()
        assert await kinds_of(store, job) == ["submitted", "shed"]

    async def test_what_a_shed_job_was_offered_goes_to_the_next(self, store: Store) -> None:
        await configure(store, queue="small", capacity=1, when_full="shed")
        await provide(store, "plecs", slots=1)
        holder = await accept(store, resources=needs("plecs"))
        [lease] = await claim_jobs(store, 9)
        assert lease.job == holder
        small = await accept(store, queue="small", priority=9, resources=needs("plecs"))
        other = await accept(store, resources=needs("plecs"))
        assert await claim_jobs(store, 9, queues=("default", "small")) == []
        await amend(store, "cancel", holder)
        await accept(store, queue="elsewhere")
        assert await state_of(store, small) is State.BLOCKED
        await provide(store, "plecs", slots=2)
        assert await state_of(store, small) is State.QUEUED
        await accept(store, queue="small", priority=1)
        assert await state_of(store, small) is State.FAILED
        assert await claim_ids(store, 9) == [other]
        await assert_sound(store)


class Shortening:
    async def test_wait_limits_shrink_as_a_queue_fills_up(self, store: Store) -> None:
        await configure(store, capacity=10)
        limits = []
        for _ in range(10):
            job = await get_job(store, await accept(store, priority=7, expires_in=100 * SECOND))
            assert job.expires_at is not None
            limits.append((job.expires_at - NOON).total_seconds())
        assert limits == [100.0] * 9 + [62.5]
        assert (await counted(store))["shortened"] == (1, 0)

    async def test_it_is_linear_down_to_a_quarter(self, store: Store) -> None:
        await configure(store, capacity=100)
        await accept_all(store, 80)
        job = await get_job(store, await accept(store, priority=10, expires_in=100 * SECOND))
        assert job.expires_at == NOON + 100 * SECOND
        await accept_all(store, 18)
        job = await get_job(store, await accept(store, priority=10, expires_in=100 * SECOND))
        assert job.expires_at == NOON + 28.75 * SECOND
        [told] = await store.history(job.id)
        assert told.note == "its wait limit is shorter: the queue is nearly full"

    async def test_urgent_jobs_and_those_without_a_limit_wait_as_long_as_ever(self, store: Store) -> None:
        await configure(store, capacity=20)
        await accept_all(store, 18)
        job = await get_job(store, await accept(store, priority=6, expires_in=MINUTE))
        assert job.expires_at == NOON + MINUTE
        job = await get_job(store, await accept(store, priority=10))
        assert job.expires_at is None
        assert "shortened" not in await counted(store)

    async def test_a_queue_without_a_capacity_shortens_nothing(self, store: Store) -> None:
        await accept_all(store, 50)
        job = await get_job(store, await accept(store, priority=10, expires_in=MINUTE))
        assert job.expires_at == NOON + MINUTE
