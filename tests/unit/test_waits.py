"""What the records of waits inside jobs say, and when they go."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from daybreak.client.client import Client
from daybreak.client.waits import KIND, Wait, all_waits, forget_waits
from daybreak.core.model import Put
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.tasks.context import Context


@pytest.fixture
async def store():
    async with MemoryStore() as store:
        yield store


async def running(store) -> Context:
    """A job that runs, as its task sees it."""
    await Client(store).submit("outer", queue="outer")
    claim = Claim(worker="w", queues=("outer",), limit=1, lease_for=timedelta(hours=1))
    [lease] = (await store.exchange(Exchange(claim=claim))).leases
    return Context(job=lease.job, task="outer", fence=lease.fence)


async def test_a_wait_is_seen_with_both_jobs_while_it_lasts(store):
    awaited = await Client(store).submit("inner")
    here = await running(store)
    await store.put([Wait(here.job, here.fence, awaited).put()])
    [(wait, job, other)] = await all_waits(store)
    assert (wait.fence, job.id, other.id) == (here.fence, here.job, awaited)
    await Client(store).cancel(awaited)
    assert await all_waits(store) == []


async def test_what_a_killed_process_left_is_forgotten_and_nothing_else(store):
    here = await running(store)
    left = [Wait(here.job, here.fence - 1, "x"), Wait("gone", 1, "x")]
    for n, wait in enumerate([*left, Wait(here.job, here.fence, "x")]):
        await store.put([Put(kind=KIND, name=wait.job if n else "old", value=msgspec.json.encode(wait))])
    await store.put([Put(kind=KIND, name="torn", value=b"?")])
    await forget_waits(store)
    assert [record.name for record in await store.records(KIND)] == [here.job]
