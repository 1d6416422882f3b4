"""Tells breakers how it went: reads a gate, lets policy decide, and puts it back if nobody else has meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import NO_GATE, Breaker, Gate, Lease, Outcome, Put, ResourceSettings
from daybreak.core.units import counted, moment
from daybreak.policy.breaker import Signal, next_gate, signal_of
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.reported_leases import ReportedLeases

_log = logging.getLogger("daybreak.worker")

FRESH_FOR: Final = 1_000_000  # microseconds for which settings and a gate that counts nothing are believed
TRIES: Final = 20
FEW: Final = 5


class BreakerReports:
    """Told before the attempts are settled: what they used must not be given to the next ones first.

    A count that is not put, because the store is gone or others were quicker too often, is one failure less."""

    def __init__(self, store: Store, world: World, worker: str = "") -> None:
        self._store = store
        self._world = world
        self._worker = worker
        self._breakers: dict[str, tuple[int, Breaker | None]] = {}
        self._calm: dict[str, int] = {}  # since when a gate is known to count nothing
        self._all: tuple[int, dict[str, bytes]] = (0, {})
        self._told = ReportedLeases()

    async def hear(self, ended: Sequence[tuple[Lease, Outcome]]) -> None:
        by_resource: dict[str, list[Signal]] = {}
        for lease, outcome in ended:
            if not lease.spec.options.resources or lease in self._told:
                continue
            if (one := signal_of(lease, outcome)) is not None:
                self._told.add(lease)
                for need in lease.spec.options.resources:
                    by_resource.setdefault(need.resource, []).append(one)
        if len(by_resource) > FEW:
            await self._look_at_all()
        for resource, heard in by_resource.items():
            try:
                await self._tell(resource, heard)
            except StoreError as error:
                _log.warning("the breaker of resource %s was not told: %s", resource, error)

    async def _tell(self, resource: str, heard: list[Signal]) -> None:
        breaker = await self._breaker(resource)
        if breaker is None or (self._is_calm(resource) and all(one.is_good for one in heard)):
            return
        for _ in range(TRIES):
            gate, revision = await self._gate(resource)
            then = next_gate(gate, breaker, heard, moment(self._world.wall()))
            if then == gate:
                break
            value = None if then == NO_GATE else msgspec.json.encode(then)
            tells = _told(gate, then)
            put = Put(kind="gate", name=resource, value=value, expect=revision, tells=tells, by=self._worker)
            if (await self._store.put([put]))[0] is not None:
                _say(resource, gate, then, breaker)
                gate = then
                break
        if gate.state == "closed" and not gate.failures:
            self._calm[resource] = self._world.steady()
        else:
            self._calm.pop(resource, None)

    async def _look_at_all(self) -> None:
        """One question for all breakers there are, instead of one for each of very many resources."""
        try:
            records = await self._store.records("resource")
        except StoreError:
            return  # told for each of them
        self._all = (self._world.steady(), {record.name: record.value for record in records})

    def _is_calm(self, resource: str) -> bool:
        since = self._calm.get(resource)
        return since is not None and self._world.steady() - since < FRESH_FOR

    async def _breaker(self, resource: str) -> Breaker | None:
        now = self._world.steady()
        at, breaker = self._breakers.get(resource, (now - FRESH_FOR, None))
        if now - at >= FRESH_FOR:
            found = await self._settings(resource, now)
            breaker = None if found is None else msgspec.json.decode(found, type=ResourceSettings).breaker
            if len(self._breakers) > 1000:
                self._breakers.clear()
                self._calm.clear()
            self._breakers[resource] = (now, breaker)
        return breaker

    async def _settings(self, resource: str, now: int) -> bytes | None:
        at, known = self._all
        if known and now - at < FRESH_FOR:
            return known.get(resource)
        for record in await self._store.records("resource", resource):
            return record.value
        return None

    async def _gate(self, resource: str) -> tuple[Gate, int]:
        for record in await self._store.records("gate", resource):
            return msgspec.json.decode(record.value, type=Gate), record.revision
        return NO_GATE, 0


def _told(before: Gate, now: Gate) -> str:
    """The event that tells of it, if it changed how the breaker stands."""
    if now.opened > before.opened:
        return "breaker_opened"
    return "breaker_closed" if before.state == "open" and now.state == "closed" else ""


def _say(resource: str, before: Gate, now: Gate, breaker: Breaker) -> None:
    if now.opened > before.opened:
        many = f"{counted(now.failures, 'failure')} in a row" if before.state == "closed" else "a probe failed"
        open_for = breaker.open_for.total_seconds()
        _log.warning("the breaker of resource %s opened (%s): nothing starts for %g s", resource, many, open_for)
    elif before.state == "open" and now.state == "closed":
        _log.info("the breaker of resource %s closed: it works again", resource)
