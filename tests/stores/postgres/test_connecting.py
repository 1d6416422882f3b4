"""A server that accepts connections and never answers: each attempt times out, and the timeout adapts to measured
times."""

from __future__ import annotations

import socket
import time
from datetime import timedelta

import psycopg
import pytest

from daybreak import Daybreak
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.policy.timeouts import FULL_TRUST_SAMPLES
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.address import parse_address
from daybreak.system.ports import RealWorld
from daybreak.testing.contract.builders import spec


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://ann@127.0.0.1:{server.getsockname()[1]}/jobs?connect_within=4s"


@pytest.fixture
def limits(monkeypatch):
    """The timeouts that connections were given; nobody waits for them."""
    given = []

    def late(**params):
        given.append(int(params["connect_timeout"]))
        raise psycopg.errors.ConnectionTimeout("connection timeout expired")

    monkeypatch.setattr(psycopg, "connect", late)
    return given


async def given_up_after(store):
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.open()
    return time.monotonic() - began


async def test_it_gives_up_after_what_was_seen(silent):
    limit = ConnectTimeout(RealWorld())
    for _ in range(FULL_TRUST_SAMPLES):
        limit.took(timedelta(seconds=4), 0.001)
    assert 2 <= await given_up_after(PostgresStore(silent, connect_limit=limit)) < 4
    assert limit._durations.late == 1


async def test_after_three_that_were_late_it_waits_longer(silent):
    base, limit = timedelta(seconds=2), ConnectTimeout(RealWorld())
    for _ in range(3):
        limit.took(base, 2, late=True)
    assert 3 <= await given_up_after(PostgresStore(silent, connect_within=base, connect_limit=limit)) < 5
    assert limit._durations.late == 4


async def test_a_store_without_more_keeps_to_what_its_url_says(silent, limits):
    store = PostgresStore(silent)
    for _ in range(4):
        await given_up_after(store)
    assert limits == [4, 4, 4, 4]


async def test_a_limit_of_libpq_is_kept_as_it_is_written(silent, limits):
    limit = ConnectTimeout(RealWorld())
    store = PostgresStore(f"{silent}&connect_timeout=7", connect_limit=limit)
    for _ in range(4):
        await given_up_after(store)
    assert limits == [7, 7, 7, 7]
    assert limit._durations.seen == 0


def test_the_store_of_an_app_has_longer_the_third_time(silent, limits):
    app = Daybreak(silent)
    for _ in range(4):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            app.stats()
    app.close()
    assert limits == [4, 4, 4, 6]


async def test_no_limit_is_shorter_than_libpq_can_keep(silent, limits):
    store = PostgresStore(silent, connect_within=timedelta(milliseconds=100))
    await given_up_after(store)
    assert limits == [2]


async def test_connections_of_every_kind_are_seen(url):
    limit = ConnectTimeout(RealWorld())
    async with PostgresStore(url, connect_limit=limit) as store:
        await store.count()  # on the connection that opened the store
        store.insert_now([spec()])
    assert limit._durations.seen >= 2
    assert limit._durations.late == 0


async def test_one_that_is_refused_counts_for_nothing():
    limit = ConnectTimeout(RealWorld())
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await PostgresStore("postgresql://ann@127.0.0.1:1/db", connect_limit=limit).open()
    assert limit._durations.seen == 0


async def test_one_of_several_hosts_that_is_silent_does_not_make_the_others_look_slow(silent, url, monkeypatch):
    limit = ConnectTimeout(RealWorld())
    address = parse_address(url, connect_limit=limit)
    clock = iter([0.0, 5.1])
    monkeypatch.setattr("daybreak.stores.postgres.session.monotonic", lambda: next(clock))
    from daybreak.stores.postgres.session import connect

    connect(address).close()
    assert limit._durations.seen == 0


def test_the_time_in_a_url_is_read_strictly():
    assert parse_address("postgresql://h/d").connect_within == timedelta(seconds=5)
    assert parse_address("postgresql://h/d?connect_within=3s").connect_within == timedelta(seconds=3)
    assert "connect_within" not in parse_address("postgresql://h/d?connect_within=3s").conninfo
    for wrong in ("soon", "0s"):
        with pytest.raises(BadInput, match="connect_within"):
            parse_address(f"postgresql://h/d?connect_within={wrong}")
