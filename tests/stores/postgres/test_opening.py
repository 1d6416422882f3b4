"""Opening a store: two at once, roles without permissions, and errors that say what to do."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import psycopg
import pytest
from postgres_servers import URL, with_schema

from daybreak.core.errors import BadInput, StoreUnavailable, StoreUnsuitable
from daybreak.store.protocol import Examines, InsertsNow, Verdict
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.address import parse_address
from daybreak.stores.postgres.faults import without_password
from daybreak.testing.contract.builders import accept, claim_ids, spec


def sql(statement, *params):
    with psycopg.connect(URL, autocommit=True) as db:
        db.execute(statement, params or None)


async def test_two_programs_that_start_at_once_create_one_schema(fresh_schema):
    stores = [PostgresStore(with_schema(URL, fresh_schema)) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(accept(store) for store in stores))
    assert sum(tally.n for tally in await stores[0].count()) == 6
    for store in stores:
        await store.close()
        await store.close()


async def test_the_name_of_the_schema_may_be_anything():
    odd = f"Wei\"rd na'me {os.getpid()}"
    try:
        async with PostgresStore(URL, schema=odd) as store:
            job = await accept(store)
            assert await claim_ids(store) == [job]
            assert [event.kind for event in (await store.events()).events] == ["submitted", "started"]
    finally:
        quoted = odd.replace('"', '""')
        sql(f'DROP SCHEMA IF EXISTS "{quoted}" CASCADE')


async def test_what_was_prepared_and_dropped_is_prepared_again(fresh_schema):
    """The driver drops its prepared statements after a rollback."""
    async with PostgresStore(with_schema(URL, fresh_schema), connections=1) as store:
        first = await accept(store)
        await store._opened.do(lambda engine: engine.connection._db.execute("DEALLOCATE ALL"))
        second = await accept(store)
        assert await claim_ids(store, 9) == [first, second]


async def test_a_role_that_may_not_create_can_use_what_is_there(fresh_schema):
    role = f"user_{fresh_schema}"
    url = with_schema(URL.replace("postgres@", f"{role}@"), fresh_schema)
    sql(f"CREATE ROLE {role} LOGIN")
    try:
        sql(f"REVOKE CREATE ON DATABASE test FROM {role}")
        with pytest.raises(StoreUnsuitable, match="may not create the schema"):
            await PostgresStore(url).open()
        async with PostgresStore(with_schema(URL, fresh_schema)) as owner:
            await accept(owner)
        for what in ("ALL TABLES", "ALL SEQUENCES", "ALL FUNCTIONS"):
            sql(f"GRANT ALL ON {what} IN SCHEMA {fresh_schema} TO {role}")
        sql(f"GRANT USAGE ON SCHEMA {fresh_schema} TO {role}")
        async with PostgresStore(url) as store:
            await accept(store)
            assert len(await claim_ids(store, 9)) == 2
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


async def test_a_schema_of_another_program_is_left_alone(fresh_schema):
    sql(f"CREATE SCHEMA {fresh_schema}")
    sql(f"CREATE TABLE {fresh_schema}.meta (name text, value text)")
    with pytest.raises(StoreUnsuitable, match="another program"):
        await PostgresStore(with_schema(URL, fresh_schema)).open()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://ann:s3cret@127.0.0.1:1/db", "cannot be reached"),
        ("postgresql://postgres:s3cret@127.0.0.1:5432/no_such_database", "does not exist"),
        ("postgresql://postgres:s3cret@127.0.0.1:5432/test?nonsense=1", "cannot be understood"),
    ],
)
async def test_errors_say_what_to_do_and_never_show_the_password(url, message):
    with pytest.raises((StoreUnavailable, StoreUnsuitable), match=message) as raised:
        await PostgresStore(url).open()
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(raised.value.__cause__)
    assert "s3cret" not in repr(PostgresStore(url).address)


def test_a_url_is_read_strictly():
    address = parse_address("postgresql://ann:pw@db/jobs?schema=night&connections=2&sslmode=require&answer_within=5s")
    assert (address.schema, address.connections, address.answer_within.total_seconds()) == ("night", 2, 5)
    assert address.conninfo == "postgresql://ann:pw@db/jobs?sslmode=require"
    assert address.name == "postgresql://db/jobs?schema=night"
    for wrong in ("mysql://x", "postgresql://x/y?connections=many", "postgresql://x/y?connections=0"):
        with pytest.raises(BadInput):
            parse_address(wrong)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://boss:100%sure@db/jobs",
        "postgresql://boss:p@ssw0rd@db/jobs",
        "postgresql://boss:12/34@db/jobs",
        "postgresql://boss:12?34@db/jobs",
        "postgresql://boss:12?34=56@db/jobs",
        "postgresql://boss:12#34@db/jobs",
        "postgresql://boss:12[34@db/jobs",
        "postgresql://boss:12%0034@db/jobs",
    ],
)
def test_a_password_that_was_not_encoded_is_refused_and_not_repeated(url):
    with pytest.raises(BadInput, match=r"percent-encode @ and % in the password \(%40, %25\)") as refused:
        PostgresStore(url)
    for piece in ("100", "sure", "ssw0rd", "12", "34"):
        assert piece not in str(refused.value)


def test_what_has_no_scheme_is_not_repeated():
    with pytest.raises(BadInput, match="is not a PostgreSQL URL") as refused:
        parse_address("//boss:hunter2@db/jobs")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://boss:p%40ss%25@db/jobs", "p@ss%"),
        ("postgresql:///jobs?host=db&user=boss&password=p@ss+100%25", "p@ss+100%"),
    ],
)
def test_a_password_reaches_libpq_as_it_was_meant(url, password):
    given = psycopg.conninfo.conninfo_to_dict(parse_address(url).conninfo)
    assert (given["user"], given["password"], given["host"], given["dbname"]) == ("boss", password, "db", "jobs")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('invalid percent-encoded token: "100%sure"', 'invalid percent-encoded token: "***"'),
        ('forbidden value %00 in percent-encoded value: "a"b%00"', 'in percent-encoded value: "***"'),
        ("failed to resolve host 'ssw0rd@127.0.0.1': no", "failed to resolve host '***@127.0.0.1': no"),
        ('could not translate host name "ssw0rd@db" to address', 'host name "***@db" to address'),
        ("postgresql://boss:p@ssw0rd@db/jobs", "postgresql://boss:***@db/jobs"),
        ("password=s3cret host=db", "password=*** host=db"),
    ],
)
def test_messages_of_the_driver_are_shown_without_a_password(message, shown):
    assert without_password(message).endswith(shown)


async def test_a_store_that_is_not_open_says_so(url):
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.count()
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.count()


async def test_a_forked_child_leaves_the_connections_of_its_parent_alone(store):
    await accept(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.watch(["events"])
        except StoreUnavailable as error:
            code = 0 if "before a fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 - it ends at once
    assert (await store.insert([spec()]))[0].verdict is Verdict.NEW
    assert store.insert_now([spec()])[0].verdict is Verdict.NEW


async def test_the_server_is_examined(store, url):
    assert isinstance(store, Examines)
    assert isinstance(store, InsertsNow)
    findings = await store.examine()
    assert all(finding.is_well or finding.cure for finding in findings)
    text = " ".join(finding.what for finding in findings)
    for word in ("PostgreSQL 1", "synced to disk", "snapshot", "connections are in use", "NOTIFY", "clock"):
        assert word in text


async def test_an_old_snapshot_is_named_with_its_program(store, monkeypatch):
    monkeypatch.setattr("daybreak.stores.postgres.examine.MAX_SNAPSHOT_AGE", 0)
    with psycopg.connect(URL, application_name="a dump") as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT count(*) FROM pg_class")
        pid = str(db.info.backend_pid)
        named: list[str] = []
        async with asyncio.timeout(60):
            while not named:  # the five oldest are named: once those of others have ended, it is one of them
                findings = [f"{found.what} {found.cure}" for found in await store.examine() if not found.is_well]
                named = [what for what in findings if pid in what]
    assert "a dump" in named[0]


async def test_a_lane_of_a_transaction_that_failed_is_not_remembered(store):
    def fail(tx):
        tx.lane(("nowhere", "work", 1))
        raise BadInput("no")

    with pytest.raises(BadInput):
        await store._write(fail, None)
    job = await accept(store, queue="nowhere", delay=timedelta(0))
    assert await claim_ids(store, queues=("nowhere",)) == [job]
