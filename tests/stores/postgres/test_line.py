"""Inserts stand in line: one after another, as they came, whoever gives up."""

from __future__ import annotations

import asyncio

import pytest
from postgres_servers import URL, with_schema

from daybreak.store import Verdict
from daybreak.stores.postgres import PostgresStore
from daybreak.testing.contract.builders import spec, take_ids


@pytest.fixture
async def store(fresh_schema):
    async with PostgresStore(with_schema(URL, fresh_schema)) as store:
        yield store


def batches(count, size=60):
    return [[spec(args=b"[" + b" " * 500 + b"]") for _ in range(size)] for _ in range(count)]


async def test_one_who_gives_up_in_line_holds_up_nobody(store):
    jobs = batches(20)
    asked = [asyncio.create_task(store.insert(batch)) for batch in jobs]
    await asyncio.sleep(0)
    for one in asked[1::2]:
        one.cancel()
    async with asyncio.timeout(30):
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert [answer.verdict for answer in await store.insert(jobs[1])] == [Verdict.NEW] * 60, "it never went"
    assert all(isinstance(one, asyncio.CancelledError) for one in done[1::2])
    assert all([answer.job for answer in done[n]] == [job.id for job in jobs[n]] for n in range(0, 20, 2))


async def test_one_that_fails_is_told_so_and_the_next_goes_on(store):
    first, last = batches(2)
    odd = [spec(id="a\x1fb"), spec()]
    asked = [asyncio.create_task(store.insert(batch)) for batch in (first, odd, last)]
    async with asyncio.timeout(30):
        done = await asyncio.gather(*asked, return_exceptions=True)
    assert "unit separator" in str(done[1])
    taken = [job for _ in range(3) for job in await take_ids(store, 100, now=None)]
    assert taken == [job.id for batch in (first, last) for job in batch]


async def test_all_who_stand_in_line_are_answered_before_it_closes(fresh_schema):
    jobs = batches(10)
    async with PostgresStore(with_schema(URL, fresh_schema)) as store:
        asked = [asyncio.create_task(store.insert(batch)) for batch in jobs]
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        done = await asyncio.gather(*asked)
    assert [answer.job for answers in done for answer in answers] == [job.id for batch in jobs for job in batch]


async def test_whoever_asks_something_else_does_not_stand_in_line(store):
    asked = [asyncio.create_task(store.insert(batch)) for batch in batches(30, size=200)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await store.get(["nobody"]) == [None]
        assert not all(one.done() for one in asked)
        await asyncio.gather(*asked)
