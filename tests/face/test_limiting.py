"""Adaptive time limits around plain code, sync and async."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from daybreak import BadInput, Daybreak, TooLate
from daybreak.learning import KIND
from daybreak.model import Put
from daybreak.policy.durations import Durations, Hour, class_of, hour_of
from daybreak.units import moment


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
    with pytest.raises(TooLate, match=r"operation of db: not done within 0\.05 s") as late:
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
    with pytest.raises(BadInput, match="blocks, and cannot be ended"):
        app.limit_time("operation", "db")(time.sleep)


def test_what_cannot_be_a_limit_is_refused(app):
    with pytest.raises(BadInput, match="'lunch': there are wait"):
        app.limit_time("lunch", "db")
    with pytest.raises(BadInput, match="longer than nothing"):
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


async def test_ten_thousand_at_once(app):
    """Half of them are too late, and each is told so."""
    ended = await asyncio.gather(*(_one(app, n) for n in range(10_000)))
    assert ended == ["in time", "too late"] * 5000
    await app._sessions.here(app._with_client(lambda client: client.learning.tend()))
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
