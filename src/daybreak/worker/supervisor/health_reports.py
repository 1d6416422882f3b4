"""Publishes how often attempts succeed with each resource, so that all workers limit retries while a resource fails."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import NO_HEALTH, Health, Lease, Put, Record
from daybreak.core.units import moment
from daybreak.policy.health import is_calm, next_health, success
from daybreak.policy.retry import TYPICAL_SUCCESS
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.outcome_signals import ResourceSignal

_log = logging.getLogger("daybreak.worker")

PUBLISH_INTERVAL: Final = 1_000_000  # microseconds
READ_INTERVAL: Final = 5_000_000  # microseconds
MAX_TRIES: Final = 20
MAX_READ_ONE_BY_ONE: Final = 5  # subjects; more are read in one call per kind
# "health" is of resources, whose retries the stores limit; "task health" is of tasks that need no resource.
KINDS: Final = ("health", "task health")
CONFLICT_PAUSE: Final = timedelta(milliseconds=2)


class Subject(NamedTuple):
    """What a health record is about: a resource or a task, by the kind of the record."""

    kind: str
    name: str


class HealthReports:
    """Publishes nothing while nothing fails. If the worker dies, up to a second of outcomes is not counted."""

    def __init__(self, store: Store, world: World) -> None:
        self.store = store
        self._world = world
        self._unpublished: dict[Subject, list[bool]] = {}
        self._known: dict[Subject, Health] = {}
        self._read_at = -READ_INTERVAL
        self._published_at = -PUBLISH_INTERVAL

    async def report(self, signals: Sequence[ResourceSignal]) -> None:
        """Count these signals, and publish if that is due."""
        for lease, signal in signals:
            for subject in _subjects(lease):
                self._unpublished.setdefault(subject, []).append(signal.is_good)
        await self._publish_if_due()

    async def run(self) -> None:
        """Publish every second, because no further outcome may come to trigger it."""
        while True:
            await self._world.sleep(timedelta(microseconds=PUBLISH_INTERVAL))
            await self._publish_if_due()

    async def _publish_if_due(self) -> None:
        if not self._unpublished:
            return
        if self._world.steady() - self._published_at >= PUBLISH_INTERVAL or self._has_changed_state():
            self._published_at = self._world.steady()
            try:
                await self._publish()
            except StoreError as error:
                _log.warning("could not publish resource health: %s", error)

    def _has_changed_state(self) -> bool:
        """Whether a subject began or ceased to fail. That is published at once, because retries go on meanwhile."""
        now = self._now()
        for subject, outcomes in self._unpublished.items():
            known = self._known.get(subject, NO_HEALTH)
            is_quiet = all(outcomes) and is_calm(known)
            if not is_quiet and bool(next_health(known, outcomes, now).spare_for) != bool(known.spare_for):
                return True
        return False

    def success(self, lease: Lease) -> float:
        """The share of recent attempts that succeeded with what this job needs; of several resources, of the worst."""
        if lease.spec.options.retry.strategy != "adaptive":
            return TYPICAL_SUCCESS
        now = self._now()
        shares = []
        for subject in _subjects(lease):
            known = self._known.get(subject, NO_HEALTH)
            shares.append(success(next_health(known, self._unpublished.get(subject, ()), now), now))
        return min(shares)

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        if self._world.steady() - self._read_at >= READ_INTERVAL:
            self._read_at = self._world.steady()
            self._known = {subject: health for subject, (health, _) in (await self._read_all()).items()}
        unpublished, self._unpublished = self._unpublished, {}
        left = {
            subject: outcomes
            for subject, outcomes in unpublished.items()
            if not (all(outcomes) and is_calm(self._known.get(subject, NO_HEALTH)))
        }
        for attempt in range(MAX_TRIES):
            if not left:
                return
            if attempt:  # other workers are writing the same records
                await self._world.sleep(CONFLICT_PAUSE * attempt * self._world.chance.random())
            left = await self._write(left)

    async def _write(self, outcomes: dict[Subject, list[bool]]) -> dict[Subject, list[bool]]:
        """Add these outcomes to the records. Returns those whose record another worker changed meanwhile."""
        found = await self._read_all() if len(outcomes) > MAX_READ_ONE_BY_ONE else await self._read_each(outcomes)
        before = {subject: found.get(subject, (NO_HEALTH, 0)) for subject in outcomes}
        now = self._now()
        changed = {
            subject: next_health(before[subject][0], of_subject, now) for subject, of_subject in outcomes.items()
        }
        puts = [_put(subject, changed[subject], before[subject][1]) for subject in outcomes]
        conflicts: dict[Subject, list[bool]] = {}
        for subject, revision in zip(outcomes, await self.store.put(puts), strict=True):
            if revision is None:
                conflicts[subject] = outcomes[subject]
            else:
                self._known[subject] = changed[subject]
                _log_change(subject, before[subject][0], changed[subject])
        return conflicts

    async def _read_all(self) -> dict[Subject, tuple[Health, int]]:
        return _by_subject([record for kind in KINDS for record in await self.store.records(kind)])

    async def _read_each(self, subjects: Iterable[Subject]) -> dict[Subject, tuple[Health, int]]:
        return _by_subject([record for kind, name in subjects for record in await self.store.records(kind, name)])


def _by_subject(records: list[Record]) -> dict[Subject, tuple[Health, int]]:
    return {Subject(record.kind, record.name): (_decode(record), record.revision) for record in records}


def _put(subject: Subject, health: Health, revision: int) -> Put:
    value = None if is_calm(health) else msgspec.json.encode(health)
    return Put(kind=subject.kind, name=subject.name, value=value, expect=revision)


def _decode(record: Record) -> Health:
    try:
        return msgspec.json.decode(record.value, type=Health)
    except msgspec.DecodeError:  # written by another version: start anew
        return NO_HEALTH


def _subjects(lease: Lease) -> list[Subject]:
    options = lease.spec.options
    if options.resources:
        return [Subject("health", need.resource) for need in options.resources]
    if options.retry.strategy == "adaptive":
        return [Subject("task health", lease.spec.task)]
    return []


def _log_change(subject: Subject, before: Health, now: Health) -> None:
    if subject.kind != "health":
        return
    if now.spare_for and not before.spare_for:
        _log.warning("resource %s is failing: limiting retries to 10 %% of first attempts", subject.name)
    elif before.spare_for and not now.spare_for:
        _log.info("resource %s works again: retries are no longer limited", subject.name)
