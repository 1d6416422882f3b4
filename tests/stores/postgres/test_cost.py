"""The cost of statements, in pages read by the server and bytes on the wire, never in time."""

from __future__ import annotations

import re
from datetime import timedelta

import psycopg
import pytest

from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.stores.postgres import PostgresStore, plain_path, session
from daybreak.testing.contract.builders import configure, spec

LARGE = b'{"a":"' + b"x" * 100_000 + b'"}'
MINUTE = timedelta(minutes=1)
MANY = 20_000


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
