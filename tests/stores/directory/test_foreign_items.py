"""A folder of the original pyWATS queue is taken over: nothing lost, in the order in which it was created."""

from __future__ import annotations

import json

import pytest

from daybreak.core.metadata import decode_meta
from daybreak.core.model import Reason, State
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.directory import WATS, DirectoryStore
from daybreak.testing.contract.builders import get_job


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "queue"


def leave(folder, job, status, data=None, **meta):
    """An item as the original queue writes it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{job}.{status}.wsjf").write_text(json.dumps({"serial": job} if data is None else data))
    told = {
        "id": job, "priority": 5, "status": status, "created_at": "2026-01-31T12:00:00", "attempts": 0,
        "updated_at": "2026-01-31T12:30:00", "max_attempts": 3, "last_error": None, "custom": {},
    }  # fmt: skip
    (folder / f"{job}.{status}.meta.json").write_text(json.dumps({**told, **meta}))


async def test_every_status_is_taken_over(folder):
    leave(folder, "p", "pending", priority=2, custom={"line": 3, "name": "x"})
    leave(folder, "r", "processing", attempts=1)
    leave(folder, "c", "completed", attempts=1)
    leave(folder, "f", "failed", attempts=3, last_error="no route")
    leave(folder, "s", "suspended")
    async with DirectoryStore(folder, queue="reports") as store:
        jobs = {job: await get_job(store, job) for job in "prcfs"}
        found = [(job.state, job.attempt) for job in jobs.values()]
        assert found == [
            (State.QUEUED, 0), (State.QUEUED, 2), (State.COMPLETED, 1), (State.FAILED, 3), (State.SUSPENDED, 0),
        ]  # fmt: skip
        assert decode_meta(jobs["p"].spec.meta) == {"line": 3, "name": "x"}
        assert jobs["p"].spec.args == b'{"data":{"serial": "p"}}'
        assert jobs["f"].reason is Reason.ERROR
        assert "no route" in str(jobs["f"].failure)
        assert {job.spec.queue for job in jobs.values()} == {"reports"}
        claimed = await store.exchange(Exchange(claim=Claim(worker="w", queues=("reports",), limit=10)))
        assert [lease.job for lease in claimed.leases] == ["p", "r"], "by priority; what is done is not done again"


async def test_the_order_is_that_of_creation_not_of_the_names(folder):
    for minute, job in enumerate(["z", "m", "a"]):
        leave(folder, job, "pending", created_at=f"2026-01-31T12:{minute:02d}:00")
    async with DirectoryStore(folder, layout=WATS) as store:
        claimed = await store.exchange(Exchange(claim=Claim(worker="w", limit=10)))
        assert [lease.job for lease in claimed.leases] == ["z", "m", "a"]


@pytest.mark.parametrize(
    "meta",
    [None, b"", b"{half", b"[1]", b'{"priority": "urgent", "attempts": -1, "created_at": 3, "custom": [], "id": 7}'],
    ids=["missing", "empty", "truncated", "another shape", "wrong types"],
)
async def test_missing_or_malformed_metadata_gets_defaults(folder, meta):
    leave(folder, "a", "pending")
    path = folder / "a.pending.meta.json"
    path.unlink()
    if meta is not None:
        path.write_bytes(meta)
    async with DirectoryStore(folder) as store:
        job = await get_job(store, "a")
        assert (job.state, job.priority, job.attempt) == (State.QUEUED, 5, 0)
        assert job.spec.options.retry.attempts == 3


async def test_a_damaged_item_is_set_aside_and_the_others_load(folder):
    leave(folder, "a", "pending")
    leave(folder, "b", "pending")
    (folder / "a.pending.wsjf").write_text('{"serial": "a')
    async with DirectoryStore(folder) as store:
        assert [job is None for job in await store.get(["a", "b"])] == [True, False]
    assert (folder / "corrupt" / "a.pending.wsjf").exists()


async def test_it_is_taken_over_once(folder):
    leave(folder, "r", "processing", attempts=1)
    for _ in range(3):
        async with DirectoryStore(folder) as store:
            assert (await get_job(store, "r")).attempt == 2
            assert [event.kind for event in (await store.events()).events] == ["moved"]


async def test_an_item_that_the_original_program_adds_later_is_taken_over_too(folder):
    async with DirectoryStore(folder, layout=WATS):
        pass
    leave(folder, "late", "pending")
    async with DirectoryStore(folder) as store:
        assert (await get_job(store, "late")).state is State.QUEUED
