"""Ten years of virtual time in five zones, with three tickers that are killed: each tick is fired once, and what is
missed or overlaps is treated as declared. What is expected is worked out by looking at the clock of each zone every
quarter of an hour, without cron and without the code under test."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from player_processes import LONG
from ticking import (
    CuttableStore,
    Killed,
    assert_once,
    declare,
    every,
    fired,
    open_store,
    text,
    tick_and_die,
    tick_together,
    tick_until_done,
)

from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.services.schedule_ticker import REWIND_AFTER, ScheduleTicker
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import HandClock

pytestmark = pytest.mark.torture

# Two zones with whole hours north of the equator, one with half an hour south of it, one that changes at midnight on
# Fridays, and one that never changes and is 5 h 45 min ahead.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu")
START = datetime(2026, 1, 1, tzinfo=UTC)
YEARS = 10 if LONG else 1
END = START + YEARS * timedelta(days=365.25)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
QUARTER = timedelta(minutes=15)
GRACE = HOUR
DAILY, SHOWN = "30 2 * * *", "15 */2 * * 0,5"


def daily_ticks(zone: str, until: datetime) -> list[datetime]:
    """02:30 of each day: where it occurs twice the first one, where it is skipped the first instant after the gap."""
    found, last_day, local = [], None, START.astimezone(ZoneInfo(zone))
    if (local.hour, local.minute) >= (2, 30):
        last_day = local.date()
    at = START
    while (at := at + QUARTER) <= until:
        local = at.astimezone(ZoneInfo(zone))
        if local.date() != last_day and (local.hour, local.minute) >= (2, 30):
            found.append(at)
            last_day = local.date()
    return found


def shown_ticks(zone: str, until: datetime) -> list[datetime]:
    """Whenever the clock on the wall shows a quarter past an even hour on a Friday or Sunday."""
    found, at = [], START
    while (at := at + QUARTER) <= until:
        local = at.astimezone(ZoneInfo(zone))
        if local.minute == 15 and local.hour % 2 == 0 and local.weekday() in (4, 6):
            found.append(at)
    return found


def texts(ticks: list[datetime]) -> list[str]:
    return [text(tick) for tick in ticks]


class Tickers:
    """Three tickers that live until they are killed at one of their store operations; then a new one starts."""

    def __init__(self, store, clock: HandClock, chance: random.Random) -> None:
        self._store, self._clock, self._chance = store, clock, chance
        self._running = [self._new() for _ in range(3)]
        self.kills = 0

    def _new(self) -> ScheduleTicker:
        cut_at = self._chance.randrange(1, 60)  # a round of eleven schedules is two operations, and two per write
        return ScheduleTicker(CuttableStore(self._store, cut_at=cut_at), self._clock)

    async def tick(self) -> None:
        await tick_together(*(self._one(number) for number in range(3)))

    async def _one(self, number: int) -> None:
        try:
            await self._running[number].tick()
        except Killed:
            self.kills += 1
            self._running[number] = self._new()


async def test_each_tick_is_fired_once_however_the_clock_is_set(tell):
    began, clock, chance = time.monotonic(), HandClock(START), random.Random(3)
    steps, seen = 0, START
    async with open_store("memory", None) as store:
        for zone in ZONES:
            await declare(store, clock, f"daily {zone}", cron=DAILY, tz=zone, overlap="allow", catch_up="all")
            await declare(store, clock, f"shown {zone}", cron=SHOWN, tz=zone, overlap="allow", catch_up="all")
        await declare(store, clock, "every", every="6h", overlap="allow", catch_up="all")
        tickers = Tickers(store, clock, chance)
        while clock.now < END:
            clock.advance(DAY * chance.choice([0.01, 0.05, 0.2, 0.5, 1, 3, 20]))
            seen = max(seen, clock.now)
            await tickers.tick()
            if chance.random() < 0.2:
                jump = chance.choice([-1, 1]) * chance.choice([5 * MINUTE, HOUR, DAY, 30 * DAY])
                clock.jump(max(jump, START - clock.now))
                seen, steps = max(seen, clock.now), steps + 1
                for _ in range(chance.randrange(4)):  # for a while it is wrong, or that is the time now
                    await tickers.tick()
                    clock.advance(REWIND_AFTER)
        clock.advance(max(seen - clock.now, timedelta()) + DAY)
        for _ in range(3):
            await tick_until_done(store, clock)
            clock.advance(REWIND_AFTER)
        until = (clock.now - REWIND_AFTER).replace(second=0, microsecond=0)
        total = 0
        for zone in ZONES:
            for name, ticks in (("daily", daily_ticks), ("shown", shown_ticks)):
                expected = texts(ticks(zone, until))
                assert_once(await fired(store, f"{name} {zone}"), expected)
                total += len(expected)
        assert_once(await fired(store, "every"), every(6 * HOUR, (until - START) // (6 * HOUR), START))
    tell(f"{YEARS} years, {total} ticks of cron, {tickers.kills} killed tickers, {steps} clock steps, "
         f"{time.monotonic() - began:.0f} s")  # fmt: skip


def as_declared(ticks: list[datetime], rounds: list[datetime], catch_up: str) -> list[datetime]:
    """The ticks that are fired if everything that is due is done in these rounds, and nothing between them."""
    found, left = [], list(reversed(ticks))
    for now in rounds:
        due = []
        while left and left[-1] <= now:
            due.append(left.pop())
        on_time = [tick for tick in due if tick >= now - GRACE]
        if catch_up == "all":
            found += due
        elif on_time or catch_up == "skip":
            found += on_time
        else:
            found += due[-1:]
    return found


async def test_what_is_missed_and_what_overlaps_is_treated_as_declared(tell):
    began, clock, chance = time.monotonic(), HandClock(START), random.Random(5)
    rounds: list[datetime] = []
    lone, unfinished = [], False
    async with MemoryStore(clock) as store:
        for zone in ZONES:
            for catch_up in ("skip", "latest", "all"):
                how = {"cron": DAILY, "tz": zone, "grace": GRACE}
                await declare(store, clock, f"{catch_up} {zone}", overlap="allow", catch_up=catch_up, **how)
        for overlap in ("skip", "queue"):
            await declare(
                store, clock, overlap, cron=DAILY, tz="Europe/Berlin", overlap=overlap, catch_up="all", queue=overlap
            )  # fmt: skip
        berlin = list(reversed(daily_ticks("Europe/Berlin", END + 20 * DAY)))
        ran: list[str] = []
        while clock.now < END:
            clock.advance(DAY * chance.choice([0.02, 0.1, 0.2, 0.5, 1, 3, 20]))
            rounds.append(clock.now)
            cuts = [chance.choice([*range(1, 40), None]) for _ in range(3)]
            await tick_together(*(tick_and_die(store, clock, cut, keys=False) for cut in cuts))
            await tick_until_done(store, clock)
            while berlin and berlin[-1] <= clock.now:
                tick = berlin.pop()
                if not unfinished:
                    lone.append(tick)
                    unfinished = True
            if chance.random() < 0.7:
                await end_next(store, "skip")
                unfinished = False
            ran += await end_next(store, "queue")
        for zone in ZONES:
            ticks = daily_ticks(zone, clock.now)
            for catch_up in ("skip", "latest", "all"):
                assert_once(await fired(store, f"{catch_up} {zone}"), texts(as_declared(ticks, rounds, catch_up)))
        assert_once(await fired(store, "skip"), texts(lone))
        while one := await end_next(store, "queue"):
            ran += one
        assert ran == texts(daily_ticks("Europe/Berlin", clock.now)), "one at a time, in order"
    tell(f"{YEARS} years, {len(rounds)} rounds, {time.monotonic() - began:.0f} s")


async def end_next(store, queue: str) -> list[str]:
    """Run what may run of a queue: at most one job, whose tick is returned."""
    await store.advance()
    claim = Claim(worker="w", queues=(queue,), limit=10, lease_for=DAY)
    leases = (await store.exchange(Exchange(claim=claim))).leases
    assert len(leases) <= 1
    settlements = [settle(lease, Done(b"null"), chance=0.5, by="w") for lease in leases]
    await store.exchange(Exchange(settle=settlements))
    return [lease.spec.meta["tick"] for lease in leases]
