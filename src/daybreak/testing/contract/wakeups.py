"""Wake-ups: a caller that opens a watch, then checks, then waits misses no change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec.structs import replace

from daybreak.core.model import HandedBack, Lost, Put
from daybreak.store.protocol import (
    EVENTS_TOPIC,
    REQUEST_KIND,
    SAGA_MARK_KIND,
    SAGAS_TOPIC,
    SCHEDULE_KIND,
    SCHEDULES_TOPIC,
    Store,
    job_topic,
    request_name,
    work_topic,
    worker_topic,
)
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    accept,
    amend,
    beat,
    claim_jobs,
    claim_one,
    configure,
    reap,
    settle,
    spec,
)

# A wake-up ends the wait at once; only a store that sleeps through a change takes all of it.
PATIENCE = timedelta(seconds=1)
SHORT = timedelta(milliseconds=5)


async def wakes(store: Store, topic: str, change: Callable[[], Awaitable[object]]) -> bool:
    """Does this change wake a watch that was opened before it, though the wait began only after?"""
    watch = store.watch([topic])
    try:
        while await watch.wait(SHORT):  # what happened earlier may be told late
            pass
        await change()
        return await watch.wait(PATIENCE)
    finally:
        watch.close()


class Wakeups:
    async def test_a_wake_up_between_look_and_wait_is_not_lost(self, store: Store) -> None:
        watch = store.watch([work_topic("default")])
        assert await claim_jobs(store) == []
        await accept(store)
        assert await watch.wait(PATIENCE)
        watch.close()

    async def test_a_wake_up_ends_a_wait_that_has_begun(self, store: Store) -> None:
        watch = store.watch([work_topic("default")])
        waiting = asyncio.create_task(watch.wait(PATIENCE))
        await asyncio.sleep(0)
        await accept(store)
        assert await waiting
        watch.close()

    async def test_a_wake_up_is_called_out_before_a_wait_is_over(self, store: Store) -> None:
        watch = store.watch([work_topic("default")])
        while await watch.wait(SHORT):
            pass
        loops: list[asyncio.AbstractEventLoop] = []
        watch.on_wake(lambda: loops.append(asyncio.get_running_loop()))
        await accept(store)
        assert await watch.wait(PATIENCE)
        assert loops
        assert set(loops) == {asyncio.get_running_loop()}
        watch.close()

    async def test_a_wait_without_a_change_ends_with_its_time(self, store: Store) -> None:
        watch = store.watch([work_topic("default")])
        async with asyncio.timeout(5):
            await watch.wait(SHORT)
        watch.close()

    async def test_every_watch_of_a_topic_is_woken(self, store: Store) -> None:
        watches = [store.watch([work_topic("default")]) for _ in range(3)]
        await accept(store)
        assert [await watch.wait(PATIENCE) for watch in watches] == [True] * 3
        for watch in watches:
            watch.close()

    async def test_one_watch_may_have_many_topics(self, store: Store) -> None:
        for queue in ("a", "b"):
            watch = store.watch([work_topic("a"), work_topic("b")])
            await accept(store, queue=queue)
            assert await watch.wait(PATIENCE)
            watch.close()

    async def test_new_work_wakes_those_who_wait_for_the_queue(self, store: Store) -> None:
        topic = work_topic("default")
        assert await wakes(store, topic, lambda: accept(store))
        lease = await claim_one(store)
        assert await wakes(store, topic, lambda: settle(store, lease, HandedBack()))
        parent = await claim_one(store)
        assert await wakes(store, topic, lambda: settle(store, parent, inserts=(spec(),)))

    async def test_whatever_makes_a_job_claimable_wakes_its_queue(self, store: Store) -> None:
        topic = work_topic("default")
        job = await accept(store)
        await amend(store, "suspend", job)
        assert await wakes(store, topic, lambda: amend(store, "resume", job))
        await amend(store, "cancel", job)
        assert await wakes(store, topic, lambda: amend(store, "retry", job))
        lease = await claim_one(store)
        assert await wakes(store, topic, lambda: settle(store, lease, OOPS))  # due later: plan anew
        assert await wakes(store, topic, lambda: store.advance(now=NOON + HOUR))
        await claim_one(store, now=NOON + HOUR)
        [taken] = await reap(store, now=NOON + HOUR + LEASE)
        assert await wakes(store, topic, lambda: settle(store, taken, Lost(), now=NOON + HOUR + LEASE))

    async def test_a_job_with_a_delay_wakes_its_queue_so_that_idle_workers_plan_anew(self, store: Store) -> None:
        assert await wakes(store, work_topic("default"), lambda: accept(store, delay=MINUTE))

    async def test_room_under_max_running_wakes_the_queue(self, store: Store) -> None:
        await configure(store, max_running=1)
        for _ in range(2):
            await accept(store)
        lease = await claim_one(store)
        assert await wakes(store, work_topic("default"), lambda: settle(store, lease))

    async def test_changed_settings_wake_the_queue(self, store: Store) -> None:
        await configure(store, paused=True)
        assert await wakes(store, work_topic("default"), lambda: configure(store, paused=False))

    async def test_the_end_of_a_job_wakes_those_who_wait_for_it(self, store: Store) -> None:
        first, second = await accept(store), await accept(store)
        lease = await claim_one(store)
        assert await wakes(store, job_topic(first), lambda: settle(store, lease))
        assert await wakes(store, job_topic(second), lambda: amend(store, "cancel", second))
        third = await accept(store, expires_in=MINUTE)
        assert await wakes(store, job_topic(third), lambda: store.advance(now=NOON + MINUTE))

    async def test_a_request_wakes_the_worker_that_holds_the_job(self, store: Store) -> None:
        first, second = await accept(store), await accept(store)
        await claim_jobs(store, 2, worker="w7")
        assert await wakes(store, worker_topic("w7"), lambda: amend(store, "cancel", first))
        assert await wakes(store, worker_topic("w7"), lambda: amend(store, "suspend", second))

    async def test_a_request_record_wakes_the_worker_that_it_names(self, store: Store) -> None:
        ask = Put(kind=REQUEST_KIND, name=request_name("worker 7", "0199"), value=b"{}")
        assert await wakes(store, worker_topic("worker 7"), lambda: store.put([ask]))
        assert [record.name for record in await store.records(REQUEST_KIND)] == ["worker 7 0199"]
        await store.put([replace(ask, value=None)])
        assert await store.records(REQUEST_KIND) == []

    async def test_a_schedule_wakes_those_who_watch_schedules(self, store: Store) -> None:
        nightly = Put(kind=SCHEDULE_KIND, name="nightly", value=b"{}")
        assert await wakes(store, SCHEDULES_TOPIC, lambda: store.put([nightly]))
        [record] = await store.records(SCHEDULE_KIND)
        changed = replace(nightly, value=b'{"paused":true}', expect=record.revision)
        assert await wakes(store, SCHEDULES_TOPIC, lambda: store.put([changed]))
        assert await wakes(store, SCHEDULES_TOPIC, lambda: store.put([replace(nightly, value=None)]))

    async def test_a_mark_of_a_saga_wakes_those_who_watch_sagas(self, store: Store) -> None:
        mark = Put(kind=SAGA_MARK_KIND, name="order-17", value=b"{}", expect=0)
        assert await wakes(store, SAGAS_TOPIC, lambda: store.put([mark]))
        assert await wakes(store, SAGAS_TOPIC, lambda: store.put([replace(mark, value=None, expect=None)]))

    async def test_events_wake_those_who_follow_them(self, store: Store) -> None:
        job = await accept(store)
        assert await wakes(store, EVENTS_TOPIC, lambda: accept(store))
        lease = await claim_one(store)
        assert lease.job == job
        assert await wakes(store, EVENTS_TOPIC, lambda: beat(store, lease, progress=0.5))
        assert await wakes(store, EVENTS_TOPIC, lambda: settle(store, lease))
