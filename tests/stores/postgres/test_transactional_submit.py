"""Submitting in someone else's transaction, on every library that is promised."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta
from secrets import token_hex
from urllib.parse import urlsplit

import psycopg
import pytest
from postgres_servers import URL

from daybreak.core.errors import BadInput
from daybreak.core.model import State
from daybreak.store.protocol import Claim, Exchange, work_topic
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.outbox import encode
from daybreak.testing.contract.builders import find_all, get_job, spec

MINUTE = timedelta(minutes=1)


async def claimed(store, **options):
    answer = await store.exchange(Exchange(claim=Claim(worker="w1", limit=9, **options)))
    return [lease.job for lease in answer.leases]


async def test_psycopg_commits_and_rolls_back(store):
    first, second = spec(priority=7), spec(priority=2)
    with psycopg.connect(URL) as db:
        assert store.insert_within(db, [first, second]) == [first.id, second.id]
        assert await claimed(store) == []
    with psycopg.connect(URL) as db:
        store.insert_within(db, [spec()])
        db.rollback()
    assert await claimed(store) == [second.id, first.id]


async def test_psycopg_async(store):
    job = spec()
    async with await psycopg.AsyncConnection.connect(URL) as db:
        await store.insert_within_async(db, [job])
    assert await claimed(store) == [job.id]


async def test_asyncpg(store):
    asyncpg = pytest.importorskip("asyncpg")
    job = spec()
    db = await asyncpg.connect(URL)
    try:
        async with db.transaction():
            await store.insert_within_async(db, [job])
            assert await claimed(store) == []
    finally:
        await db.close()
    async with asyncpg.create_pool(URL, min_size=1, max_size=1) as pool, pool.acquire() as db, db.transaction():
        await store.insert_within_async(db, [spec()])
    assert len(await claimed(store)) == 2


async def test_sqlalchemy_sessions_and_connections(store):
    sa = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    engine = sa.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
    jobs = [spec() for _ in range(3)]
    with Session(engine) as session:
        store.insert_within(session, jobs[:1])
        session.commit()
        store.insert_within(session, [spec()])
        session.rollback()
    with engine.begin() as db:
        store.insert_within(db, jobs[1:])
    engine.dispose()
    assert await claimed(store) == [job.id for job in jobs]


async def test_sqlalchemy_async(store):
    pytest.importorskip("greenlet")
    aio = pytest.importorskip("sqlalchemy.ext.asyncio")
    jobs = [spec() for _ in range(2)]
    engine = aio.create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://"))
    async with aio.AsyncSession(engine) as session:
        await store.insert_within_async(session, jobs[:1])
        await session.commit()
    async with engine.begin() as db:
        await store.insert_within_async(db, jobs[1:])
    await engine.dispose()
    assert await claimed(store) == [job.id for job in jobs]


async def test_django(store):
    django = pytest.importorskip("django")
    from django.conf import settings

    parts = urlsplit(URL)
    if not settings.configured:
        settings.configure(DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
            "HOST": parts.hostname, "PORT": parts.port or 5432,
        }})  # fmt: skip
        django.setup()
    job = spec()

    def submit():
        from django.db import connection, transaction

        with transaction.atomic():
            store.insert_within(connection, [job])
        connection.close()

    await asyncio.to_thread(submit)
    assert await claimed(store) == [job.id]


async def test_keys_names_and_delays_apply_after_the_commit(store):
    with psycopg.connect(URL) as db:
        store.insert_within(db, [
            spec(key="k"), spec(key="k"), spec(unique="u"), spec(unique="u", on_conflict="refuse"), spec(delay=MINUTE),
        ])  # fmt: skip
    await store.advance()
    found = [await get_job(store, job) for job in await find_all(store)]
    assert sorted(job.state for job in found) == [State.QUEUED, State.QUEUED, State.SCHEDULED]


async def test_a_long_transaction_blocks_nobody(store):
    with psycopg.connect(URL) as db:
        store.insert_within(db, [spec(key="k", unique="u")])
        job = spec(key="k", unique="u")
        await asyncio.wait_for(store.insert([job]), 5)
        assert await asyncio.wait_for(claimed(store), 5) == [job.id]
    await store.advance()
    assert await find_all(store) == [job.id]


async def test_the_commit_wakes_those_who_wait(store, url):
    watch = store.watch([work_topic("default")])
    while await watch.wait(timedelta(seconds=0.3)):
        pass
    with psycopg.connect(URL) as db:
        store.insert_within(db, [spec()])
        assert not await watch.wait(timedelta(seconds=0.1))
    assert await watch.wait(timedelta(seconds=1.5))
    watch.close()


async def test_what_cannot_be_stored_is_refused_at_once(store):
    with psycopg.connect(URL) as db:
        for bad in (
            spec(key="a\0b"), spec(id="a\x1fb"), spec(owner="\udce9"), spec(key="k" * 4000),
            spec(run_at=datetime(2030, 1, 1)),  # noqa: DTZ001 - that is the point
        ):  # fmt: skip
            with pytest.raises(BadInput):
                store.insert_within(db, [bad])
        with pytest.raises(BadInput, match="not a supported connection"):
            store.insert_within(object(), [spec()])


async def test_threads_that_wait_share_their_commits(store):
    jobs = [spec() for _ in range(200)]

    def submit(part):
        for job in part:
            assert store.insert_now([job])[0].job == job.id

    threads = [threading.Thread(target=submit, args=(jobs[n::8],)) for n in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert sorted(await find_all(store)) == sorted(job.id for job in jobs)


async def test_one_bad_submission_sinks_no_other_that_shares_its_commit(store):
    answers = {}

    def submit(name, job):
        try:
            answers[name] = store.insert_now([job])[0].verdict
        except Exception as error:  # noqa: BLE001 - whichever it is
            answers[name] = type(error)

    jobs = {n: spec(owner="a\0b") if n == 3 else spec() for n in range(8)}
    threads = [threading.Thread(target=submit, args=item) for item in jobs.items()]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert answers.pop(3) is BadInput
    assert set(answers.values()) == {"new"}


async def test_a_watch_is_woken_by_a_commit_of_another_store(store, url):
    async with PostgresStore(url) as other:
        for _ in range(3):
            watch = store.watch([work_topic("default")])
            while await watch.wait(timedelta(seconds=0.2)):
                pass
            await other.insert([spec()])
            assert await watch.wait(timedelta(seconds=1.5))
            watch.close()


async def test_one_that_cannot_be_accepted_is_set_aside_and_reported_by_doctor(store):
    """A newer or a broken program might leave such a row: jobs after it must not wait for it."""
    good = spec()
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        for packed in (b"no job at all", encode(spec(key="k" * 3000 + token_hex(2000))), encode(good)):
            db.execute(f"INSERT INTO {store.address.schema}.incoming (spec) VALUES (%s)", (packed,))
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w1", limit=9, lease_for=MINUTE)))).leases
    assert lease.job == good.id
    [found] = [finding for finding in await store.examine() if "could not be accepted" in finding.what]
    assert found.what.startswith("2 jobs")
    assert not found.is_well
