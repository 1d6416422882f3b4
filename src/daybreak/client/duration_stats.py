"""How long things take: collected by every process, merged in the store.

A subject is what is timed: "execution simulate on plecs", "connection db". Durations are collected in memory and merged
into the subject's record every few seconds, so a process that is killed loses those of a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
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
    within,
)
from daybreak.policy.timeouts import DEFAULT_RULES, LimitRules, adapted, escalated, level_by_rules, limit_for
from daybreak.store.protocol import Store
from daybreak.system.ports import World

_log = logging.getLogger("daybreak")

KIND: Final = "durations"
SYNC_INTERVAL: Final = timedelta(seconds=5)
FRESH_FOR: Final = span(timedelta(seconds=30))  # how long durations that were read are used before they are read again
LOAD_TIMEOUT: Final = timedelta(seconds=1)  # how long a caller waits for durations to be read
MAX_SUBJECTS: Final = 1000  # subjects in one process
MAX_SINGLE_READS: Final = 4  # more subjects than this are read in one call
NAME_LIMIT: Final = 200  # characters; database indexes refuse very long names
MAX_TRIES: Final = 10
FIRST_PAUSE: Final = timedelta(milliseconds=20)  # between two tries; doubles each time, with jitter
MAX_PAUSE: Final = 32 * FIRST_PAUSE
KEPT_FOR: Final = timedelta(days=2)
MIN_CHANGE: Final = 0.01  # a limit that would change by less stays as it is
JOB_RULES: Final = LimitRules(escalate=1.0)  # the escalations of jobs are counted in the store's totals

Fresh = dict[str, tuple[timedelta, LimitRules, Hour]]

_unreadable: set[str] = set()  # the records that were logged as unreadable


class DurationStats:
    """Collects durations, merges them into the store, and derives time limits from them."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._fresh: Fresh = {}
        self._known: dict[str, tuple[int, Durations]] = {}
        self._wanted: dict[str, None] = {}
        self._late: dict[str, int] = {}  # the number of late durations in a row
        self._loading: dict[str, tuple[asyncio.Task[None], float]] = {}  # with the time until which callers wait
        self._connect_timeout: ConnectTimeout | None = None
        self._synced_at = world.steady()
        self._syncing: asyncio.Task[None] | None = None

    # -- collecting ----------------------------------------------------------------------------------------------------

    def note(
        self, subject: str, base: timedelta, seconds: float, *, late: bool = False, rules: LimitRules = DEFAULT_RULES
    ) -> None:
        """Record a duration. `late` means that it ended at its limit and would have taken longer."""
        subject = subject_name(subject)
        late_before = self._late.pop(subject, 0)
        if late:
            _make_room(self._late)
            self._late[subject] = late_before + 1
        is_escalated = rules.escalate > 1 and level_by_rules(late_before, rules) > 0
        self._collect({subject: (base, rules, hour_with(seconds, late=late, escalated=is_escalated))})

    def take_over(self, other: DurationStats) -> None:
        """Take what `other` has collected and can no longer save."""
        fresh, other._fresh = other._fresh, {}
        self._collect(fresh)

    def add_connect_timeout(self, connect_timeout: ConnectTimeout) -> None:
        """Save these durations too, with the next sync. They alone never cause a sync when the store is closed."""
        self._connect_timeout = connect_timeout

    def _collect(self, fresh: Fresh) -> None:
        for subject, (base, rules, hour) in fresh.items():
            if subject in self._fresh:
                known_base, known_rules, before = self._fresh[subject]
                self._fresh[subject] = (known_base, known_rules, add_hours(before, hour))
            elif len(self._fresh) < MAX_SUBJECTS:
                self._fresh[subject] = (base, rules, hour)

    def known(self, subject: str) -> Durations | None:
        """What is known of the subject, without waiting. Unknown or old durations are read with the next sync."""
        subject = subject_name(subject)
        at, durations = self._known.get(subject, (None, None))
        if (at is None or self._world.steady() - at > FRESH_FOR) and len(self._wanted) < MAX_SUBJECTS:
            self._wanted[subject] = None
        return durations

    @property
    def has_news(self) -> bool:
        return bool(self._fresh)

    @property
    def is_due(self) -> bool:
        return bool(
            self._fresh or self._wanted or (self._connect_timeout is not None and self._connect_timeout.has_news)
        )

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
            self.note(execution_of(lease.spec), options.timeout, seconds, late=late, rules=JOB_RULES)

    # -- other limits --------------------------------------------------------------------------------------------------

    async def limit(self, subject: str, base: timedelta, rules: LimitRules = DEFAULT_RULES) -> timedelta:
        """The current limit: derived from the durations seen, and longer after several late ones in a row."""
        subject = subject_name(subject)
        if subject not in self._known:
            await self._load(subject)
        durations = within(self.known(subject) or NO_DURATIONS, rules.window, moment(self._world.wall()))
        limit = adapted(base, durations, rules)
        return escalated(limit, rules.escalate, level_by_rules(self._late.get(subject, 0), rules))

    async def _load(self, subject: str) -> None:
        """Read a subject once for all concurrent callers. They wait up to LOAD_TIMEOUT; then the base limit applies."""
        loop = asyncio.get_running_loop()
        if subject not in self._loading:
            if len(self._loading) >= MAX_SUBJECTS:
                return
            until = loop.time() + LOAD_TIMEOUT.total_seconds()
            self._loading[subject] = loop.create_task(self._load_now(subject)), until
        loading, until = self._loading[subject]
        await asyncio.wait([loading], timeout=max(until - loop.time(), 0))

    async def _load_now(self, subject: str) -> None:
        try:
            self._remember(subject, (await self.read(subject))[0])
        except Exception as error:  # noqa: BLE001 - the work that is limited continues without the store
            _log.warning("could not read how long %s takes: %s", subject, error)
            # Stale, so that the next caller does not wait, and the next sync reads it.
            self._remember(subject, NO_DURATIONS, is_stale=True)
        finally:
            self._loading.pop(subject, None)

    @contextlib.asynccontextmanager
    async def limited(self, subject: str, base: timedelta, *, at_most: float = math.inf) -> AsyncIterator[None]:
        """Limit the time of a block, and record how long it takes. Raises TimeoutError at the limit."""
        limit = await self.limit(subject, base)
        timeout, began = asyncio.timeout(min(limit.total_seconds(), at_most)), self._world.steady()
        is_done = False
        try:
            async with timeout:
                yield
            is_done = True
        finally:
            # A block that raised, even because of its own time limit, does not show how long it takes.
            if is_done or timeout.expired():
                self.note(subject, base, (self._world.steady() - began) / 1e6, late=timeout.expired())
                self.sync_soon()

    def sync_soon(self) -> None:
        """Start a sync in the background if one is due. For processes that do not run `run`."""
        is_busy = self._syncing is not None and not self._syncing.done()
        if not is_busy and self._world.steady() - self._synced_at >= span(SYNC_INTERVAL):
            self._synced_at = self._world.steady()
            self._syncing = asyncio.get_running_loop().create_task(self.sync())

    # -- the store -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sync every few seconds, forever."""
        while True:
            await self._world.sleep(SYNC_INTERVAL)
            if self.is_due:
                await self.sync()

    async def sync(self) -> None:
        """Save what was collected, and read the wanted subjects. Raises nothing: what cannot be saved is saved the next
        time."""
        if self._connect_timeout is not None:
            self._collect(self._connect_timeout.take_unsaved())
        fresh, self._fresh = self._fresh, {}
        wanted, self._wanted = self._wanted.keys() - fresh.keys(), {}
        try:
            await self._save(fresh)
            for subject, (durations, _) in (await self._read(wanted)).items():
                self._remember(subject, durations)
        except StoreError as error:
            _log.warning("could not save durations: %s", error)
        except Exception:  # noqa: BLE001 - a worker must not stop because of its statistics
            _log.exception("could not save durations")
        finally:
            self._collect(fresh)

    async def read(self, subject: str) -> tuple[Durations, int]:
        for record in await self._store.records(KIND, subject_name(subject)):
            return decoded(record), record.revision
        return NO_DURATIONS, 0

    async def _read(self, subjects: Collection[str]) -> dict[str, tuple[Durations, int]]:
        if len(subjects) <= MAX_SINGLE_READS:
            return {subject: await self.read(subject) for subject in subjects}
        found = {record.name: record for record in await self._store.records(KIND) if record.name in subjects}
        return {
            subject: (decoded(found[subject]), found[subject].revision) if subject in found else (NO_DURATIONS, 0)
            for subject in subjects
        }

    async def _save(self, fresh: Fresh) -> None:
        """Merge into the store, and again for subjects that another process has changed meanwhile. Saved subjects are
        removed from `fresh`."""
        pause = FIRST_PAUSE
        for _ in range(MAX_TRIES):
            if not fresh:
                return
            before, now = await self._read(fresh), moment(self._world.wall())
            after = {
                subject: _with_limit(before[subject][0], with_hour(before[subject][0], hour, now), base, rules, now)
                for subject, (base, rules, hour) in fresh.items()
            }
            await self._put(fresh, after, {subject: revision for subject, (_, revision) in before.items()})
            if fresh:
                await self._world.sleep(pause * self._world.chance.random())
                pause = min(2 * pause, MAX_PAUSE)

    async def _put(self, fresh: Fresh, after: dict[str, Durations], revisions: dict[str, int]) -> None:
        # A write may arrive even if its answer is lost. Durations that count twice are worse than lost ones.
        sent = dict(fresh)
        fresh.clear()
        try:
            answers = await self._store.put([
                Put(kind=KIND, name=subject, value=msgspec.json.encode(durations), expect=revisions[subject])
                for subject, durations in after.items()
            ])  # fmt: skip
        except OutcomeUnknown:
            raise
        except StoreError:
            fresh.update(sent)
            raise
        for (subject, durations), answer in zip(after.items(), answers, strict=True):
            if answer is None:
                fresh[subject] = sent[subject]
            else:
                self._remember(subject, durations)

    def _remember(self, subject: str, durations: Durations, *, is_stale: bool = False) -> None:
        self._known.pop(subject, None)
        _make_room(self._known)
        self._known[subject] = (self._world.steady() - (FRESH_FOR + 1 if is_stale else 0), durations)


