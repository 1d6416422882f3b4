"""Updates the circuit breakers of resources: reads a gate, lets policy decide, and writes the result if no other worker
has changed the gate meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import NO_GATE, Breaker, Gate, Lease, Put, ResourceSettings
from daybreak.core.units import counted, moment
from daybreak.policy.breaker import Signal, gate_with_probe, next_gate
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.outcome_signals import ResourceSignal

_log = logging.getLogger("daybreak.worker")

CACHE_FOR: Final = 1_000_000  # microseconds for which settings and a gate without failures are cached
MAX_CACHED: Final = 1000
MAX_TRIES: Final = 20
MAX_READ_ONE_BY_ONE: Final = 5  # resources; the settings of more are read in one call


class BreakerReports:
    """Reports signals before the attempts are settled, because settling frees slots: the next job must not get a slot
    of a resource whose breaker should be open.

    A signal is dropped if the store is away, or if other workers change the gate `MAX_TRIES` times."""

    def __init__(self, store: Store, world: World, worker: str = "") -> None:
        self._store = store
        self._world = world
        self._worker = worker
        self._breakers: dict[str, tuple[int, Breaker | None]] = {}
        self._calm_since: dict[str, int] = {}  # when a gate was last seen closed and without failures
        self._settings: tuple[int, dict[str, bytes]] = (0, {})
        self._started: dict[str, datetime] = {}  # resources that jobs which have just started need
        self._has_started = asyncio.Event()

    def started(self, leases: Iterable[Lease]) -> None:
        """Note that jobs which need resources start: `run` finds out whether one of them is a probe."""
        for lease in leases:
            for need in lease.spec.options.resources:
                self._started[need.resource] = lease.started_at
                self._has_started.set()

    async def run(self) -> None:
        """Tell of probes that start, forever. No job waits for that."""
        while True:
            await self._has_started.wait()
            self._has_started.clear()
            for resource in list(self._started):
                await self._report_probe(resource)

    async def _report_probe(self, resource: str) -> None:
        started_at = self._started.pop(resource, None)
        if started_at is None:
            return
        try:
            breaker = await self._breaker(resource)
            if breaker is not None and not self._is_calm(resource):
                await self._change(resource, lambda gate: gate_with_probe(gate, breaker, started_at), breaker)
        except StoreError as error:
            _log.warning("could not tell that resource %s is probed: %s", resource, error)

    async def report(self, signals: Sequence[ResourceSignal]) -> None:
        """Let the breakers of all resources that were used count these signals."""
        by_resource: dict[str, list[Signal]] = {}
        for lease, signal in signals:
            for need in lease.spec.options.resources:
                by_resource.setdefault(need.resource, []).append(signal)
        if len(by_resource) > MAX_READ_ONE_BY_ONE:
            await self._read_all_settings()
        for resource, of_resource in by_resource.items():
            await self._report_probe(resource)  # it started before it ended
            try:
                await self._update(resource, of_resource)
            except StoreError as error:
                _log.warning("could not update the breaker of resource %s: %s", resource, error)

    async def _update(self, resource: str, signals: list[Signal]) -> None:
        breaker = await self._breaker(resource)
        if breaker is None or (self._is_calm(resource) and all(signal.is_good for signal in signals)):
            return
        await self._change(
            resource, lambda gate: next_gate(gate, breaker, signals, moment(self._world.wall())), breaker
        )

    async def _change(self, resource: str, decide: Callable[[Gate], Gate], breaker: Breaker) -> None:
        """Change a gate as policy decides; again if another worker has changed it meanwhile."""
        for _ in range(MAX_TRIES):
            gate, revision = await self._read_gate(resource)
            changed = decide(gate)
            if changed == gate:
                break
            value = None if changed == NO_GATE else msgspec.json.encode(changed)
            event = _event(gate, changed)
            put = Put(kind="gate", name=resource, value=value, expect=revision, tells=event, by=self._worker)
            if (await self._store.put([put]))[0] is not None:
                _log_change(resource, gate, changed, breaker)
                gate = changed
                break
        if gate.state == "closed" and not gate.failures:
            self._calm_since[resource] = self._world.steady()
        else:
            self._calm_since.pop(resource, None)

    async def _read_all_settings(self) -> None:
        """Read the settings of all resources in one call."""
        try:
            records = await self._store.records("resource")
        except StoreError:
            return  # the next call fails too, and is logged
        self._settings = (self._world.steady(), {record.name: record.value for record in records})

    def _is_calm(self, resource: str) -> bool:
        since = self._calm_since.get(resource)
        return since is not None and self._world.steady() - since < CACHE_FOR

    async def _breaker(self, resource: str) -> Breaker | None:
        now = self._world.steady()
        at, breaker = self._breakers.get(resource, (now - CACHE_FOR, None))
        if now - at >= CACHE_FOR:
            settings = await self._read_settings(resource, now)
            breaker = None if settings is None else msgspec.json.decode(settings, type=ResourceSettings).breaker
            if len(self._breakers) > MAX_CACHED:
                self._breakers.clear()
                self._calm_since.clear()
            self._breakers[resource] = (now, breaker)
        return breaker

    async def _read_settings(self, resource: str, now: int) -> bytes | None:
        at, cached = self._settings
        if cached and now - at < CACHE_FOR:
            return cached.get(resource)
        for record in await self._store.records("resource", resource):
            return record.value
        return None

    async def _read_gate(self, resource: str) -> tuple[Gate, int]:
        for record in await self._store.records("gate", resource):
            return msgspec.json.decode(record.value, type=Gate), record.revision
        return NO_GATE, 0


def _event(before: Gate, now: Gate) -> str:
    """The kind of event for this change; empty if the breaker neither opened nor closed nor began to probe."""
    if now.opened > before.opened:
        return "breaker_opened"
    if before.state == "open" and now.state == "closed":
        return "breaker_closed"
    if now.probing and not before.probing:
        return "breaker_probing"
    return ""


def _log_change(resource: str, before: Gate, now: Gate, breaker: Breaker) -> None:
    if now.opened > before.opened:
        cause = f"{counted(now.failures, 'failure')} in a row" if before.state == "closed" else "a probe failed"
        open_for = breaker.open_for.total_seconds()
        _log.warning(
            "breaker of resource %s opened (%s): no job that needs it starts for %g s", resource, cause, open_for
        )
    elif before.state == "open" and now.state == "closed":
        _log.info("breaker of resource %s closed: the resource works again", resource)
    elif now.probing and not before.probing:
        _log.info("breaker of resource %s lets a probe through", resource)
