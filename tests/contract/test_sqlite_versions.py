"""Promise 13: programs one schema version apart work on one file."""

from __future__ import annotations

import contextlib

import apsw
import pytest

from daybreak.model import Done, State
from daybreak.stores.sqlite import SqliteStore, schema
from daybreak.stores.sqlite.statements import migrations, sql
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    NOON,
    accept,
    accept_all,
    assert_sound,
    beat,
    end,
    look,
    reap,
    run_one,
    take,
)
from daybreak.units import micros, span

# How a program of version 1 speaks to the table that has changed since.
V1_EXTEND = "UPDATE lease SET until = ?, term = ? WHERE seq = ?"
V1_TAKE_OVER = """
UPDATE lease SET fence = ?, n = ?, worker = ?, until = ?, term = ?, call = NULL, reaped = 1, history = ? WHERE seq = ?
"""
V1_CLAIM = """
INSERT INTO lease (seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
V1_LOAD = """
SELECT attempt, fence, n, carry, history, worker, until, term, started, call, reaped, suspending, cancelling
FROM lease WHERE seq = ?
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@contextlib.contextmanager
def at_version(number: int):
    """What is opened meanwhile is made as the program of that version made it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "VERSION", number)
        yield


def told(path) -> tuple[int, int]:
    """The version of a file, and the oldest program that it serves."""
    db = apsw.Connection(str(path))
    try:
        return db.pragma("user_version"), db.execute(sql.get_meta, ("needs",)).fetchone()[0]
    finally:
        db.close()


async def test_a_file_of_the_version_before_is_taken_over_with_what_runs_in_it(path):
    with at_version(1):
        async with SqliteStore(path) as store:
            jobs = await accept_all(store, 3)
            leases = await take(store, 2)
        assert told(path) == (1, 1)
    async with SqliteStore(path) as store:
        assert [(await look(store, job)).state for job in jobs] == [State.RUNNING] * 2 + [State.QUEUED]
        await beat(store, leases[0], alone=True)
        taken = await reap(store, now=NOON + LEASE)
        assert [(lease.job, lease.alone) for lease in taken] == [(jobs[0], True), (jobs[1], False)]
        for lease in taken:
            await end(store, lease, Done(), now=NOON + LEASE)
        assert await run_one(store, now=NOON + LEASE) == jobs[2]
        await assert_sound(store, jobs)
    assert told(path) == (schema.VERSION, 1), "the version before must not be shut out"


async def test_a_program_of_the_version_before_works_on_beside_us(path):
    async with SqliteStore(path) as store:
        await accept(store)
        [lease] = await take(store)
        await beat(store, lease, alone=True)
        old = apsw.Connection(str(path))
        try:
            assert len(old.execute(V1_LOAD, (lease.seq,)).fetchone()) == 13
            old.execute(V1_EXTEND, (micros(NOON + HOUR), span(LEASE), lease.seq))
            assert await reap(store, now=NOON + LEASE) == [], "its heartbeat counts"
            old.execute(V1_TAKE_OVER, (2, 3, "old", micros(NOON + HOUR), span(LEASE), None, lease.seq))
            [taken] = await reap(store, now=NOON + HOUR)
            assert (taken.fence, taken.alone) == (3, True), "what was said of the lease outlives its reaper"
            old.execute(sql.delete_lease, (lease.seq,))
            old.execute(
                V1_CLAIM, (lease.seq, 1, 5, None, 2, 4, 5, "old", micros(NOON), span(LEASE), 0, None, None, None)
            )
            [taken] = await reap(store, now=NOON + HOUR)
            assert (taken.attempt, taken.fence, taken.alone) == (2, 5, False), "it claims as if nothing were new"
        finally:
            old.close()


def test_every_version_has_its_migration_and_the_last_two_are_served():
    assert migrations.names() == [f"{number:04}" for number in range(1, schema.VERSION + 1)]
    assert schema.VERSION - 1 >= schema.NEEDS
