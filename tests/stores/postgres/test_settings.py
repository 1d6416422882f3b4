"""Databases with unusual settings: isolation levels, encodings, temporarily read-only, restored from another server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from postgres_servers import URL, need_server, with_schema

from daybreak.core.errors import BadInput, OutcomeUnknown, StoreReadOnly
from daybreak.core.model import Done, Failed, Failure, Retry, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import LATEST, Claim, Exchange
from daybreak.stores.postgres import PostgresStore, connection, loop_connection, session
from daybreak.stores.postgres.clock import SERVER_TIME
from daybreak.stores.postgres.prepared_calls import prepare_call
from daybreak.stores.postgres.statements import named, quoted
from daybreak.testing.contract.builders import (
    LEASE,
    accept,
    claim_ids,
    claim_one,
    configure,
    follow,
    get_job,
    jobs_of,
    needs,
    provide,
    settle,
    spec,
    used,
)

JAPANESE = "日本語 🙂"


@contextlib.contextmanager
def database(options: str = ""):
    """The URL of a temporary database."""
    need_server()
    name = f"daybreak_test_{os.getpid()}"
    with psycopg.connect(URL, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
        try:
            yield urlsplit(URL)._replace(path=f"/{name}").geturl()
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def sql(url, statement):
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute(statement)
        return found.fetchall() if found.description else []


def alter(url, setting):
    """Change a setting for sessions that begin from now on."""
    sql(URL, f"ALTER DATABASE {urlsplit(url).path[1:]} {setting}")


# -- isolation ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["repeatable read", "serializable"])
def leveled(request):
    with database() as url:
        alter(url, f"SET default_transaction_isolation = '{request.param}'")
        yield url


@pytest.fixture(params=[False, True])
def pooled(request, monkeypatch):
    """Whether a pooler in transaction mode is simulated."""

    def identify_server(db, also=()):
        statement = f"SELECT current_setting('default_transaction_isolation'), ({SERVER_TIME})"
        [(level, time)], *answers = session.query_together(db, [statement, *also])
        return session.ServerInfo(False, level == "read committed", time), answers

    if request.param:
        monkeypatch.setattr(connection, "identify_server", identify_server)
    return request.param


async def test_programs_that_start_at_once_create_one_schema_at_any_level(leveled):
    stores = [PostgresStore(leveled) for _ in range(6)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(accept(store) for store in stores))
    finally:
        for store in stores:
            await store.close()


async def work(store, worker):
    """Claim and settle 10 times; returns the highest number of running jobs seen."""
    ended, most = [], 0
    for n in range(11):
        claim = Claim(worker=worker, queues=("shared",), limit=2 if n < 10 else 0, lease_for=LEASE)
        leases = (await store.exchange(Exchange(settle=ended, claim=claim))).leases
        most = max(most, await used(store, "plecs"))
        ended = [settlement_of(lease, Done(), chance=0.5, by=worker) for lease in leases]
    return most


async def test_limits_hold_at_any_level(leveled, pooled):
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresStore(leveled)) for _ in range(6)]
        await configure(stores[0], capacity=20)
        await configure(stores[0], "few", max_running=3)
        answers = await asyncio.gather(*(store.insert([spec()]) for store in stores for _ in range(8)))
        assert Counter(answer.verdict for [answer] in answers) == {"new": 20, "full": 28}
        await stores[0].insert([spec(queue="few") for _ in range(30)])
        claims = [Exchange(claim=Claim(worker=f"w{n}", queues=("few",), limit=2, lease_for=LEASE)) for n in range(18)]
        taken = await asyncio.gather(*(stores[n % 6].exchange(claim) for n, claim in enumerate(claims)))
        assert sum(len(answer.leases) for answer in taken) == 3
        await provide(stores[0], "plecs", slots=3)
        await stores[0].insert([spec(queue="shared", resources=needs("plecs")) for _ in range(60)])
        most = await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
        assert max(most) <= 3
        assert await used(stores[0], "plecs") == 0
        found = [finding for finding in await stores[0].examine() if "three" in finding.what]
        assert [finding.is_well for finding in found] == ([False] if pooled else [])


async def test_a_single_statement_is_read_committed_too(leveled, pooled):
    level = "SELECT current_setting('transaction_isolation')"

    def isolation_levels(engine):
        return [*engine.connection.query(level), *engine.connection.call(prepare_call("level", level), ())]

    async with PostgresStore(leveled) as store:
        assert await store._opened.do(isolation_levels) == [("read committed",)] * 2


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["SQL_ASCII", "LATIN1", "client"])
def encoded(request):
    """A database with another encoding, or whose URL asks for another client encoding."""
    if request.param == "client":
        with database() as url:
            yield f"{url}{'&' if '?' in url else '?'}client_encoding=LATIN1"
    else:
        with database(f"ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'") as url:
            yield url


async def test_what_broke_a_job_may_hold_any_character_whatever_the_encoding(encoded):
    async with PostgresStore(encoded) as store:
        await accept(store, retry=Retry(attempts=1))
        broken = await claim_one(store)
        failure = Failure(message=JAPANESE, kinds=(f"Error{JAPANESE}",), traceback=JAPANESE)
        assert await settle(store, broken, Failed(failure))
        job = await get_job(store, broken.job)
        assert (job.state, job.failure.message) == (State.FAILED, JAPANESE)
        assert JAPANESE in (await store.history(broken.job))[-1].error
        assert JAPANESE in (await follow(store))[0][-1].error


async def test_a_name_that_a_database_cannot_keep_is_refused_alone(encoded):
    async with PostgresStore(encoded) as store:
        for odd in ({"id": JAPANESE}, {"queue": JAPANESE}, {"key": JAPANESE}, {"resources": needs(JAPANESE)}):
            with contextlib.suppress(BadInput):
                await store.insert([spec(**odd)])
        with psycopg.connect(encoded.partition("?")[0], autocommit=True) as db:
            store.insert_within(db, [spec(id=JAPANESE + "2"), spec(id="last")])
        assert "last" in {job.id for job in await jobs_of(store)}
        plain = await accept(store, task="plain")
        assert await claim_ids(store, 9, tasks=frozenset({("plain", 1)})) == [plain]
        [(is_latin,)] = sql(encoded, "SELECT current_setting('server_encoding') = 'LATIN1'")
        assert is_latin == any("ENCODING 'UTF8'" in finding.cure for finding in await store.examine())


async def test_a_utf8_database_keeps_every_name_whatever_the_url_says_of_encodings():
    with database() as url:
        async with PostgresStore(f"{url}{'&' if '?' in url else '?'}client_encoding=SQL_ASCII") as store:
            await provide(store, JAPANESE, slots=1)
            job = await accept(store, JAPANESE, id=JAPANESE, queue=JAPANESE, resources=needs(JAPANESE))
            lease = await claim_one(store, queues=(JAPANESE,))
            assert (lease.job, lease.spec.task) == (job, JAPANESE)


# -- read-only for a while ---------------------------------------------------------------------------------------------


def began_at():
    return sql(URL, "SELECT clock_timestamp()")[0][0]


@contextlib.contextmanager
def read_only(url):
    """Make all new sessions read-only, and end the existing ones."""
    alter(url, "SET default_transaction_read_only = on")
    before = f"FROM pg_stat_activity WHERE datname = '{urlsplit(url).path[1:]}' AND backend_start <= '{began_at()}'"
    while sql(URL, f"SELECT pg_terminate_backend(pid) {before}"):
        pass
    yield
    alter(url, "RESET default_transaction_read_only")


async def test_a_session_that_began_read_only_is_not_kept():
    with database() as url:
        async with PostgresStore(url, connections=1) as store:
            await accept(store)
            store.insert_now([spec()])
            with read_only(url):
                assert len(await jobs_of(store)) == 2
                with contextlib.suppress(
                    OutcomeUnknown, StoreReadOnly
                ):  # it may not have noticed yet that its connection was closed
                    store.insert_now([spec()])
                with pytest.raises(StoreReadOnly):
                    await store.insert([spec()])
                with pytest.raises(StoreReadOnly):
                    store.insert_now([spec()])
            await accept(store)
            assert store.insert_now([spec()])


async def test_a_session_on_the_loop_that_began_read_only_is_not_kept(monkeypatch):
    monkeypatch.setattr(loop_connection.Backoff, "pause", lambda *_: 0.0)
    claim = Exchange(claim=Claim(worker="w", limit=1, lease_for=LEASE))
    with database() as url:
        async with PostgresStore(url, connections=2) as store:
            store.own_loop()
            await store.insert([spec() for _ in range(9)])
            before = store._opened._on_loop._connections
            with read_only(url):
                async with asyncio.timeout(20):
                    while not any(
                        connection.is_free and connection not in before
                        for connection in store._opened._on_loop._connections
                    ):
                        with pytest.raises((StoreReadOnly, OutcomeUnknown)):
                            await store.exchange(claim)
            with pytest.raises(StoreReadOnly):
                await store.exchange(claim)
            for _ in range(3):
                assert len((await store.exchange(claim)).leases) == 1


# -- restored from another server --------------------------------------------------------------------------------------


async def test_a_feed_from_an_older_server_becomes_our_own():
    with database() as url:
        async with PostgresStore(url) as store:
            before = [await accept(store) for _ in range(3)]
            # As after a dump there and a restore here.
            sql(url, "UPDATE daybreak.feed SET xid = (1000000000 + pos)::text::xid8")
            sql(url, "INSERT INTO daybreak.meta VALUES ('purged_xid', '1000000000'), ('purged_pos', '0')")
            assert any("another server" in finding.what for finding in await store.examine())
        async with PostgresStore(url) as store:
            assert all(finding.is_well or "another server" not in finding.what for finding in await store.examine())
            now = (await store.events(LATEST)).cursor
            after = await accept(store)
            assert [event.job for event in (await store.events(now)).events] == [after]
            assert [event.job for event in (await follow(store, limit=2))[0]] == [*before, after]
        async with PostgresStore(url) as store:  # and once is enough
            assert [event.job for event in (await store.events(now)).events] == [after]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["user", "order", "50%b", "%s", "a{b}", "a:b", "$body$", "$1", "back\\slash", "a?b"])
async def test_any_name_will_do_for_a_schema(name):
    need_server()
    schema = name if name in ("user", "order") else f"{name}{os.getpid()}"
    try:
        async with PostgresStore(with_schema(URL, quote(schema, safe=""))) as store:
            await provide(store, "plecs", slots=1)
            job = await accept(store, resources=needs("plecs"))
            assert await claim_ids(store, 9) == [job]
            with psycopg.connect(URL) as db:
                [within] = store.insert_within(db, [spec()])
            assert within in {job.id for job in await jobs_of(store)}
            assert await store.examine()
        async with PostgresStore(URL, schema=schema) as store:
            assert len(await jobs_of(store)) == 2
    finally:
        sql(URL, f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")


def test_locks_are_spelt_as_they_always_were():
    """SQL functions of older schemas contain the same spelling."""
    lock = "hashtext('daybreak.gauge')"
    assert named(lock, "daybreak") == lock
    assert named(lock, "night") == "hashtext('night.gauge')"
    assert named(lock, 'Big"') == 'hashtext(\'"Big""".gauge\')'
    assert named(lock, "it's") == "hashtext('\"it''s\".gauge')"
