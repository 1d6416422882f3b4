"""How often a store waits for its server until it is of use: round trips are counted, never timed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from postgres_proxy import Proxy
from postgres_servers import URL, need_server, with_schema

from daybreak.store.protocol import Claim, Exchange, Verdict, work_topic
from daybreak.stores.postgres import PostgresStore
from daybreak.testing.contract.builders import spec

MOST = 10
A_CLAIM = Exchange(claim=Claim(worker="w1", limit=2, lease_for=timedelta(minutes=1)))


@pytest.fixture
def connecting():
    """How many round trips libpq itself needs to connect: TCP, encryption, startup and password."""
    need_server()
    with Proxy.to(URL) as proxy:
        psycopg.connect(proxy.url).close()
        return proxy.round_trips[0]


async def test_a_store_is_open_one_round_trip_after_it_is_connected(proxy, store, connecting):
    async with PostgresStore(proxy.url):
        assert proxy.round_trips == [connecting + 1]


async def test_the_first_submit_and_the_first_claim_take_one_more_each(proxy, store, connecting):
    await store.insert([spec()])  # so that the lane exists
    async with PostgresStore(proxy.url) as far:
        await far.insert([spec()])
        assert proxy.round_trips[0] == connecting + 2
        assert len((await far.exchange(A_CLAIM)).leases) == 2
        assert proxy.round_trips[0] == connecting + 3
        await far.insert([spec()])
        assert proxy.round_trips[0] == connecting + 4
    assert len(proxy.round_trips) == 2, "one for its calls, one for notices"


async def test_opening_and_the_first_submit_stay_below_the_limit_with_everything_beside_them(proxy, store, connecting):
    await store.insert([spec()])
    async with PostgresStore(proxy.url) as far:
        far.insert_now([spec()])
        async with asyncio.timeout(60):
            while len(proxy.round_trips) < 2 or far._opened.wake._changed:  # noqa: ASYNC110 - the notice is not sent yet
                await asyncio.sleep(0.01)
    assert sum(proxy.round_trips) <= MOST + 2 * (connecting - 3)  # 3: with neither encryption nor a password


async def test_a_blocking_submit_takes_the_connection_that_opened_the_store(proxy, store, connecting):
    await store.insert([spec()])
    async with PostgresStore(proxy.url) as far:
        far.insert_now([spec()])
        assert proxy.round_trips[0] == connecting + 2


async def test_the_first_submit_to_a_new_queue_takes_one_more_for_its_lane(proxy, store, connecting):
    async with PostgresStore(proxy.url) as far:
        await far.insert([spec(queue="new", task=task) for task in ("a", "b")])
        assert proxy.round_trips[0] == connecting + 3


async def test_waiting_for_work_begins_within_three_round_trips(proxy, store, connecting):
    async with PostgresStore(proxy.url) as far:
        watch = far.watch([work_topic("default")])
        async with asyncio.timeout(60):
            while not far._opened.wake._registered:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert proxy.round_trips[1] <= connecting + 3
        watch.close()


async def test_a_new_schema_is_created_within_the_limit(fresh_schema, connecting):
    need_server()
    with Proxy.to(with_schema(URL, fresh_schema)) as proxy:
        async with PostgresStore(proxy.url) as far:
            assert sum(proxy.round_trips) <= MOST + connecting - 3
            assert (await far.insert([spec()]))[0].verdict is Verdict.NEW


async def test_another_connection_reads_the_clock_while_it_connects(proxy, store, connecting, monkeypatch):
    await store.insert([spec()])
    async with PostgresStore(proxy.url) as far:
        monkeypatch.setattr(far._opened.wake, "notify", lambda *_, **__: None)  # on a third connection
        await far.insert([spec()])
        far._opened.clock._read_at = None  # as if it had been read long ago
        far.insert_now([spec()])
        assert proxy.round_trips == [connecting + 2, connecting + 2]


async def test_a_lane_that_another_process_is_adding_is_waited_for(store):
    schema = store.address.schema
    with psycopg.connect(store.address.conninfo) as db:
        db.execute(f"INSERT INTO {schema}.lane (queue, task, version) VALUES ('both', 'work', 1)")
        inserting = asyncio.create_task(store.insert([spec(queue="both")]))
        async with asyncio.timeout(60):
            while not is_waiting_for_a_lane(store):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
    assert (await inserting)[0].verdict is Verdict.NEW
    with psycopg.connect(store.address.conninfo) as db:
        assert db.execute(f"SELECT count(*) FROM {schema}.lane WHERE queue = 'both'").fetchall() == [(1,)]


def is_waiting_for_a_lane(store) -> bool:
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        return bool(db.execute(waiting, (f"%{store.address.schema}%lane%",)).fetchall())