def _make_room(kept: dict[str, int] | dict[str, tuple[int, Durations]]) -> None:
    while len(kept) >= MAX_SUBJECTS:
        del kept[next(iter(kept))]


def execution_of(spec: JobSpec) -> str:
    """The subject of a job's run: its task, and the resources that it needs."""
    needs = ", ".join(need.resource for need in spec.options.resources)
    return subject_name(f"execution {spec.task} on {needs}" if needs else f"execution {spec.task}")


def subject_name(subject: str) -> str:
    """The name under which a subject is stored. A long one is shortened, with a digest that makes it unique."""
    if len(subject) <= NAME_LIMIT:
        return subject
    digest = hashlib.blake2b(subject.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return f"{subject[: NAME_LIMIT - len(digest) - 5]}... {digest}"


def decoded(record: Record) -> Durations:
    """The durations of a record. One that cannot be read counts as empty, and the next sync overwrites it."""
    try:
        durations = msgspec.json.decode(record.value, type=Durations)
    except (msgspec.MsgspecError, ValueError) as error:
        reason: object = error
    else:
        if is_sound(durations):
            return durations
        reason = "its numbers are impossible"
    if record.name not in _unreadable and len(_unreadable) < MAX_SUBJECTS:
        _unreadable.add(record.name)
        _log.warning("cannot read the record of how long %s takes: %s", record.name, reason)
    return NO_DURATIONS


def _with_limit(before: Durations, after: Durations, base: timedelta, rules: LimitRules, now: datetime) -> Durations:
    """`after` with the limit for this base. Only new durations move the limit, not another base."""
    if before.base == base.total_seconds() and before.limit:
        was = before.multiple or before.limit / before.base
    else:
        was = adapted(base, within(before, rules.window, now), rules) / base
    multiple = adapted(base, within(after, rules.window, now), rules) / base
    has_moved = abs(multiple - was) > MIN_CHANGE * was
    multiple = multiple if has_moved else was
    seconds = base.total_seconds()
    return msgspec.structs.replace(
        after, base=seconds, limit=seconds * multiple, multiple=multiple, moved=after.moved + has_moved
    )


async def forget_old(store: Store, world: World) -> None:
    """Delete subjects without a duration in the last two days: subjects that are built from arguments can be many."""
    hour = hour_of(moment(world.wall()))
    old = [
        Put(kind=KIND, name=record.name, value=None, expect=record.revision)
        for record in await store.records(KIND)
        if all(hour - at > KEPT_FOR // HOUR for at in decoded(record).hours)
    ]
    if old:
        await store.put(old)
