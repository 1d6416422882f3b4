"""SQLite and PostgreSQL run the same state machine as the memory store: a bug that is planted in it is caught there.

The fast paths are off, because they do without the kernel; tests compare them with it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from bugs.planting import Bug
from test_planted_bugs import BUGS, CAUGHT

from daybreak.core.errors import StoreError
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing import HandClock, StoreContract
from daybreak.testing.contract import holders, shedding

sys.path.append(str(Path(__file__).parents[1] / "stores" / "postgres"))

# A database may refuse what the bug would write, or the process that finds its own data wrong: that is noticed as well.
CAUGHT_IN_SQL = (*CAUGHT, StoreError, KeyError)
IN_KERNEL = {(bug.__name__, test): bug for _, bug, test in BUGS if isinstance(bug, Bug) and not bug.is_of_memory}
NAMES = sorted(IN_KERNEL)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    for part in (holders, shedding):
        monkeypatch.setattr(part, "PATIENCE", holders.timedelta(seconds=1))


async def run(test, store, clock) -> None:
    given = {"store": store, "clock": clock}
    await test(**{name: given[name] for name in inspect.signature(test).parameters})


@pytest.mark.parametrize(("name", "caught_by"), NAMES, ids=[f"{name}-{test}" for name, test in NAMES])
async def test_a_bug_in_the_kernel_is_caught_on_sqlite(name, caught_by, tmp_path):
    clock, test = HandClock(), getattr(StoreContract(), caught_by)
    async with SqliteStore(tmp_path / "jobs.db", world=clock, threaded=False, fast_path=False) as store:
        with IN_KERNEL[name, caught_by].planted(), pytest.raises(CAUGHT_IN_SQL):
            await run(test, store, clock)


@pytest.fixture(scope="module")
def schema():
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
    from postgres_servers import schema_for_tests

    with schema_for_tests() as schema:
        yield schema


# PostgreSQL also polls, so a wake-up that is not sent is only late; and it reads by its own statement who fails fast.
NOT_ON_POSTGRESQL = {"request_is_not_told", "sheds_in_silence", "waiter_is_not_told", "patience_is_forced"}
WITHOUT_CLOCK = [
    (name, test)
    for name, test in NAMES
    if name not in NOT_ON_POSTGRESQL and "clock" not in inspect.signature(getattr(StoreContract, test)).parameters
]


@pytest.mark.parametrize(("name", "caught_by"), WITHOUT_CLOCK, ids=[f"{name}-{test}" for name, test in WITHOUT_CLOCK])
async def test_a_bug_in_the_kernel_is_caught_on_postgresql(name, caught_by, schema):
    from postgres_servers import URL, empty, with_schema

    from daybreak.stores.postgres import PostgresStore

    empty(schema)
    async with PostgresStore(with_schema(URL, schema), fast_path=False) as store:
        with IN_KERNEL[name, caught_by].planted(), pytest.raises(CAUGHT_IN_SQL):
            await run(getattr(StoreContract(), caught_by), store, None)
