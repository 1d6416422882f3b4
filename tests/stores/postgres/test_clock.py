"""The server's clock is another machine's: it may jump, and no lease or delay may be affected."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from postgres_servers import URL, served_clock

from daybreak.store.protocol import Claim, Exchange, Reap
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.statements import quoted
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import configure, get_job, spec

HOUR = timedelta(hours=1)
SECOND = 1_000_000


async def claim(store, lease_for):
    await store.insert([spec()])
    return (await store.exchange(Exchange(claim=Claim(worker="w1", lease_for=lease_for)))).leases[0]


async def test_after_a_jump_forward_every_holder_has_one_lease_to_report(url):
    clock = HandClock()
    async with PostgresStore(url, world=clock) as store:
        lease = await claim(store, timedelta(milliseconds=1))
        # By the local steady clock an hour has passed and by the server's none: one of them has jumped.
        clock.advance(HOUR)
        await store.insert([spec()])
        assert await store.reap(Reap(worker="r", watched_for=HOUR)) == []
        clock.advance(timedelta(milliseconds=500))
        [taken] = await store.reap(Reap(worker="r", watched_for=HOUR))
        assert (taken.job, taken.fence) == (lease.job, lease.fence + 1)


async def test_after_a_jump_back_no_lease_is_immortal(store, url):
    lease = await claim(store, timedelta(seconds=10))
    schema = store.address.schema
    with psycopg.connect(URL, autocommit=True) as db:  # as if the lease had been given before the clock was set back
        db.execute(f"UPDATE {schema}.lease SET until = until + 86400000000")
    assert await store.reap(Reap(worker="r", watched_for=HOUR)) == []
    until = (await get_job(store, lease.job)).leased_until
    assert until - datetime.now(UTC) < timedelta(seconds=11)


async def test_a_reap_judges_by_the_time_at_which_it_was_sent(url):
    clock = HandClock()
    async with PostgresStore(url, world=clock) as store:
        await claim(store, timedelta(seconds=0.2))
        import asyncio

        await asyncio.sleep(0.3)
        # The hand clock stands still, so the request counts as sent before the lease lapsed.
        assert await store.reap(Reap(worker="r", watched_for=HOUR)) == []


def test_even_clocks_are_no_jump():
    world = HandClock()
    clock = ServerClock(world)
    for step in range(50):
        asked = clock.steady()
        world.advance(timedelta(milliseconds=100))
        clock.note(10**15 + step * 100_000 + 50_000, asked)
    assert clock.even_for() is None
    assert clock.at_the_earliest() <= 10**15 + 50 * 100_000
    clock.note(10**15 + 3600 * SECOND, clock.steady())
    assert clock.even_for() == 0


async def test_a_lease_counts_from_when_it_is_given_also_after_a_wait_for_a_lock(store):
    await configure(store, max_running=5)
    await store.insert([spec()])
    with psycopg.connect(store.address.conninfo) as db:
        db.execute(f"SELECT 1 FROM {store.address.schema}.queue FOR UPDATE")
        claiming = asyncio.create_task(store.exchange(Exchange(claim=Claim(worker="w1", lease_for=HOUR))))
        while not claiming.done() and not waits_for_a_lock(store):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        assert not claiming.done()
        [(let_go_at,)] = db.execute("SELECT clock_timestamp()").fetchall()
    [lease] = (await claiming).leases
    assert lease.started_at >= let_go_at
    assert lease.until - HOUR >= let_go_at


def waits_for_a_lock(store) -> bool:
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        return bool(db.execute(waiting, (f"%{quoted(store.address.schema)}.queue%",)).fetchall())


@pytest.fixture
async def pair(url, shared_schema):
    """Two processes on one server. Each has its own clock; the server uses that of the first."""
    with served_clock(shared_schema) as served:
        clocks = served, HandClock()
        stores = [PostgresStore(served.url(url), world=clock) for clock in clocks]
        async with stores[0], stores[1]:
            yield stores, clocks


def offset_of(store) -> int:
    with psycopg.connect(URL, autocommit=True) as db:
        found = db.execute(f"SELECT value FROM {store.address.schema}.meta WHERE name = 'clock'").fetchall()
    return int(found[0][0]) if found else 0


async def test_a_jump_that_several_see_is_corrected_once(pair):
    stores, (served, _) = pair
    await stores[0].insert([spec(expires_in=HOUR)])
    served.jump(24 * HOUR)
    answers = await asyncio.gather(*(store.advance() for store in stores for _ in range(3)))
    assert [answer.expired for answer in answers] == [0] * 6
    assert offset_of(stores[0]) == 24 * 3600 * SECOND


async def test_blocking_callers_correct_a_jump_too(pair):
    stores, (served, _) = pair
    await asyncio.to_thread(stores[0].insert_now, [spec()])
    served.jump(-HOUR)
    await asyncio.to_thread(stores[0].insert_now, [spec()])
    assert offset_of(stores[0]) == -3600 * SECOND


async def test_a_process_that_stood_still_takes_its_pause_for_no_jump(pair):
    stores, (served, other) = pair
    for _ in range(10):
        served.advance(HOUR)
        await stores[0].reap(Reap(worker="r", watched_for=HOUR))
    await stores[1].reap(Reap(worker="r", watched_for=HOUR))  # for it the server is ten hours ahead
    assert offset_of(stores[0]) == 0
    served.advance(timedelta(seconds=1))
    other.advance(timedelta(seconds=1))
    await stores[1].reap(Reap(worker="r", watched_for=HOUR))
    assert offset_of(stores[0]) == 0


async def test_whoever_opened_between_jump_and_correction_learns_of_it(pair, url):
    stores, (served, _) = pair
    await stores[0].insert([spec()])
    served.jump(24 * HOUR)
    async with PostgresStore(served.url(url), world=served) as late:
        await late.insert([spec()])
        assert late._opened.clock.offset == 0
        await stores[0].insert([spec()])
        served.advance(timedelta(seconds=11))
        await late.insert([spec()])
        assert late._opened.clock.offset == offset_of(late) == 24 * 3600 * SECOND
