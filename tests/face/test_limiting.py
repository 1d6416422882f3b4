"""Adaptive time limits around plain code, sync and async."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import msgspec
import pytest

from daybreak import BadInput, Daybreak, TooLate
from daybreak.api import store_sessions
from daybreak.client.duration_stats import KIND
from daybreak.core.errors import StoreCorrupt, StoreUnavailable
from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.policy.durations import Durations, Hour, class_of, hour_of


def told(app, subject, seconds, times, base=1.0):
    """As if others had seen this."""

    async def put(client):
        hour = hour_of(moment(app.world.wall()))
        durations = Durations(hours={hour: Hour({class_of(seconds): times})}, seen=times, base=base)
        await client.store.put([Put(kind=KIND, name=subject, value=msgspec.json.encode(durations))])

    app.portal.run(app._with_client(put))


def test_the_base_holds_while_nothing_is_known(app):
    for kind, seconds in {"wait": 300, "acquisition": 30, "renewal": 10, "connection": 5, "operation": 60}.items():
        with app.limit_time(kind, "db") as limit:
            assert limit.seconds == seconds
            assert 0 < limit.remaining <= seconds


def test_it_follows_what_others_have_seen(app):
    told(app, "connection db", 0.01, 1000)
    told(app, "operation db", 600.0, 1000)
    with app.limit_time("connection", "db") as limit:
        assert limit.seconds == 2.5
    with app.limit_time("operation", "db") as limit:
        assert limit.seconds == 180


async def test_a_block_that_waits_too_long_is_ended(app):
    began = time.monotonic()
    with pytest.raises(TooLate, match=r"operation of db: not finished within its limit of 0\.05 s") as late:
        async with app.limit_time("operation", "db", base="50ms"):
            await asyncio.sleep(30)
    assert time.monotonic() - began < 10
    assert isinstance(late.value, TimeoutError)


async def test_a_block_that_ends_in_time_answers_and_its_own_errors_are_its_own(app):
    async with app.limit_time("operation", "db"):
        pass
    with pytest.raises(KeyError):
        async with app.limit_time("operation", "db"):
            raise KeyError("mine")


async def test_it_is_longer_after_it_was_too_short_three_times(app):
    seconds = []
    for _ in range(10):
        limit = app.limit_time("operation", "slow", base="20ms")
        with pytest.raises(TooLate):
            async with limit:
                await asyncio.sleep(30)
        seconds.append(limit.seconds)
    assert seconds == pytest.approx([0.02 * 1.5 ** max(0, min(n - 2, 5)) for n in range(10)])


def test_its_rules_can_be_given(app):
    told(app, "operation db", 600.0, 60)
    with app.limit_time("operation", "db", base="1m", bounds=(0.5, 2.0), pace=0.2) as limit:
        assert limit.seconds == 120
    with app.limit_time("operation", "db", base="1m", bounds=(0.5, 2.0)) as limit:
        assert limit.seconds == 90
    with pytest.raises(BadInput, match="window="):
        app.limit_time("operation", "db", window="2d")


async def test_a_written_limit_does_not_adapt_and_its_error_says_so(app):
    told(app, "operation db", 0.001, 1000)
    with pytest.raises(TooLate, match=r"its limit of 0\.05 s \(written\)"):
        async with app.limit_time("operation", "db", base="50ms", adaptive=False):
            await asyncio.sleep(30)


async def test_it_is_raised_at_most_so_often(app):
    seconds = []
    for _ in range(5):
        limit = app.limit_time("operation", "slow", base="10ms", escalate=2.0, escalate_after=1, max_escalations=2)
        with pytest.raises(TooLate):
            async with limit:
                await asyncio.sleep(30)
        seconds.append(limit.seconds)
    assert seconds == pytest.approx([0.01, 0.02, 0.04, 0.04, 0.04])


def test_code_that_blocks_asks_between_two_steps(app):
    with app.limit_time("operation", "db", base="10ms") as limit:
        limit.check()
        time.sleep(0.02)
        assert limit.remaining == 0
        with pytest.raises(TooLate):
            limit.check()


async def test_as_a_decorator_every_call_has_its_own_limit(app):
    @app.limit_time("operation", "db", base="50ms")
    async def ask(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "answer"

    assert await asyncio.gather(ask(0), ask(0)) == ["answer", "answer"]
    with pytest.raises(TooLate):
        await ask(30)
    with pytest.raises(BadInput, match="blocks, and cannot be cancelled"):
        app.limit_time("operation", "db")(time.sleep)


def test_what_cannot_be_a_limit_is_refused(app):
    with pytest.raises(BadInput, match="'lunch'; the kinds are wait"):
        app.limit_time("lunch", "db")
    for kind in ("operatoin", "execution"):
        with pytest.raises(BadInput, match=f"'{kind}'; the kinds are wait"):
            app.limit_time(kind, "db", base="5s")
    with pytest.raises(BadInput, match="longer than 0"):
        app.limit_time("operation", "db", base="0s")
    with pytest.raises(BadInput, match="base"):
        app.limit_time("operation", "db", base=5)


def test_what_was_seen_outlives_the_process(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url) as app:
        for _ in range(3):
            with app.limit_time("connection", "db"):
                pass
    with Daybreak(url) as app:
        [known] = app.stats().adaptive
        assert (known.subject, known.seen, known.late) == ("connection db", 3, 0)


# -- one limit, one use ------------------------------------------------------------------------------------------------


async def test_one_limit_is_for_one_block_at_a_time(app):
    limit = app.limit_time("operation", "db", base="50ms")
    async with limit:
        with pytest.raises(BadInput, match=r"operation db is in use: create one for each use with app\.limit_time"):
            async with limit:
                pytest.fail("entered twice")
    await asyncio.sleep(0.1)  # and who has left its block is not ended by it
    async with limit:
        pass


def test_one_limit_is_for_one_blocking_block_at_a_time(app):
    limit = app.limit_time("operation", "db")
    with limit, pytest.raises(BadInput, match="is in use"), limit:
        pytest.fail("entered twice")
    with limit:
        pass


async def test_a_limit_whose_block_never_began_can_be_used_again(app, monkeypatch):
    limit = app.limit_time("operation", "db")

    async def fail(wait):
        raise KeyError("not a store's trouble")

    with monkeypatch.context() as patched:
        patched.setattr(app._sessions, "client_within", fail)
        with pytest.raises(KeyError):
            async with limit:
                pytest.fail("entered")
        with pytest.raises(KeyError), limit:
            pytest.fail("entered")
    async with limit:
        pass


# -- whose time limit it was -------------------------------------------------------------------------------------------


def kept(app, subject):
    async def read(client):
        await client.durations.sync()
        return (await client.durations.read(subject))[0]

    return app._sessions.here(app._with_client(read))


async def test_a_timeout_of_the_blocks_own_does_not_make_the_limit_longer(app):
    for _ in range(8):
        with pytest.raises(TimeoutError):
            async with app.limit_time("operation", "api"):
                await asyncio.wait_for(asyncio.sleep(30), 0.001)
    async with app.limit_time("operation", "api") as limit:
        assert limit.seconds == 60
    known = await kept(app, "operation api")
    assert (known.seen, known.late) == (1, 0)


async def test_a_block_that_makes_another_error_of_our_timeout_was_late(app):
    with pytest.raises(KeyError):
        async with app.limit_time("operation", "api", base="10ms"):
            await _sleep_badly()
    assert (await kept(app, "operation api")).late == 1


async def _sleep_badly():
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        raise KeyError("mine") from None


def test_a_blocking_block_was_late_if_nothing_remains(app):
    for error in (TimeoutError, KeyError):
        with pytest.raises(error), app.limit_time("operation", "api"):
            raise error
        with pytest.raises(error), app.limit_time("operation", "api", base="1ms"):
            _fail_late(error)
    known = app.portal.run(kept(app, "operation api"))
    assert (known.seen, known.late) == (2, 2)


def _fail_late(error):
    time.sleep(0.01)
    raise error


# -- without a store ---------------------------------------------------------------------------------------------------


MANY = 300
IF_EACH_WAITED = MANY * 0.1  # seconds


class NoStore:
    """A store that cannot be opened, or not yet."""

    def __init__(self, store, trouble=None):
        self.traits = store.traits
        self._store, self._trouble = store, trouble
        self.opened = 0

    async def open(self):
        self.opened += 1
        if self._trouble is not None:
            raise self._trouble
        await asyncio.sleep(30)
        return await self._store.open()


@pytest.fixture(params=[StoreUnavailable("away"), StoreCorrupt("broken"), None], ids=["away", "broken", "hangs"])
def without(request, tmp_path, monkeypatch):
    """An app whose store cannot be opened."""
    monkeypatch.setattr("daybreak.api.locks.time_limit.LOAD_TIMEOUT", timedelta(milliseconds=100))
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.no_store = NoStore(app._sessions._make(), request.param)
        app._sessions._make = lambda: app.no_store
        yield app


def test_a_blocking_block_runs_without_a_store_by_its_base(without):
    began = time.monotonic()
    for _ in range(MANY):
        with without.limit_time("connection", "db") as limit:
            assert limit.seconds == 5
    assert time.monotonic() - began < IF_EACH_WAITED / 2  # who comes later does not wait once more
    assert without.no_store.opened == 1


async def test_a_block_runs_without_a_store_by_its_base(without):
    began = time.monotonic()
    for _ in range(MANY):
        async with without.limit_time("connection", "db") as limit:
            assert limit.seconds == 5
    assert time.monotonic() - began < IF_EACH_WAITED / 2
    with pytest.raises(TooLate):
        async with without.limit_time("connection", "db", base="10ms"):
            await asyncio.sleep(30)


def test_a_store_that_can_be_opened_again_is(tmp_path, monkeypatch):
    monkeypatch.setattr(store_sessions, "REOPEN_AFTER", timedelta())
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        made = app._sessions._make
        app._sessions._make = lambda: NoStore(made(), StoreUnavailable("away"))
        with app.limit_time("connection", "db"):
            pass
        app._sessions._make = made
        told(app, "connection db", 0.01, 1000)
        with app.limit_time("connection", "db") as limit:
            assert limit.seconds == 2.5


async def test_a_store_that_stops_to_answer_neither_delays_a_block_nor_raises(app, monkeypatch):
    monkeypatch.setattr("daybreak.client.duration_stats.LOAD_TIMEOUT", timedelta(milliseconds=100))
    monkeypatch.setattr("daybreak.client.duration_stats.SYNC_INTERVAL", timedelta())
    client = await app._sessions.here(app._sessions.client())

    async def hang(*_):
        await asyncio.sleep(30)

    monkeypatch.setattr(client.durations, "_store", Hanging(hang))
    monkeypatch.setattr(store_sessions, "FLUSH_TIMEOUT", timedelta(milliseconds=100))
    began = time.monotonic()
    for _ in range(MANY):
        async with app.limit_time("connection", "db") as limit:
            assert limit.seconds == 5
    app.close()
    assert time.monotonic() - began < IF_EACH_WAITED / 2


class Hanging:
    def __init__(self, hang):
        self.records = self.put = hang


# -- a loop that ends --------------------------------------------------------------------------------------------------


async def _thirty(app):
    for _ in range(30):
        async with app.limit_time("operation", "db"):
            pass


def test_what_a_loop_that_has_ended_saw_is_told_when_the_app_is_closed(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url) as app:
        for _ in range(3):
            asyncio.run(_thirty(app))
    with Daybreak(url) as app:
        assert [(known.subject, known.seen) for known in app.stats().adaptive] == [("operation db", 90)]


def test_what_a_loop_that_has_ended_saw_is_told_by_the_next_one(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def use_and_close(app):
        async with app:
            await _thirty(app)

    app = Daybreak(url)
    asyncio.run(_thirty(app))
    asyncio.run(use_and_close(app))
    with Daybreak(url) as other:
        assert [known.seen for known in other.stats().adaptive] == [60]
    app.close()


# -- many --------------------------------------------------------------------------------------------------------------


async def test_ten_thousand_at_once(app):
    """Half of them are too late, and each is told so."""
    ended = await asyncio.gather(*(_one(app, n) for n in range(10_000)))
    assert ended == ["in time", "too late"] * 5000
    await app._sessions.here(app._with_client(lambda client: client.durations.sync()))
    stats = await app.astats()
    assert stats.timeouts.by_kind["operation"] == 5000
    [known] = stats.adaptive
    assert (known.subject, known.seen, known.late) == ("operation crowd", 10_000, 5000)


async def _one(app: Daybreak, n: int) -> str:
    try:
        async with app.limit_time("operation", "crowd", base="2s"):
            await asyncio.sleep(300 if n % 2 else 0)
    except TooLate:
        return "too late"
    return "in time"
