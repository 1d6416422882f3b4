"""Two on one file: what one remembers is true though the other has written."""

from __future__ import annotations

import pytest

from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.contract.builders import accept, claim_jobs, configure


@pytest.fixture
async def both(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db") as one, SqliteStore(tmp_path / "jobs.db") as other:
        await accept(one)
        assert len(await claim_jobs(one)) == 1  # it knows the queue, its settings and its lane
        assert await claim_jobs(other) == []
        await accept(one)
        yield one, other


async def test_settings_that_another_changed_hold_at_once(both):
    one, other = both
    await configure(other, paused=True)
    assert await claim_jobs(one) == []
    await configure(other, paused=False)
    assert len(await claim_jobs(one)) == 1


async def test_settings_that_we_changed_and_another_put_back_hold_at_once(both):
    one, other = both
    await configure(one, paused=True)
    assert await claim_jobs(one) == []
    await configure(other, paused=False)
    assert len(await claim_jobs(one)) == 1


async def test_jobs_of_a_task_that_another_brought_are_found(both):
    one, other = both
    assert len(await claim_jobs(one)) == 1
    job = await accept(other, task="new", queue="new")
    assert [lease.spec.id for lease in await claim_jobs(one, queues=("new",))] == [job]
    assert [lease.spec.task for lease in await claim_jobs(one, queues=("new",))] == []
