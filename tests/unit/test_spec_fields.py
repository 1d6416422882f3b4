"""No field of a job slips through a fast path: each either keeps the job off it, or is written by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from daybreak.core.model import JobSpec, Need, Options
from daybreak.stores.directory import DirectoryStore
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore, fast_path
from daybreak.system.ports import RealWorld

LATER = datetime(2100, 1, 1, tzinfo=UTC)
PLAIN = JobSpec(id="job-1", task="t")
# Fields with which a store must look at more than the job itself, or cannot queue it at once. A fast path refuses them.
DECIDES = {
    "delay": timedelta(hours=1), "run_at": LATER, "key": "k", "unique": "u", "holder": "ann", "batch": "b",
    "flight": "f", "after": ("job-0",), "deadline": LATER,
}  # fmt: skip
# Fields that a store only keeps, or by which it counts and ranks. A fast path writes them.
KEPT = {
    "id": "job-2", "task": "other", "args": b"{1}", "queue": "q", "version": 2, "priority": 1, "by": "ann",
    "options": Options(timeout=timedelta(seconds=9), resources=(Need("door"),)), "code": "c", "run": "r", "owner": "o",
    "tags": ("a",), "meta": {"m": "1"}, "trace": "00-1-2-01",
}  # fmt: skip
# Fields that mean nothing without a key, a unique name, a holder or a flight, all of which a fast path refuses.
EMPTY_ALONE = {
    "digest": "d", "on_conflict": "refuse", "unique_while": "waiting", "hold_for": timedelta(seconds=3),
    "flight_parts": {"source": "5f"},
}  # fmt: skip


def test_every_field_of_a_job_is_known_here():
    """A new field: say above whether fast paths refuse it or write it, and have them do so."""
    assert sorted([*DECIDES, *KEPT, *EMPTY_ALONE]) == sorted(JobSpec.__struct_fields__)


def spec_with(field: str) -> JobSpec:
    return replace(PLAIN, **{field: (DECIDES | KEPT)[field]})


@pytest.mark.parametrize("field", DECIDES | KEPT)
def test_the_fast_path_of_postgres_refuses_a_field_or_writes_it(field):
    pytest.importorskip("psycopg")
    from daybreak.stores.postgres import plain_path

    def params(spec: JobSpec) -> list[object]:
        lane = 1 if (spec.queue, spec.task, spec.version) == (PLAIN.queue, PLAIN.task, PLAIN.version) else 2
        many = plain_path.insert_params([spec], [lane], None, (0, None))
        return [list(many), plain_path.insert_one_params(spec, lane, None, None, set(), (0, None))]

    spec = spec_with(field)
    assert plain_path.are_plain([PLAIN])
    assert plain_path.are_plain([PLAIN, replace(spec, id="job-3")]) == (field in KEPT)
    if field in KEPT:
        many, one = params(spec)
        plain_many, plain_one = params(PLAIN)
        assert many != plain_many
        assert one != plain_one


@pytest.mark.parametrize("field", DECIDES | KEPT)
def test_the_fast_path_of_redis_refuses_a_field_or_writes_it(field):
    pytest.importorskip("hiredis")
    from daybreak.stores.redis.plain_submit import PlainSubmit
    from daybreak.stores.redis.server_clock import ServerClock

    submit = PlainSubmit(ServerClock(RealWorld()))
    spec, plain = spec_with(field), submit.args([PLAIN])
    assert plain is not None
    written = submit.args([spec])
    # Runs and owners have indexes of their own there.
    assert (written is None) == (field in DECIDES or field in ("run", "owner"))
    assert written != plain
    if field in DECIDES:
        assert submit.args([PLAIN, replace(spec, id="job-3")]) is None


@pytest.mark.parametrize("field", DECIDES | KEPT)
async def test_the_fast_path_of_sqlite_refuses_links_and_holders_and_writes_all_else(field, tmp_path, monkeypatch):
    took_it = []
    insert = fast_path.insert

    def note(*args, **named):
        answer = insert(*args, **named)
        took_it.append(answer is not None)
        return answer

    monkeypatch.setattr(fast_path, "insert", note)
    spec = spec_with(field)
    if field == "holder":
        spec = replace(spec, options=Options(resources=(Need("door"),)))
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        await store.insert([spec])
        [found] = await store.get([spec.id])
    assert took_it == [field not in {"holder", "batch", "flight", "after", "deadline"}]
    assert found is not None
    assert found.spec == spec


@pytest.mark.parametrize("field", DECIDES | KEPT)
@pytest.mark.parametrize("name", ["memory", "directory"])
async def test_stores_with_one_path_keep_every_field(name, field, tmp_path):
    spec = spec_with(field)
    if field == "holder":
        spec = replace(spec, options=Options(resources=(Need("door"),)))
    opened = {
        "memory": MemoryStore,
        "directory": lambda: DirectoryStore(tmp_path / "jobs"),
    }[name]()
    async with opened as store:
        await store.insert([PLAIN, replace(spec, id="job-3")])
        [found] = await store.get(["job-3"])
    assert found is not None
    assert found.spec == replace(spec, id="job-3")
