"""What is seen of how long things take, kept in the store together with what all others see.

A subject is what is timed: "execution simulate on plecs", "connection db". Durations are collected here and merged into
its record every few seconds, so a process that is killed takes a few seconds of them with it and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.errors import StoreError
from daybreak.model import Lease, Put
from daybreak.policy.durations import HOUR, NONE, Durations, Hour, added, hour_of, merged, of_one
from daybreak.policy.timeouts import adapted, level, limit_for
from daybreak.store import Store
from daybreak.units import moment, span
from daybreak.world import World

_log = logging.getLogger("daybreak")

KIND: Final = "durations"
EVERY: Final = timedelta(seconds=5)
FRESH_FOR: Final = span(timedelta(seconds=30))  # for which what was read is believed
MOST: Final = 1000  # subjects in one process
TRIES: Final = 20
FORGOTTEN: Final = timedelta(days=2)
NOTICED: Final = 0.01  # a limit that moved by less has not moved


class Learning:
    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._fresh: dict[str, tuple[timedelta, Hour]] = {}
        self._known: dict[str, tuple[int, Durations]] = {}
        self._wanted: dict[str, None] = {}
        self._late: dict[str, int] = {}  # how often in a row
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._tended_at = world.steady()
        self._tending: asyncio.Task[None] | None = None

    # -- collecting ----------------------------------------------------------------------------------------------------

    def note(self, subject: str, base: timedelta, seconds: float, *, late: bool = False) -> None:
        """It took so long; `late`, it was ended at its limit and would have taken longer."""
        if subject not in self._fresh and len(self._fresh) >= MOST:
            return
        _, before = self._fresh.get(subject, (base, Hour()))
        self._fresh[subject] = (base, added(before, of_one(seconds, late=late)))
        self._late[subject] = self._late.get(subject, 0) + 1 if late else 0

    def known(self, subject: str) -> Durations | None:
        """What is known of it, without a wait; what is not known yet is asked for soon."""
        at, durations = self._known.get(subject, (None, None))
        if at is None or self._world.steady() - at > FRESH_FOR:
            self._wanted[subject] = None
        return durations

    @property
    def is_due(self) -> bool:
        return bool(self._fresh or self._wanted)

    # -- execution -----------------------------------------------------------------------------------------------------

    def limit_of(self, lease: Lease) -> timedelta | None:
        """How long this attempt may run."""
        options = lease.spec.options
        if options.timeout is None or not options.adaptive:
            return limit_for(options, lease.timeouts)
        return limit_for(options, lease.timeouts, self.known(execution_of(lease)))

    def ran(self, lease: Lease, seconds: float, *, late: bool) -> None:
        options = lease.spec.options
        if options.timeout is not None and options.adaptive:
            self.note(execution_of(lease), options.timeout, seconds, late=late)

    # -- anything else -------------------------------------------------------------------------------------------------

    async def limit(self, subject: str, base: timedelta, *, escalate: float, escalate_after: int) -> timedelta:
        """How long it may take now: what is seen to be needed, longer after it was too short a few times in a row."""
        if subject not in self._known:
            await self._load(subject)
        limit = adapted(base, self.known(subject) or NONE)
        return limit * escalate ** level(self._late.get(subject, 0), escalate_after)

    async def _load(self, subject: str) -> None:
        """Once, however many ask for it at the same time. Without an answer the base holds."""
        loading = self._loading.get(subject)
        if loading is None:
            loading = self._loading[subject] = asyncio.get_running_loop().create_future()
            try:
                self._believe(subject, (await self.read(subject))[0])
            except StoreError as trouble:
                _log.warning("how long %s takes is not known: %s", subject, trouble)
            finally:
                del self._loading[subject]
                loading.set_result(None)
        else:
            await asyncio.shield(loading)

    @contextlib.asynccontextmanager
    async def limited(self, subject: str, base: timedelta, *, at_most: float = math.inf) -> AsyncIterator[None]:
        """A block that may take so long; TimeoutError if it takes longer."""
        limit = await self.limit(subject, base, escalate=1.5, escalate_after=3)
        seconds, began = min(limit.total_seconds(), at_most), self._world.steady()
        late = False
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            late = True
            raise
        finally:
            self.note(subject, base, (self._world.steady() - began) / 1e6, late=late)
            self.tend_soon()

    def tend_soon(self) -> None:
        """Where nobody runs `run`: tell what was seen every few seconds, beside whatever comes next."""
        is_busy = self._tending is not None and not self._tending.done()
        if not is_busy and self._world.steady() - self._tended_at >= span(EVERY):
            self._tended_at = self._world.steady()
            self._tending = asyncio.get_running_loop().create_task(self.tend())

    # -- the store -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever: tell what was seen, and ask for what is wanted."""
        while True:
            await self._world.sleep(EVERY)
            if self.is_due:
                await self.tend()

    async def tend(self) -> None:
        fresh, self._fresh = self._fresh, {}
        wanted, self._wanted = [name for name in self._wanted if name not in fresh], {}
        try:
            for subject, (base, hour) in fresh.items():
                await self._tell(subject, base, hour)
            for subject in wanted:
                self._believe(subject, (await self.read(subject))[0])
        except StoreError as trouble:
            _log.warning("how long things took could not be kept: %s", trouble)

    async def read(self, subject: str) -> tuple[Durations, int]:
        for record in await self._store.records(KIND, subject):
            return msgspec.json.decode(record.value, type=Durations), record.revision
        return NONE, 0

    async def _tell(self, subject: str, base: timedelta, hour: Hour) -> None:
        for _ in range(TRIES):
            before, revision = await self.read(subject)
            then = _moved(merged(before, hour, moment(self._world.wall())), base)
            [put] = await self._store.put([
                Put(kind=KIND, name=subject, value=msgspec.json.encode(then), expect=revision)
            ])  # fmt: skip
            if put is not None:
                self._believe(subject, then)
                return

    def _believe(self, subject: str, durations: Durations) -> None:
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[subject] = (self._world.steady(), durations)


def execution_of(lease: Lease) -> str:
    """What the run of a job is timed as: its task, on what it needs."""
    needs = ", ".join(need.resource for need in lease.spec.options.resources)
    return f"execution {lease.spec.task} on {needs}" if needs else f"execution {lease.spec.task}"


def _moved(durations: Durations, base: timedelta) -> Durations:
    limit, before = adapted(base, durations).total_seconds(), durations.limit or base.total_seconds()
    has_moved = abs(limit - before) > NOTICED * before
    return msgspec.structs.replace(
        durations,
        base=base.total_seconds(),
        limit=limit if has_moved or not durations.limit else durations.limit,
        moved=durations.moved + has_moved,
    )


async def forget_old(store: Store, world: World) -> None:
    """Remove what nobody has seen for two days: of names that come from arguments there may be very many."""
    hour = hour_of(moment(world.wall()))
    for record in await store.records(KIND):
        durations = msgspec.json.decode(record.value, type=Durations)
        if all(hour - at > FORGOTTEN // HOUR for at in durations.hours):
            await store.put([Put(kind=KIND, name=record.name, value=None, expect=record.revision)])
