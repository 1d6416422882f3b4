"""The cost of statements, in pages read by the server and bytes on the wire, never in time."""

from __future__ import annotations

import re
from datetime import timedelta

import psycopg
import pytest

from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.stores.postgres import PostgresStore, plain_path, session
from daybreak.testing.contract.builders import configure, spec
from daybreak.testing.contract.flights import flying

LARGE = b'{"a":"' + b"x" * 100_000 + b'"}'
MINUTE = timedelta(minutes=1)
MANY = 20_000
BY_SEQ = ("job", "delayed", "held", "lease", "done")
PLANS_MADE = "SELECT statement, custom_plans FROM pg_prepared_statements"


def test_checking_for_due_jobs_reads_a_few_pages_however_many_wait(store_with_many, pages):
    assert pages(store_with_many._opened._sql.may_advance.replace("%b", "0")) < 60


@pytest.fixture
async def store_with_many(url):
    """Very many delayed jobs, none of them due, and as many that expire some day."""
    async with PostgresStore(url) as store:
        with psycopg.connect(store.address.conninfo, autocommit=True) as db:
            db.execute(f"INSERT INTO {store.address.schema}.lane (queue, task, version) VALUES ('q', 't', 1)")
            db.execute(
                f"INSERT INTO {store.address.schema}.job "
                "(seq, created, arrived, ord, expires, lane, band, priority, asked, id, by, args) "
                "SELECT n, 0, 0, 0, 9e15::bigint + n, 1, 5, 5, 5, 'many-' || n, '', '' "
                f"FROM generate_series(1, {MANY}) n"
            )
            db.execute(
                f"INSERT INTO {store.address.schema}.delayed (seq, clock, due, attempt, fence, n) "
                f"SELECT n, n % 2, 9e15::bigint + n, 0, 0, 1 FROM generate_series(1, {MANY}) n"
            )
            db.execute(f"ANALYZE {store.address.schema}.delayed, {store.address.schema}.job")
        yield store


@pytest.fixture
def pages(store_with_many):
    def read(statement: str) -> int:
        with psycopg.connect(store_with_many.address.conninfo, autocommit=True) as db:
            [([plan],)] = db.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}").fetchall()
        return plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]

    return read


async def test_a_claim_under_a_limit_fetches_the_arguments_of_what_it_takes_alone(proxy, store):
    await configure(store, max_running=5)
    await store.insert([spec(args=LARGE) for _ in range(40)])
    async with PostgresStore(proxy.url, connections=1) as far:
        await far.count()
        before = proxy.carried
        [_] = (await far.exchange(Exchange(claim=Claim(worker="w1", limit=1, lease_for=MINUTE)))).leases
        assert proxy.carried - before < 3 * len(LARGE)


async def test_a_heartbeat_fetches_no_arguments(proxy, store):
    await store.insert([spec(args=LARGE) for _ in range(20)])
    leases = (await store.exchange(Exchange(claim=Claim(worker="w1", limit=20, lease_for=MINUTE)))).leases
    async with PostgresStore(proxy.url, connections=1) as far:
        await far.count()
        before = proxy.carried
        beats = [Beat(seq=lease.seq, fence=lease.fence, checkpoint=b"1") for lease in leases]
        assert all(answer.held for answer in await far.extend(beats))
        assert proxy.carried - before < len(LARGE)


async def test_a_large_claim_compares_each_job_once_even_with_outdated_statistics(store):
    """The planner treats a table that was empty at its last ANALYZE as if it had one row."""
    claim = Exchange(claim=Claim(worker="w1", limit=500, lease_for=MINUTE))
    await store.insert([spec() for _ in range(500)])
    await store.exchange(claim)
    with session.connect(store.address) as db:
        db.execute(f"VACUUM (ANALYZE, INDEX_CLEANUP ON, TRUNCATE OFF) {store.address.schema}.ready")
        await store.insert([spec() for _ in range(500)])
        plans = []
        db.add_notice_handler(lambda notice: plans.append(notice.message_primary))
        for setting in ("log_min_duration = 0", "log_analyze = on", "log_nested_statements = on", "log_level = notice"):
            db.execute("LOAD 'auto_explain'")
            db.execute(f"SET auto_explain.{setting}")
        taken = db.execute(
            store._opened._sql.call_exchange, plain_path.exchange_params(claim, None), binary=True
        ).fetchall()
    assert len(taken) == 501
    assert any("Delete on ready" in plan for plan in plans)
    removed = [int(n) for plan in plans for n in re.findall(r"Rows Removed by Join Filter: (\d+)", plan)]
    assert sum(removed) < 5_000


async def test_a_job_is_found_by_its_number_even_if_the_tables_were_empty_at_their_last_analyze(store):
    """Then several indexes look equally cheap. By some of them the server reads the whole index for each job."""
    name = store.address.schema
    with session.connect(store.address) as db:
        db.execute(f"ANALYZE {', '.join(f'{name}.{table}' for table in BY_SEQ)}")
        for setting in ("enable_seqscan = off", "jit = off", "plan_cache_mode = force_generic_plan"):
            db.execute(f"SET {setting}")
        for table in BY_SEQ:
            db.execute(f"PREPARE of_{table}(bigint) AS SELECT * FROM {name}.{table} WHERE seq = $1")
            assert f"{table}_pkey" in _plan(db, f"EXECUTE of_{table}(1)")
        db.execute(f"PREPARE load_jobs(bigint[]) AS {store._opened._sql.load_jobs.replace('%b', '$1')}")
        used = re.findall(r"Index Scan (?:using|on) (\w+)", _plan(db, "EXECUTE load_jobs('{1}')"))
    assert sorted(used) == sorted(f"{table}_pkey" for table in (*BY_SEQ, "ready", "result"))


def _plan(db, statement: str) -> str:
    return "\n".join(line for (line,) in db.execute(f"EXPLAIN {statement}"))


async def test_how_to_read_a_job_is_planned_once_not_for_every_read(url):
    """The server plans a statement again and again if it knows how long its arrays are: see load_jobs."""
    often = 20
    async with PostgresStore(url, connections=1) as store:
        for _ in range(often):
            await store.insert([flying()])
            assert await store.get(["nobody"]) == [None]
        if await store._opened.do(lambda engine: engine.connection.server_version) < 140_000:
            pytest.skip("this server does not count plans")
        plans = await store._opened.do(lambda engine: engine.connection.query(PLANS_MADE))
    for statement in ("AS asked(seq)", "SELECT j.id, j.seq FROM", "f.flight = ANY"):
        [made] = [made for text, made in plans if statement in text]
        assert made < often / 2, statement
