"""How the resources did that jobs use: what this worker heard, told to all others through the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from daybreak.errors import StoreError
from daybreak.model import NO_HEALTH, Health, Lease, Outcome, Put
from daybreak.policy.breaker import hear
from daybreak.policy.health import after, is_calm, success
from daybreak.policy.retry import USUAL
from daybreak.store import Store
from daybreak.units import moment
from daybreak.world import World

_log = logging.getLogger("daybreak.worker")

TOLD_EVERY: Final = 1_000_000  # microseconds
READ_EVERY: Final = 5_000_000
TRIES: Final = 20
KINDS: Final = ("health", "task health")  # of resources, which stores spare; of tasks that need none


class Subject(NamedTuple):
    kind: str
    name: str


class Healths:
    """While nothing fails, nothing is told. A worker that dies takes a second of outcomes with it."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._heard: dict[Subject, list[bool]] = {}
        self._known: dict[Subject, Health] = {}
        self._read_at = -READ_EVERY
        self._told_at = -TOLD_EVERY

    async def hear(self, ended: Sequence[tuple[Lease, Outcome]]) -> None:
        for lease, outcome in ended:
            if (subjects := _subjects(lease)) and (one := hear(lease, outcome)) is not None:
                for subject in subjects:
                    self._heard.setdefault(subject, []).append(one.is_good)
        if self._heard and (self._world.steady() - self._told_at >= TOLD_EVERY or self._is_news()):
            self._told_at = self._world.steady()
            try:
                await self._tell_all()
            except StoreError as trouble:
                _log.warning("how resources did could not be told: %s", trouble)

    def _is_news(self) -> bool:
        """Whether what was heard since changes how one stands: that must not wait, or retries go on meanwhile."""
        now = self._now()
        for subject, outcomes in self._heard.items():
            known = self._known.get(subject, NO_HEALTH)
            is_quiet = all(outcomes) and is_calm(known)
            if not is_quiet and bool(after(known, outcomes, now).spare_for) != bool(known.spare_for):
                return True
        return False

    def success(self, lease: Lease) -> float:
        """The share of tries that lately succeeded with what this job needs; of several, with the worst."""
        if lease.spec.options.retry.strategy != "adaptive":
            return USUAL
        now = self._now()
        known = (after(self._known.get(s, NO_HEALTH), self._heard.get(s, ()), now) for s in _subjects(lease))
        return min(success(health, now) for health in known)

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _tell_all(self) -> None:
        if self._world.steady() - self._read_at >= READ_EVERY:
            self._read_at = self._world.steady()
            self._known = {
                Subject(kind, record.name): msgspec.json.decode(record.value, type=Health)
                for kind in KINDS
                for record in await self._store.records(kind)
            }
        heard, self._heard = self._heard, {}
        for subject, outcomes in heard.items():
            if not (all(outcomes) and is_calm(self._known.get(subject, NO_HEALTH))):
                await self._tell(subject, outcomes)

    async def _tell(self, subject: Subject, outcomes: list[bool]) -> None:
        for _ in range(TRIES):
            before, revision = await self._read(subject)
            then = after(before, outcomes, self._now())
            value = None if is_calm(then) else msgspec.json.encode(then)
            put = Put(kind=subject.kind, name=subject.name, value=value, expect=revision)
            if (await self._store.put([put]))[0] is not None:
                self._known[subject] = then
                _say(subject, before, then)
                return

    async def _read(self, subject: Subject) -> tuple[Health, int]:
        for record in await self._store.records(subject.kind, subject.name):
            return msgspec.json.decode(record.value, type=Health), record.revision
        return NO_HEALTH, 0


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
