"""Waits inside jobs leave a record while they last, and none afterwards."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from daybreak.client import Client
from daybreak.context import Context, current
from daybreak.errors import StoreUnavailable
from daybreak.model import Put
from daybreak.store import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.waits import KIND, Wait, all_waits, forget_waits, shown_wait


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


async def test_a_wait_inside_a_job_is_shown_while_it_lasts(store):
    awaited = await Client(store).submit("inner")
    context = await running(store)
    current.set(context)
    async with shown_wait(store, awaited):
        [(wait, job, other)] = await all_waits(store)
        assert (wait.fence, job.id, other.id) == (context.fence, context.job, awaited)
    assert await store.records(KIND) == []


async def test_it_goes_with_an_error_too(store):
    current.set(await running(store))
    with pytest.raises(TimeoutError):
        async with shown_wait(store, "x"):
            raise TimeoutError
    assert await store.records(KIND) == []


async def test_outside_a_job_nothing_is_written(store):
    async with shown_wait(store, "x"):
        assert await store.records(KIND) == []


async def test_a_store_that_cannot_be_written_ends_no_wait():
    class Broken:
        async def put(self, puts):
            raise StoreUnavailable("away")

    current.set(Context(job="j", fence=1))
    async with shown_wait(Broken(), "x"):
        pass


async def test_what_a_killed_process_left_is_forgotten_and_nothing_else(store):
    here = await running(store)
    left = [Wait(here.job, here.fence - 1, "x"), Wait("gone", 1, "x")]
    for n, wait in enumerate([*left, Wait(here.job, here.fence, "x")]):
        await store.put([Put(kind=KIND, name=wait.job if n else "old", value=msgspec.json.encode(wait))])
    await store.put([Put(kind=KIND, name="torn", value=b"?")])
    await forget_waits(store)
    assert [record.name for record in await store.records(KIND)] == [here.job]
