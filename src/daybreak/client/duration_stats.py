"""What is seen of how long things take, kept in the store together with what all others see.

A subject is what is timed: "execution simulate on plecs", "connection db". Durations are collected here and merged into
its record every few seconds, so a process that is killed takes a few seconds of them with it and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import OutcomeUnknown, StoreError
from daybreak.core.model import JobSpec, Lease, Put, Record
from daybreak.core.units import moment, span
from daybreak.policy.durations import (
    HOUR,
    NO_DURATIONS,
    Durations,
    Hour,
    add_hours,
    hour_of,
    hour_with,
    is_sound,
    with_hour,
)
from daybreak.policy.timeouts import ESCALATE, ESCALATE_AFTER, adapted, escalated, escalation_level, limit_for
from daybreak.store.protocol import Store
from daybreak.system.ports import World

_log = logging.getLogger("daybreak")

KIND: Final = "durations"
EVERY: Final = timedelta(seconds=5)
FRESH_FOR: Final = span(timedelta(seconds=30))  # for which what was read is believed
ANSWERED_WITHIN: Final = timedelta(seconds=1)  # or nobody waits for it any longer
MAX_SUBJECTS: Final = 1000  # subjects in one process
A_FEW: Final = 4  # subjects are read one by one, more of them all at once
NAME_LIMIT: Final = 200  # characters; indexes refuse names that are very long
TRIES: Final = 10
PAUSE: Final = timedelta(milliseconds=20)  # between two of them, at random, and up to twice as long each time
LONGEST_PAUSE: Final = 32 * PAUSE
FORGOTTEN: Final = timedelta(days=2)
NOTICED: Final = 0.01  # a limit that moved by less has not moved

Fresh = dict[str, tuple[timedelta, Hour]]

_unreadable: set[str] = set()  # of which it was said


class DurationStats:
    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._fresh: Fresh = {}
        self._known: dict[str, tuple[int, Durations]] = {}
        self._wanted: dict[str, None] = {}
        self._late: dict[str, int] = {}  # how often in a row
        self._loading: dict[str, tuple[asyncio.Task[None], float]] = {}  # and until when it is waited for
        self._connecting: ConnectTimeout | None = None
        self._tended_at = world.steady()
        self._tending: asyncio.Task[None] | None = None

    # -- collecting ----------------------------------------------------------------------------------------------------

    def note(self, subject: str, base: timedelta, seconds: float, *, late: bool = False) -> None:
        """It took so long; `late`, it was ended at its limit and would have taken longer."""
        subject = short(subject)
        in_a_row = self._late.pop(subject, 0) + 1
        if late:
            _make_room(self._late)
            self._late[subject] = in_a_row
        self._collect({subject: (base, hour_with(seconds, late=late))})

    def take_over(self, other: DurationStats) -> None:
        """What another has collected, who cannot tell it any more."""
        fresh, other._fresh = other._fresh, {}
        self._collect(fresh)

    def tell_also(self, connecting: ConnectTimeout) -> None:
        """Whenever something is told. It is never a reason to ask the store for something just before it is closed."""
        self._connecting = connecting

    def _collect(self, fresh: Fresh) -> None:
        for subject, (base, hour) in fresh.items():
            if subject in self._fresh:
                known_base, before = self._fresh[subject]
                self._fresh[subject] = (known_base, add_hours(before, hour))
            elif len(self._fresh) < MAX_SUBJECTS:
                self._fresh[subject] = (base, hour)

    def known(self, subject: str) -> Durations | None:
        """What is known of it, without a wait; what is not known yet is asked for soon."""
        subject = short(subject)
        at, durations = self._known.get(subject, (None, None))
        if (at is None or self._world.steady() - at > FRESH_FOR) and len(self._wanted) < MAX_SUBJECTS:
            self._wanted[subject] = None
        return durations

    @property
    def has_news(self) -> bool:
        return bool(self._fresh)

    @property
    def is_due(self) -> bool:
        return bool(self._fresh or self._wanted or (self._connecting is not None and self._connecting.has_news))

    # -- execution -----------------------------------------------------------------------------------------------------

    def limit_of(self, lease: Lease) -> timedelta | None:
        """How long this attempt may run."""
        options = lease.spec.options
        if options.timeout is None or not options.adaptive:
            return limit_for(options, lease.timeouts)
        return limit_for(options, lease.timeouts, self.known(execution_of(lease.spec)))

    def ran(self, lease: Lease, seconds: float, *, late: bool) -> None:
        options = lease.spec.options
        if options.timeout is not None and options.adaptive:
            self.note(execution_of(lease.spec), options.timeout, seconds, late=late)

    # -- anything else -------------------------------------------------------------------------------------------------

    async def limit(self, subject: str, base: timedelta, *, escalate: float, escalate_after: int) -> timedelta:
        """How long it may take now: what is seen to be needed, longer after it was too short a few times in a row."""
        subject = short(subject)
        if subject not in self._known:
            await self._load(subject)
        limit = adapted(base, self.known(subject) or NO_DURATIONS)
        return escalated(limit, escalate, escalation_level(self._late.get(subject, 0), escalate_after))

    async def _load(self, subject: str) -> None:
        """Once, however many ask for it at the same time, and for a second: without an answer the base holds."""
        loop = asyncio.get_running_loop()
        if subject not in self._loading:
            if len(self._loading) >= MAX_SUBJECTS:
                return
            until = loop.time() + ANSWERED_WITHIN.total_seconds()
            self._loading[subject] = loop.create_task(self._ask(subject)), until
        loading, until = self._loading[subject]
        await asyncio.wait([loading], timeout=max(until - loop.time(), 0))

    async def _ask(self, subject: str) -> None:
        try:
            self._believe(subject, (await self.read(subject))[0])
        except Exception as error:  # noqa: BLE001 - whatever ails the store, the work that is limited goes on
            _log.warning("how long %s takes is not known: %s", subject, error)
            self._believe(
                subject, NO_DURATIONS, is_stale=True
            )  # so that the next one need not wait, and it is asked for soon
        finally:
            self._loading.pop(subject, None)

    @contextlib.asynccontextmanager
    async def limited(self, subject: str, base: timedelta, *, at_most: float = math.inf) -> AsyncIterator[None]:
        """A block that may take so long; TimeoutError if it takes longer."""
        limit = await self.limit(subject, base, escalate=ESCALATE, escalate_after=ESCALATE_AFTER)
        timeout, began = asyncio.timeout(min(limit.total_seconds(), at_most)), self._world.steady()
        is_done = False
        try:
            async with timeout:
                yield
            is_done = True
        finally:
            # What failed by itself, be it by a time limit of its own, does not say how long it takes.
            if is_done or timeout.expired():
                self.note(subject, base, (self._world.steady() - began) / 1e6, late=timeout.expired())
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
        """What cannot be told now is told the next time. Raises nothing: what is seen is worth no one's end."""
        if self._connecting is not None:
            self._collect(self._connecting.take_untold())
        fresh, self._fresh = self._fresh, {}
        wanted, self._wanted = self._wanted.keys() - fresh.keys(), {}
        try:
            await self._tell(fresh)
            for subject, (durations, _) in (await self._read(wanted)).items():
                self._believe(subject, durations)
        except StoreError as error:
            _log.warning("how long things took could not be kept: %s", error)
        except Exception:  # noqa: BLE001 - a worker must not end by it
            _log.exception("how long things took could not be kept")
        finally:
            self._collect(fresh)

    async def read(self, subject: str) -> tuple[Durations, int]:
        for record in await self._store.records(KIND, short(subject)):
            return decoded(record), record.revision
        return NO_DURATIONS, 0

    async def _read(self, subjects: Collection[str]) -> dict[str, tuple[Durations, int]]:
        if len(subjects) <= A_FEW:
            return {subject: await self.read(subject) for subject in subjects}
        found = {record.name: record for record in await self._store.records(KIND) if record.name in subjects}
        return {
            subject: (decoded(found[subject]), found[subject].revision) if subject in found else (NO_DURATIONS, 0)
            for subject in subjects
        }

    async def _tell(self, fresh: Fresh) -> None:
        """All at once; those that others told of in between once more. What was told is no longer in `fresh`."""
        pause = PAUSE
        for _ in range(TRIES):
            if not fresh:
                return
            before, now = await self._read(fresh), moment(self._world.wall())
            then = {
                subject: _moved(before[subject][0], with_hour(before[subject][0], hour, now), base)
                for subject, (base, hour) in fresh.items()
            }
            await self._put(fresh, then, {subject: revision for subject, (_, revision) in before.items()})
            if fresh:
                await self._world.sleep(pause * self._world.chance.random())
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _put(self, fresh: Fresh, then: dict[str, Durations], revisions: dict[str, int]) -> None:
        # Once it is sent it may be written, also if no answer comes: told twice would be worse than not at all.
        sent = dict(fresh)
        fresh.clear()
        try:
            answers = await self._store.put([
                Put(kind=KIND, name=subject, value=msgspec.json.encode(durations), expect=revisions[subject])
                for subject, durations in then.items()
            ])  # fmt: skip
        except OutcomeUnknown:
            raise
        except StoreError:
            fresh.update(sent)
            raise
        for (subject, durations), answer in zip(then.items(), answers, strict=True):
            if answer is None:
                fresh[subject] = sent[subject]
            else:
                self._believe(subject, durations)

    def _believe(self, subject: str, durations: Durations, *, is_stale: bool = False) -> None:
        self._known.pop(subject, None)
        _make_room(self._known)
        self._known[subject] = (self._world.steady() - (FRESH_FOR + 1 if is_stale else 0), durations)


