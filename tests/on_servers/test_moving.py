"""Jobs that go from store to store, round all of them, and jobs that one of them cannot keep."""

from __future__ import annotations

import contextlib
import itertools
from datetime import timedelta

import pytest
from server_stores import place_on

from daybreak.client.client import Client
from daybreak.client.store_migration import Mover
from daybreak.core.errors import BadInput
from daybreak.core.events import fold
from daybreak.core.model import Done, JobSpec, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Query
from daybreak.stores import store_for
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld

HOUR = timedelta(hours=1)


@contextlib.asynccontextmanager
async def opened(kind, folder):
    with contextlib.ExitStack() as places:
        if kind == "memory":
            store = MemoryStore()
        else:
            url = f"sqlite:///{folder / 'jobs.db'}" if kind == "sqlite" else places.enter_context(place_on(kind))
            store = store_for(url)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


async def jobs_of(store):
    return {job.id: job for job in (await store.find(Query(limit=1000))).jobs}


async def fill(store):
    client = Client(store)
    await client.submit("t", key="ended", priority="high")
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(b"7"), chance=0.5, by="w")]))
    named = await client.submit("t", unique="u", key="k1")
    assert await client.submit("t", unique="u", key="k2") == named
    await client.submit("t", delay=HOUR, key="later")
    held = await client.submit("t", delay=HOUR)
    await client.suspend(held, note="by hand")
    for _ in range(20):
        await client.submit("t")
    return named, held


async def test_jobs_go_round_all_stores_and_come_back_as_they_were(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        memory, sqlite, postgres, redis = [
            await stack.enter_async_context(opened(kind, tmp_path))
            for kind in ("memory", "sqlite", "postgres", "redis")
        ]
        named, held = await fill(memory)
        before, packed = await jobs_of(memory), await memory.pack([named, held])
        route = (memory, sqlite, postgres, redis, postgres, sqlite, memory)
        for start, goal in itertools.pairwise(route):
            report = await Mover(start, goal, RealWorld(), by="ann").run()
            assert (report.moved, report.held_back) == (len(before), {})
            assert await jobs_of(start) == {}
        after = await jobs_of(memory)
        for job in before.values():
            same = after[job.id]
            assert (same.spec, same.state, same.run_at, same.note, same.result) == (
                job.spec, job.state, job.run_at, job.note, job.result,
            )  # fmt: skip
            assert fold(await memory.history(job.id)).state is job.state
        again = await memory.pack([named, held])
        assert [(one.job.run_at, one.keys) for one in again] == [(one.job.run_at, one.keys) for one in packed]
        waiting = sorted((job for job in before.values() if job.state is State.QUEUED), key=lambda job: job.seq)
        leases = (await memory.exchange(Exchange(claim=Claim(worker="w", limit=50)))).leases
        assert [lease.job for lease in leases] == [job.id for job in waiting]


@pytest.mark.parametrize("goal", ["sqlite", "postgres", "redis"])
async def test_what_a_store_cannot_keep_stays_as_it_was_and_the_others_go(tmp_path, goal):
    odd = ["unit\x1fseparator", "n\0ul", "long" * 10_000, "half \udcff a pair"]
    refused = {"sqlite": odd[3:], "postgres": odd, "redis": odd[2:]}[goal]
    async with MemoryStore() as source, opened(goal, tmp_path) as target:
        names = [f"j{n}" for n in range(10)]
        await source.insert([JobSpec(id=name, task="t", delay=HOUR) for name in (*names[:5], *odd, *names[5:])])
        report = await Mover(source, target, RealWorld(), by="ann").run()
        assert set(report.held_back) == set(refused)
        assert all(why.startswith("the target cannot store it: ") for why in report.held_back.values())
        there = set(names) | set(odd) - set(refused)
        assert set(await jobs_of(target)) == there
        assert {event.job for event in (await target.events()).events} == there
        assert {job.id: (job.state, job.note) for job in (await jobs_of(source)).values()} == dict.fromkeys(
            refused, (State.SCHEDULED, "")
        )


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_a_store_is_not_moved_to_another_name_of_itself(tmp_path, kind):
    with contextlib.ExitStack() as places:
        if kind == "sqlite":
            (tmp_path / "other").symlink_to(tmp_path)
            urls = [f"sqlite:///{tmp_path / 'jobs.db'}", f"sqlite:///{tmp_path / 'other' / 'jobs.db'}"]
        else:
            urls = [places.enter_context(place_on(kind))] * 2
        async with store_for(urls[0]) as source, store_for(urls[1]) as target:
            await fill(source)
            before = await jobs_of(source)
            with pytest.raises(BadInput, match="the same store"):
                await Mover(source, target, RealWorld(), by="ann").run()
            assert await jobs_of(source) == before
