"""A listing of one priority begins with its jobs, however many more urgent ones wait in the queue."""

from __future__ import annotations

import contextlib

import pytest
from server_stores import place_on

from daybreak.core.model import State
from daybreak.store.protocol import SCANNED_PER_PAGE, Filter, Query
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.contract.builders import configure, spec

LOW = Filter(queue="mail", states=frozenset({State.QUEUED}), priority=7)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request, tmp_path):
    with contextlib.ExitStack() as ending:
        if request.param == "sqlite":
            store = SqliteStore(tmp_path / "jobs.db")
        else:
            store = PostgresStore(ending.enter_context(place_on("postgres")))
        async with store:
            yield store


async def test_the_first_job_of_a_priority_is_found_behind_very_many_urgent_ones(store):
    await store.insert([spec(queue="mail", priority=2) for _ in range(SCANNED_PER_PAGE + 1)])
    await store.insert([spec(queue="mail", priority=7, id="low")])
    page = await store.find(Query(filter=LOW, limit=1))
    assert [job.id for job in page.jobs] == ["low"]


async def test_it_is_found_where_jobs_age(store):
    await configure(store, "mail", discipline="aging")
    await store.insert([spec(queue="mail", priority=priority, id=f"p{priority}") for priority in (2, 7)])
    page = await store.find(Query(filter=LOW, limit=1))
    assert [job.id for job in page.jobs] == ["p7"]
