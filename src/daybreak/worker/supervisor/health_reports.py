"""How the resources did that jobs use: what this worker heard, told to all others through the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import NO_HEALTH, Health, Lease, Outcome, Put, Record
from daybreak.core.units import moment
from daybreak.policy.breaker import signal_of
from daybreak.policy.health import is_calm, next_health, success
from daybreak.policy.retry import TYPICAL_SUCCESS
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.reported_leases import ReportedLeases

_log = logging.getLogger("daybreak.worker")

TOLD_EVERY: Final = 1_000_000  # microseconds
READ_EVERY: Final = 5_000_000
TRIES: Final = 20
FEW: Final = 5  # subjects that are read one by one
KINDS: Final = ("health", "task health")  # of resources, which stores spare; of tasks that need none
PAUSE: Final = timedelta(milliseconds=2)


class Subject(NamedTuple):
    kind: str
    name: str


class HealthReports:
    """While nothing fails, nothing is told. A worker that dies takes a second of outcomes with it."""

    def __init__(self, store: Store, world: World) -> None:
        self.store = store
        self._world = world
        self._heard: dict[Subject, list[bool]] = {}
        self._known: dict[Subject, Health] = {}
        self._reported = ReportedLeases()
        self._read_at = -READ_EVERY
        self._told_at = -TOLD_EVERY

    async def hear(self, ended: Sequence[tuple[Lease, Outcome]]) -> None:
        for lease, outcome in ended:
            subjects = _subjects(lease)
            if not subjects or lease in self._reported:
                continue
            if (one := signal_of(lease, outcome)) is not None:
                self._reported.add(lease)
                for subject in subjects:
                    self._heard.setdefault(subject, []).append(one.is_good)
        await self._tell_in_time()

    async def run(self) -> None:
        """For ever: what was heard last is told, too, though nothing more ends."""
        while True:
            await self._world.sleep(timedelta(microseconds=TOLD_EVERY))
            await self._tell_in_time()

    async def _tell_in_time(self) -> None:
        if self._heard and (self._world.steady() - self._told_at >= TOLD_EVERY or self._is_news()):
            self._told_at = self._world.steady()
            try:
                await self._tell_all()
            except StoreError as error:
                _log.warning("how resources did could not be told: %s", error)

    def _is_news(self) -> bool:
        """Whether what was heard since changes how one stands: that must not wait, or retries go on meanwhile."""
        now = self._now()
        for subject, outcomes in self._heard.items():
            known = self._known.get(subject, NO_HEALTH)
            is_quiet = all(outcomes) and is_calm(known)
            if not is_quiet and bool(next_health(known, outcomes, now).spare_for) != bool(known.spare_for):
                return True
        return False

    def success(self, lease: Lease) -> float:
        """The share of tries that lately succeeded with what this job needs; of several, with the worst."""
        if lease.spec.options.retry.strategy != "adaptive":
            return TYPICAL_SUCCESS
        now = self._now()
        known = (next_health(self._known.get(s, NO_HEALTH), self._heard.get(s, ()), now) for s in _subjects(lease))
        return min(success(health, now) for health in known)

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _tell_all(self) -> None:
        if self._world.steady() - self._read_at >= READ_EVERY:
            self._read_at = self._world.steady()
            self._known = {subject: health for subject, (health, _) in (await self._read_all()).items()}
        heard, self._heard = self._heard, {}
        left = {
            subject: outcomes
            for subject, outcomes in heard.items()
            if not (all(outcomes) and is_calm(self._known.get(subject, NO_HEALTH)))
        }
        for attempt in range(TRIES):
            if not left:
                return
            if attempt:  # others are telling, too
                await self._world.sleep(PAUSE * attempt * self._world.chance.random())
            left = await self._tell(left)

    async def _tell(self, heard: dict[Subject, list[bool]]) -> dict[Subject, list[bool]]:
        """Those of which others told meanwhile."""
        found = await self._read_all() if len(heard) > FEW else await self._read_each(heard)
        before = {subject: found.get(subject, (NO_HEALTH, 0)) for subject in heard}
        now = self._now()
        then = {subject: next_health(before[subject][0], outcomes, now) for subject, outcomes in heard.items()}
        puts = [_put(subject, then[subject], before[subject][1]) for subject in heard]
        lost: dict[Subject, list[bool]] = {}
        for subject, answer in zip(heard, await self.store.put(puts), strict=True):
            if answer is None:
                lost[subject] = heard[subject]
            else:
                self._known[subject] = then[subject]
                _say(subject, before[subject][0], then[subject])
        return lost

    async def _read_all(self) -> dict[Subject, tuple[Health, int]]:
        return _by_subject([record for kind in KINDS for record in await self.store.records(kind)])

    async def _read_each(self, subjects: Iterable[Subject]) -> dict[Subject, tuple[Health, int]]:
        return _by_subject([record for kind, name in subjects for record in await self.store.records(kind, name)])


def _by_subject(records: list[Record]) -> dict[Subject, tuple[Health, int]]:
    return {Subject(record.kind, record.name): (_decoded(record), record.revision) for record in records}


def _put(subject: Subject, health: Health, revision: int) -> Put:
    value = None if is_calm(health) else msgspec.json.encode(health)
    return Put(kind=subject.kind, name=subject.name, value=value, expect=revision)


def _decoded(record: Record) -> Health:
    try:
        return msgspec.json.decode(record.value, type=Health)
    except msgspec.DecodeError:  # of another version: it is told anew
        return NO_HEALTH


def _subjects(lease: Lease) -> list[Subject]:
    options = lease.spec.options
    if options.resources:
        return [Subject("health", need.resource) for need in options.resources]
    return [Subject("task health", lease.spec.task)] if options.retry.strategy == "adaptive" else []


def _say(subject: Subject, before: Health, now: Health) -> None:
    if now.spare_for and not before.spare_for and subject.kind == "health":
        _log.warning("resource %s fails: its retries are few until it works again", subject.name)
    elif before.spare_for and not now.spare_for and subject.kind == "health":
        _log.info("resource %s works again: its retries go on", subject.name)
