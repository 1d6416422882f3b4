"""The tests of ticks notice tickers that are wrong."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from msgspec.structs import replace
from ticking import START, CuttableStore, Killed, assert_once, declare, every, fired, open_store, tick_until_done

from daybreak.policy.schedules import due_ticks as policy
from daybreak.services import schedule_ticker
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.testing.clock import HandClock

MINUTE = timedelta(minutes=1)


class WritesWhateverWasWritten(CuttableStore):
    """A ticker that does not compare the revision."""

    async def put(self, puts, *, now=None):
        return await super().put([replace(put, expect=None) for put in puts], now=now)


class InsertsTheJobsAfterwards(CuttableStore):
    """A ticker that writes the record, and then the jobs in a second call."""

    async def put(self, puts, *, now=None):
        found = await super().put([replace(put, inserts=()) for put in puts], now=now)
        for put, written in zip(puts, found, strict=True):
            if written is not None:
                await self._store.insert(put.inserts)
        return found


async def thousand_ticks(wrapped) -> None:
    """A shorter form of the test of a thousand ticks, with tickers that see the store through `wrapped`."""
    import asyncio

    clock, chance = HandClock(START), random.Random(7)

    async def round_of(store, cut):
        try:
            await ScheduleTicker(wrapped(store, cut_at=cut, keys=False), clock).tick()
        except Killed:
            return

    async with open_store("memory", None) as store:
        await declare(store, clock, "s", every="1m", catch_up="all", overlap="allow")
        while clock.now < START + 200 * MINUTE:
            clock.advance(MINUTE)
            cuts = [chance.choice([1, 2, 3, 4, None]) for _ in range(3)]
            await asyncio.gather(*(round_of(store, cut) for cut in cuts))
        await tick_until_done(store, clock)
        assert_once(await fired(store, "s"), every(MINUTE, 200))


async def test_the_ticker_as_it_is_passes():
    await thousand_ticks(CuttableStore)


@pytest.mark.parametrize("wrapped", [WritesWhateverWasWritten, InsertsTheJobsAfterwards])
async def test_a_ticker_with_a_bug_is_noticed(wrapped):
    with pytest.raises(AssertionError):
        await thousand_ticks(wrapped)


async def test_a_ticker_that_says_it_has_done_more_than_it_has_is_noticed(monkeypatch):
    def forgets_one(*args, **options):
        due = policy.due_ticks(*args, **options)
        return replace(due, fire=due.fire[1:]) if len(due.fire) > 1 else due

    monkeypatch.setattr(schedule_ticker, "due_ticks", forgets_one)
    clock = HandClock(START)
    async with open_store("memory", None) as store:
        await declare(store, clock, "s", every="1m", catch_up="all", overlap="allow")
        clock.advance(5 * MINUTE)
        await tick_until_done(store, clock)
        with pytest.raises(AssertionError):
            assert_once(await fired(store, "s"), every(MINUTE, 5))