def _make_room(kept: dict[str, int] | dict[str, tuple[int, Durations]]) -> None:
    while len(kept) >= MAX_SUBJECTS:
        del kept[next(iter(kept))]


def execution_of(spec: JobSpec) -> str:
    """What the run of a job is timed as: its task, on what it needs."""
    needs = ", ".join(need.resource for need in spec.options.resources)
    return short(f"execution {spec.task} on {needs}" if needs else f"execution {spec.task}")


def short(subject: str) -> str:
    """A subject as it is kept: of a long one its beginning, and a digest that tells it from others."""
    if len(subject) <= NAME_LIMIT:
        return subject
    digest = hashlib.blake2b(subject.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return f"{subject[: NAME_LIMIT - len(digest) - 5]}... {digest}"


def decoded(record: Record) -> Durations:
    """What a record says. One that cannot be read says nothing, and is overwritten by what is seen next."""
    try:
        durations = msgspec.json.decode(record.value, type=Durations)
    except (msgspec.MsgspecError, ValueError) as error:
        exc: object = error
    else:
        if is_sound(durations):
            return durations
        exc = "its numbers make no sense"
    if record.name not in _unreadable and len(_unreadable) < MAX_SUBJECTS:
        _unreadable.add(record.name)
        _log.warning("what is kept of how long %s takes cannot be read: %s", record.name, exc)
    return NO_DURATIONS


def _moved(before: Durations, then: Durations, base: timedelta) -> Durations:
    """With the limit that follows for this base. Only what was seen moves it, not that others tell another base."""
    if before.base == base.total_seconds() and before.limit:
        was = before.multiple or before.limit / before.base
    else:
        was = adapted(base, before) / base
    multiple = adapted(base, then) / base
    has_moved = abs(multiple - was) > NOTICED * was
    multiple = multiple if has_moved else was
    seconds = base.total_seconds()
    return msgspec.structs.replace(
        then, base=seconds, limit=seconds * multiple, multiple=multiple, moved=then.moved + has_moved
    )


async def forget_old(store: Store, world: World) -> None:
    """Remove what nobody has seen for two days: of names that come from arguments there may be very many."""
    hour = hour_of(moment(world.wall()))
    old = [
        Put(kind=KIND, name=record.name, value=None, expect=record.revision)
        for record in await store.records(KIND)
        if all(hour - at > FORGOTTEN // HOUR for at in decoded(record).hours)
    ]
    if old:
        await store.put(old)
