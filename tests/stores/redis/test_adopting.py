"""Jobs of another store are adopted as the memory store does it, and deleted here once another store adopted them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis_servers import REDIS, fresh, need_redis

from daybreak.core.events import KINDS
from daybreak.core.model import Done, HandedBack, State, Suspended
from daybreak.store.protocol import Moved, Purge
from daybreak.stores.memory import MemoryStore
from daybreak.stores.redis import RedisStore, codes
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    accept,
    amend,
    assert_sound,
    beat,
    claim_one,
    configure,
    follow,
    jobs_of,
    run_one,
    settle,
)

LATER = NOON + HOUR


def test_every_kind_of_event_has_a_number_of_its_own():
    assert codes.KINDS[: len(KINDS)] == KINDS


@pytest.fixture
async def source():
    """A store in which a little of everything has happened; none of it runs."""
    async with MemoryStore() as store:
        await accept(store, key="done", unique="free", keep_completed=DAY, owner="ann", run="r", by="ann")
        await run_one(store, Done(b"result"))
        await accept(store, unique="gone", keep_failed=None)
        await run_one(store, FATAL)
        await accept(store, delay=2 * HOUR, expires_in=DAY)
        await accept(store, expires_in=MINUTE)
        await amend(store, "suspend", await accept(store, priority=2), note="why")
        await accept(store, key="waits", unique="held", priority=7, tags=("x",))
        checked = await accept(store, priority=0)
        lease = await claim_one(store)
        assert lease.job == checked
        await beat(store, lease, progress=0.5, message="half", checkpoint=b"50")
        await settle(store, lease, HandedBack())
        lease = await claim_one(store)
        await settle(store, lease, Suspended("asks", b"half"))
        for _ in range(210):  # long enough to be folded
            await amend(store, "rerank", checked, priority=1)
            await amend(store, "rerank", checked, priority=2)
        yield store


async def moved_from(store):
    return [Moved(job, await store.history(job.id)) for job in reversed(await jobs_of(store))]


async def test_jobs_are_adopted_as_the_memory_store_does_it(source):
    need_redis()
    jobs = await moved_from(source)
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store, MemoryStore() as memory:
            for target in (store, memory):
                await configure(target, discipline="aging", capacity=1)
                await accept(target, unique="free", key="other")
            found, expected = [await target.adopt(jobs, by="mover", now=LATER) for target in (store, memory)]
            assert found[0].verdict == "new"
            assert [(one.verdict, one.same) for one in found] == [(one.verdict, one.same) for one in expected]
            again = await store.adopt(jobs, by="mover", now=LATER)
            assert {one.verdict for one in again} == {"duplicate"}
            for job in jobs:
                assert await store.history(job.job.id) == await memory.history(job.job.id)
            names = [job.job.id for job in jobs]
            assert await store.get(names) == await memory.get(names)
            assert await store.count() == await memory.count()
            for target in (store, memory):
                await assert_sound(target)
                await target.advance(now=LATER + timedelta(minutes=1))
                await target.purge(Purge(), now=LATER + DAY)
                await target.advance(now=LATER + 2 * DAY)
            assert await store.get(names) == await memory.get(names)
            assert len((await follow(store))[0]) == len((await follow(memory))[0])


async def test_a_job_adopted_elsewhere_is_deleted_if_it_has_not_changed_since():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store:
            still, changed, running = [await accept(store, key=f"k{n}", unique=f"u{n}") for n in range(3)]
            await amend(store, "rerank", changed, priority=9)
            await amend(store, "rerank", running, priority=0)
            assert (await claim_one(store)).job == running
            wanted = ((still, 1), (changed, 1), (running, 3), ("nobody", 1), (still, 1))
            purged = await store.purge(Purge(moved=wanted), now=NOON + LEASE)
            assert purged.moved == [True, False, False, False, False]
            assert {job.id: job.state for job in await jobs_of(store)} == {
                changed: State.QUEUED, running: State.RUNNING,
            }  # fmt: skip
            await accept(store, unique="u0")
            await assert_sound(store)
