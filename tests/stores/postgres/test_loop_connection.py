"""Exchanges sent from the event loop itself: the same answers, and the same errors when an answer is lost."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import pytest
from postgres_servers import URL, with_schema

from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import EVENTS_TOPIC, Claim, Exchange, OwnLoop
from daybreak.stores.postgres import PostgresStore
from daybreak.testing.contract import builders
from daybreak.testing.contract.builders import LEASE


def claim(**options):
    return Claim(worker="w1", lease_for=LEASE, **{"limit": 1, **options})


def completed(lease):
    return settle(lease, Done(), chance=0.5, by=lease.worker)


async def accept(store):
    """Without a time: only calls that use the server's clock are sent from the loop."""
    return await builders.accept(store, now=None)


@pytest.fixture
async def store(fresh_schema):
    async with PostgresStore(with_schema(URL, fresh_schema)) as store:
        store.own_loop()
        await ready(store)
        yield store


async def ready(store):
    """The first call opens the connection in a thread; wait for it."""
    on_loop = store._opened._on_loop
    while on_loop.get_free() is None:
        if on_loop._adding is not None:
            await asyncio.wait([on_loop._adding])


def connection_of(store):
    return store._opened._on_loop.get_free()


def terminate(pid):
    with psycopg.connect(URL, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


async def test_the_store_implements_own_loop(store):
    assert isinstance(store, OwnLoop)


async def test_what_is_exchanged_on_the_loop_is_what_the_threads_would_answer(store):
    jobs = [await accept(store) for _ in range(3)]
    taken = (await store.exchange(Exchange(claim=claim(limit=2)))).leases
    assert [lease.spec.id for lease in taken] == jobs[:2]
    answer = await store.exchange(Exchange(settle=[completed(lease) for lease in taken], claim=claim(limit=9)))
    assert answer.settled == [True, True]
    assert [lease.spec.id for lease in answer.leases] == jobs[2:]
    assert [event.kind for event in await store.history(jobs[0])] == ["submitted", "started", "completed"]
    assert [event.kind for event in await store.history(jobs[2])] == ["submitted", "started"]


async def test_two_at_once_are_both_answered(store):
    jobs = {await accept(store) for _ in range(8)}
    answers = await asyncio.gather(*(store.exchange(Exchange(claim=claim(limit=2))) for _ in range(4)))
    assert {lease.spec.id for answer in answers for lease in answer.leases} == jobs


async def test_a_cancelled_call_is_completed_all_the_same(store):
    job = await accept(store)
    connection = connection_of(store)
    asking = asyncio.create_task(store.exchange(Exchange(claim=claim(call="first"))))
    await asyncio.sleep(0)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    while not connection.is_free:  # noqa: ASYNC110 - else the repetition, on a thread's connection, may overtake it
        await asyncio.sleep(0)
    found = await store.exchange(Exchange(claim=claim(call="first", repeats=True)))
    assert [lease.spec.id for lease in found.leases] in ([job], [])
    other = await accept(store)
    while not (leases := (await store.exchange(Exchange(claim=claim(limit=9, call="second")))).leases):
        pass
    assert other in [lease.spec.id for lease in leases]


@pytest.fixture
def notified(store, monkeypatch):
    """The topics of which others were notified."""
    notified = []
    monkeypatch.setattr(store._opened, "on_commit", lambda topics, *_, **__: notified.append(topics))
    return notified


async def test_others_are_notified_of_a_cancelled_exchange(store, notified):
    await accept(store)
    notified.clear()
    connection = connection_of(store)
    asking = asyncio.create_task(store.exchange(Exchange(claim=claim())))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    while not connection.is_free:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert notified == [{EVENTS_TOPIC}]


async def test_the_caller_resumes_before_others_are_notified(store, notified):
    job = await accept(store)
    notified.clear()
    assert [lease.spec.id for lease in (await store.exchange(Exchange(claim=claim()))).leases] == [job]
    assert notified == []
    await asyncio.sleep(0)
    assert notified == [{EVENTS_TOPIC}]


async def test_a_lost_connection_is_replaced(store):
    job = await accept(store)
    connection = connection_of(store)
    terminate(connection._pg.backend_pid)
    with contextlib.suppress(OutcomeUnknown, StoreUnavailable):  # a call before the loss is noticed fails
        await store.exchange(Exchange(claim=claim(limit=9, call="cut")))
    while not connection.is_lost:  # noqa: ASYNC110 - the loop itself notices
        await asyncio.sleep(0)
    found = await store.exchange(Exchange(claim=claim(limit=9, call="cut", repeats=True)))
    assert [lease.spec.id for lease in found.leases] == [job]
    assert (await store.exchange(Exchange(settle=[completed(found.leases[0])]))).settled == [True]


async def test_a_lost_answer_raises_outcome_unknown(store):
    await accept(store)  # else the exchange would have nothing to lock and would not wait
    connection = connection_of(store)
    with psycopg.connect(URL) as db:
        db.execute(f"LOCK TABLE {store.address.schema}.ready IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(store.exchange(Exchange(claim=claim())))
        await asyncio.sleep(0)
        terminate(connection._pg.backend_pid)
        with pytest.raises(OutcomeUnknown, match="retry, which is safe"):
            await asking


async def test_closing_answers_pending_calls(fresh_schema):
    store = await PostgresStore(with_schema(URL, fresh_schema)).open()
    store.own_loop()
    await ready(store)
    await accept(store)
    asking = asyncio.create_task(store.exchange(Exchange(claim=claim())))
    await asyncio.sleep(0)
    await store.close()
    assert len((await asking).leases) == 1


async def test_with_one_connection_all_is_left_to_the_threads(fresh_schema):
    async with PostgresStore(with_schema(URL, fresh_schema), connections=1) as store:
        store.own_loop()
        job = await accept(store)
        assert [lease.spec.id for lease in (await store.exchange(Exchange(claim=claim()))).leases] == [job]


async def test_an_exchange_from_another_loop_is_left_to_the_threads(store):
    job = await accept(store)
    exchange = store.exchange(Exchange(claim=claim()))
    found = await asyncio.to_thread(asyncio.run, exchange)
    assert [lease.spec.id for lease in found.leases] == [job]


def test_a_loop_that_is_silent_about_broken_sockets_is_left_alone(fresh_schema):
    uvloop = pytest.importorskip("uvloop")

    async def day():
        async with PostgresStore(with_schema(URL, fresh_schema)) as store:
            store.own_loop()
            assert store._opened._on_loop is None
            job = await accept(store)
            assert [lease.spec.id for lease in (await store.exchange(Exchange(claim=claim()))).leases] == [job]

    uvloop.run(day())


async def test_a_pending_call_is_answered_when_another_loop_closes_the_store(store):
    await accept(store)
    with psycopg.connect(URL) as db:
        db.execute(f"LOCK TABLE {store.address.schema}.ready IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(store.exchange(Exchange(claim=claim())))
        await asyncio.sleep(0)
        await asyncio.to_thread(asyncio.run, store.close())
        with pytest.raises(OutcomeUnknown, match="closed"):
            await asking
