"""Tickers that are killed, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.client.schedule_changes import save_schedule
from daybreak.client.schedule_record import Declaration
from daybreak.core.errors import OutcomeUnknown
from daybreak.core.metadata import decode_meta
from daybreak.core.model import JobSpec
from daybreak.core.units import duration
from daybreak.policy.schedules.timing import parse_timing
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.store.protocol import Query
from daybreak.stores import store_for
from daybreak.testing.clock import HandClock

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


@contextlib.asynccontextmanager
async def open_store(kind: str, tmp_path):
    with contextlib.ExitStack() as stack:
        if kind in ("postgres", "redis"):
            from server_stores import place_on

            url = stack.enter_context(place_on(kind))
        else:
            url = {
                "memory": "memory://",
                "sqlite": f"sqlite:///{tmp_path}/jobs.db",
                "directory": f"dir:///{tmp_path}/jobs",
            }[kind]
        async with contextlib.AsyncExitStack() as opened:
            store = await store_for(url).open()
            opened.push_async_callback(store.close)
            yield store


class Killed(BaseException):
    """The process of a ticker is gone. No code of the ticker may catch it."""


class CuttableStore:
    """The store as a ticker sees it that is killed at its n-th call: before the call, or after its commit and before
    its answer. Without keys, only the compare-and-set of the record keeps a tick from being fired twice."""

    def __init__(self, store, *, cut_at: int | None = None, keys: bool = True) -> None:
        self._store, self._cut_at, self._keys = store, cut_at, keys
        self.calls = 0

    @property
    def traits(self):
        return self._store.traits

    async def records(self, kind, name=None):
        self._call()
        found = await self._store.records(kind, name)
        await asyncio.sleep(0)  # others write meanwhile, also in a store that never waits
        self._call()
        return found

    async def put(self, puts, *, now=None):
        self._call()
        if not self._keys:
            puts = [replace(put, inserts=tuple(replace(job, key=None) for job in put.inserts)) for put in puts]
        found = await self._store.put(puts, now=now)
        self._call()
        return found

    def _call(self) -> None:
        self.calls += 1
        if self._cut_at is not None and self.calls >= self._cut_at:
            raise Killed


class LosesAnswers(CuttableStore):
    """The answer to every third write is lost, after the write was made."""

    async def put(self, puts, *, now=None):
        found = await super().put(puts, now=now)
        if self.calls % 3 == 0:
            raise OutcomeUnknown("no answer")
        return found


def declaration(*, args: bytes = b"{}", task: str = "t", queue: str = "default", **options) -> Declaration:
    timing = {name: options.pop(name) for name in ("cron", "every", "at", "tz") if name in options}
    spans = {name: duration(options.pop(name)) for name in ("grace", "jitter") if name in options}
    return Declaration(
        timing=parse_timing(**timing), spec=JobSpec(id="", task=task, queue=queue), args=msgspec.Raw(args),
        **spans, **options,
    )  # fmt: skip


async def declare(store, clock: HandClock, name: str, **options) -> None:
    await save_schedule(Client(store, by="tester", world=clock), name, declaration(**options))


async def tick(store, clock: HandClock) -> timedelta:
    """One round of a ticker that has just started."""
    return await ScheduleTicker(store, clock).tick()


async def tick_until_done(store, clock: HandClock) -> None:
    """Rounds of one ticker until nothing more is due."""
    ticker = ScheduleTicker(store, clock)
    while (await ticker.tick()) <= timedelta(milliseconds=1):
        pass


async def tick_and_die(store, clock: HandClock, cut_at: int | None, *, keys: bool = True) -> None:
    with contextlib.suppress(Killed):
        await ScheduleTicker(CuttableStore(store, cut_at=cut_at, keys=keys), clock).tick()


async def tick_together(*rounds) -> None:
    """Rounds of several tickers, side by side."""
    await asyncio.gather(*rounds)


async def fired(store, name: str) -> list[str]:
    """The ticks of all jobs of a schedule, in order; a tick with two jobs is there twice."""
    found, cursor = [], None
    while True:
        page = await store.find(Query(limit=500, cursor=cursor))
        for job in page.jobs:
            meta = decode_meta(job.spec.meta)
            if meta.get("schedule") == name and "tick" in meta:
                found.append(meta["tick"])
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


def assert_once(found: list[str], expected: list[str]) -> None:
    twice = [tick for tick, n in Counter(found).items() if n > 1]
    assert not twice
    assert found == expected


def every(interval: timedelta, n: int, start: datetime = START) -> list[str]:
    """The texts of the first n ticks after the start."""
    return sorted(text(start + (i + 1) * interval) for i in range(n))


def text(tick: datetime) -> str:
    return tick.astimezone(UTC).isoformat().replace("+00:00", "Z")
