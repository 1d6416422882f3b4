"""How long a connection to the store may take: by what this process has seen, and longer after it was too short."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from daybreak import Daybreak
from daybreak.api.stats import stats_of
from daybreak.client.connect_timeout import SUBJECT, ConnectTimeout
from daybreak.client.duration_stats import DurationStats
from daybreak.policy.timeouts import FULL_TRUST_SAMPLES, MIN_SAMPLES, connect_limit
from daybreak.store.protocol import ConnectLimit, FixedLimit
from daybreak.stores import store_for

BASE = timedelta(seconds=5)
HOUR = timedelta(hours=1)


@pytest.fixture
def connecting(world):
    return ConnectTimeout(world)


def see(connecting, *seconds, late=False):
    for one in seconds:
        connecting.took(BASE, one, late=late)


def test_the_base_holds_while_little_is_seen(connecting):
    assert connecting.seconds(BASE) == 5
    see(connecting, *[0.01] * MIN_SAMPLES)
    assert connecting.seconds(BASE) == 5


def test_it_follows_what_is_seen_down_to_half_the_base_and_up_to_three_times_it(connecting, world):
    see(connecting, *[0.01] * FULL_TRUST_SAMPLES)
    assert connecting.seconds(BASE) == 2.5
    slow = ConnectTimeout(world)
    see(slow, *[4.0] * FULL_TRUST_SAMPLES)
    assert slow.seconds(BASE) == pytest.approx(8.5, abs=0.5)
    see(slow, *[60.0] * FULL_TRUST_SAMPLES)
    assert slow.seconds(BASE) == 15


def test_a_base_that_is_set_otherwise_is_what_it_moves_around(connecting):
    see(connecting, *[0.01] * FULL_TRUST_SAMPLES)
    assert connecting.seconds(timedelta(seconds=20)) == 10


def test_the_third_time_it_was_too_short_in_a_row_it_grows(connecting):
    limits = []
    for _ in range(7):
        limits.append(connecting.seconds(BASE))
        see(connecting, limits[-1], late=True)
    assert limits == [5, 5, 5, 7.5, 11.25, 15, 15]
    see(connecting, 0.01)
    assert connecting.seconds(BASE) == 5


def test_a_server_that_is_gone_for_long_is_never_waited_for_longer_than_three_times_the_base(connecting, world):
    for _ in range(500):
        limit = connecting.seconds(BASE)
        assert limit <= 15
        see(connecting, limit, late=True)
        world.pass_time(timedelta(minutes=1))


def test_what_is_older_than_a_day_is_forgotten(connecting, world):
    see(connecting, *[60.0] * FULL_TRUST_SAMPLES)
    world.pass_time(26 * HOUR)
    see(connecting, 0.01)
    assert connecting.seconds(BASE) == 5


def test_the_limit_is_a_function_of_what_it_is_told(connecting):
    see(connecting, *[0.3] * 50, late=False)
    see(connecting, 5.0, 5.0, 5.0, late=True)
    assert connecting.seconds(BASE) == connect_limit(BASE, connecting._durations, 3).total_seconds()


def test_threads_may_tell_at_once(connecting):
    threads = [threading.Thread(target=see, args=(connecting, *[0.01] * 200)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connecting._durations.seen == 1600


def test_without_anyone_who_sees_the_base_holds():
    fixed: ConnectLimit = FixedLimit()
    fixed.took(BASE, 60, late=True)
    assert fixed.seconds(BASE) == 5


def test_an_app_gives_its_server_store_a_limit_that_follows(monkeypatch):
    made = []
    monkeypatch.setattr("daybreak.api.app.store_for", lambda *given: made.append(given) or store_for("memory://"))
    app = Daybreak("redis://127.0.0.1:1")
    app.stats()
    app.close()
    assert {url for url, _ in made} == {"redis://127.0.0.1:1"}
    [limit] = {id(limit): limit for _, limit in made}.values()  # one, however often a store is made
    assert isinstance(limit, ConnectTimeout)


# -- in the store ------------------------------------------------------------------------------------------------------


async def test_what_was_seen_is_told_to_the_store_for_people(connecting, client):
    client.durations.add_connect_timeout(connecting)
    assert not client.durations.is_due
    see(connecting, 0.1, 0.2)
    see(connecting, 5.0, late=True)
    assert client.durations.is_due
    await client.durations.sync()
    stats = await stats_of(client)
    [known] = stats.adaptive
    assert (known.subject, known.seen, known.late, known.base) == (SUBJECT, 3, 1, BASE)
    assert stats.timeouts.by_kind["connection"] == 1
    assert not client.durations.is_due
    await client.durations.sync()
    assert (await stats_of(client)).adaptive == [known]


async def test_it_is_no_reason_to_ask_for_something_before_closing(connecting, client):
    client.durations.add_connect_timeout(connecting)
    see(connecting, 0.1)
    assert not client.durations.has_news


async def test_two_who_tell_of_one_store_count_nothing_twice(connecting, store, world, client):
    other = DurationStats(store, world)
    for one in (client.durations, other):
        one.add_connect_timeout(connecting)
    see(connecting, 0.1)
    await other.sync()
    await client.durations.sync()
    [known] = (await stats_of(client)).adaptive
    assert known.seen == 1


def test_a_forked_child_leaves_it_to_its_parent_to_tell_what_he_saw(connecting):
    see(connecting, *[0.01] * FULL_TRUST_SAMPLES)
    connecting._lock.acquire()
    connecting.forked()
    assert connecting.seconds(BASE) == 2.5
    assert not connecting.has_news
