"""Promise 13: programs one schema version apart work on one file."""

from __future__ import annotations

import contextlib

import apsw
import pytest

from daybreak.core.errors import StoreTooNew
from daybreak.core.model import Done, State
from daybreak.core.units import micros, span
from daybreak.stores.sqlite import SqliteStore, schema
from daybreak.stores.sqlite.statements import migrations, sql
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    NOON,
    accept,
    accept_all,
    act,
    assert_sound,
    end,
    jobs_of,
    look,
    needs,
    reap,
    run_one,
    take,
)

# How a program of version 2 speaks to the tables that have changed since.
V2_CLAIM = """
INSERT INTO lease (seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
V2_TALLY = """
INSERT INTO tally (lane, priority, state, n) VALUES (?, ?, ?, ?)
ON CONFLICT (lane, priority, state) DO UPDATE SET n = n + excluded.n
"""
V2_LEASES = """
SELECT seq, lane, priority, uniq, fence, n, worker, started, suspending, cancelling, carry, history
FROM lease WHERE seq IN (SELECT value FROM json_each(?))
"""
V2_EXTEND = "UPDATE lease SET until = ?, term = ?, alone = coalesce(?, alone) WHERE seq = ?"
V2_HOLD = (
    "INSERT INTO held (seq, state, clock, due, attempt, fence, n, carry, history) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

# What makes a file of version 2 of one of today's.
BACK_TO_2 = """
DROP TABLE gauge;
ALTER TABLE tally DROP COLUMN totals;
ALTER TABLE idem DROP COLUMN at;
ALTER TABLE lease DROP COLUMN needs;
ALTER TABLE lease DROP COLUMN ahead;
DROP INDEX held_cause;
ALTER TABLE held DROP COLUMN lane;
ALTER TABLE held DROP COLUMN band;
ALTER TABLE held DROP COLUMN ord;
CREATE INDEX held_cause ON held (cause) WHERE cause IS NOT NULL;
PRAGMA user_version = 2;
UPDATE meta SET value = 1 WHERE name = 'needs';
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
    async with SqliteStore(path) as store:
        jobs = await accept_all(store, 4)
        leases = await take(store, 2)
        assert await act(store, "suspend", jobs[3]) == ["done"]
    db = apsw.Connection(str(path))
    db.execute(BACK_TO_2)
    db.close()
    assert told(path) == (2, 1)
    async with SqliteStore(path) as store:
        states = [State.RUNNING, State.RUNNING, State.QUEUED, State.SUSPENDED]
        assert [(await look(store, job)).state for job in jobs] == states
        assert await act(store, "resume", jobs[3]) == ["done"]
        taken = await reap(store, now=NOON + LEASE)
        assert [lease.job for lease in taken] == [lease.job for lease in leases]
        for lease in taken:
            await end(store, lease, Done(), now=NOON + LEASE)
        assert await run_one(store, now=NOON + LEASE) == jobs[2]
        await assert_sound(store, jobs)
    assert told(path) == (schema.VERSION, 2), "the version before must not be shut out"


async def test_a_program_of_the_version_before_works_on_beside_us(path):
    async with SqliteStore(path) as store:
        await accept_all(store, 2)
        [lease] = await take(store)
        old = apsw.Connection(str(path))
        old.set_busy_timeout(5000)
        try:
            states = {state for (state,) in old.execute("SELECT state FROM tally WHERE n <> 0")}
            assert states <= set(State), "what it counts by"
            old.execute(V2_TALLY, (1, 5, "queued", 1))
            old.execute(V2_TALLY, (1, 5, "queued", -1))
            assert len(old.execute(V2_LEASES, (f"[{lease.seq}]",)).fetchone()) == 12
            old.execute(V2_EXTEND, (micros(NOON + HOUR), span(LEASE), None, lease.seq))
            assert await reap(store, now=NOON + LEASE) == [], "its heartbeat counts"
            old.execute(sql.delete_lease, (lease.seq,))
            old.execute(
                V2_CLAIM, (lease.seq, 1, 5, None, 2, 4, 5, "old", micros(NOON), span(LEASE), 0, None, None, None)
            )
            [taken] = await reap(store, now=NOON + HOUR)
            assert (taken.attempt, taken.fence) == (2, 5), "it claims as if nothing were new"
            assert await end(store, taken, Done(), now=NOON + HOUR)
            old.execute("DELETE FROM ready")
            old.execute(V2_HOLD, (2, "suspended", None, None, 0, 0, 1, None, None))
        finally:
            old.close()
        [job] = await jobs_of(store, states=frozenset({State.SUSPENDED}))
        assert job.seq == 2


async def test_a_program_that_knows_no_resources_is_refused_once_they_are_in_use(path):
    async with SqliteStore(path) as store:
        await accept(store)
        assert told(path) == (3, 2)
        await accept(store, resources=needs("plecs"))
        assert told(path) == (3, 3)
    with at_version(2), pytest.raises(StoreTooNew, match="upgrade"):
        await SqliteStore(path).open()
    async with SqliteStore(path) as store:
        assert len(await jobs_of(store)) == 2


def test_every_version_has_its_migration_and_the_last_two_are_served():
    assert migrations.names() == [f"{number:04}" for number in range(1, schema.VERSION + 1)]
    assert schema.VERSION - 1 >= schema.NEEDS
