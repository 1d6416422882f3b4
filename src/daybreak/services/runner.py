"""Runs services side by side. A service that fails is retried and does not affect the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

from daybreak.core.errors import StoreError
from daybreak.files import FileStore
from daybreak.services.file_collector import FileCollector
from daybreak.services.janitor import Janitor
from daybreak.services.queue_watch import QueueWatch
from daybreak.services.reaper import OnSettled, Reaper, reap_interval
from daybreak.services.saga_driver import SagaDriver
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.services.scheduler import Scheduler
from daybreak.services.trend_sampler import TrendSampler
from daybreak.store.protocol import Store, Watch
from daybreak.system import patience
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.services")

# Up to three seconds with the random spread. With the one lease for which a reaper watches after an outage, the jobs of
# a dead worker are free within two leases.
MAX_PAUSE: Final = timedelta(seconds=2)


class Service(Protocol):
    """A part that keeps the store in order, one `tick` at a time."""

    async def tick(self) -> timedelta:
        """Do what is due, and return the delay until the next tick."""
        ...


@runtime_checkable
class WatchingService(Service, Protocol):
    """A service that also ticks when something changes."""

    def watch(self) -> Watch:
        """A watch that wakes it before its delay is over."""
        ...


@runtime_checkable
class ClosingService(Service, Protocol):
    """A service that has something to end when it is stopped."""

    async def close(self) -> None:
        """End what it started."""
        ...


def default_services(
    store: Store,
    world: World,
    *,
    name: str,
    lease_for: timedelta = timedelta(seconds=7),
    on_reaped: OnSettled | None = None,
    files: FileStore | None = None,
) -> list[Service]:
    """The services that every worker runs. Together they call an idle store less than once a second.

    `lease_for` is the length of the worker's own leases: a job of a dead worker is free within that and one reap
    interval. `on_reaped` is called for each job of a dead worker. `files` are the contents from which those that
    nothing needs are deleted."""
    collector = [] if files is None else [FileCollector(files, store, world, name=name)]
    return [
        Reaper(store, world, name=name, every=reap_interval(lease_for), lease_for=lease_for, on_settled=on_reaped),
        Scheduler(store),
        ScheduleTicker(store, world),
        SagaDriver(store, world, name=name),
        Janitor(store, world, name=name),
        TrendSampler(store, world),
        QueueWatch(store, world, name=name),
        *collector,
    ]


async def run(services: Sequence[Service], world: World) -> None:
    """Run all services until cancelled, each at its own interval."""
    patience.unbound()
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(_run(service, world))


async def _run(service: Service, world: World) -> None:
    watch = service.watch() if isinstance(service, WatchingService) else None
    try:
        await _run_watched(service, world, watch)
    finally:
        if watch is not None:
            watch.close()
        if isinstance(service, ClosingService):
            await service.close()


async def _run_watched(service: Service, world: World, watch: Watch | None) -> None:
    pause = timedelta(milliseconds=100)
    while True:
        try:
            delay = await service.tick()
            pause = timedelta(milliseconds=100)
            if watch is not None:
                await watch.wait(delay)
                continue
        except Exception as error:  # noqa: BLE001 - whatever fails, this service is retried and the others go on
            # Random, so that many workers do not return to a store at the same instant.
            delay = pause * (0.5 + world.chance.random())
            pause = min(pause * 2, MAX_PAUSE)
            is_store_error = isinstance(error, StoreError)
            _log.warning(
                "%s: %s; trying again in %.1f s",
                type(service).__name__.lower(),
                error if is_store_error else repr(error),
                delay.total_seconds(),
                exc_info=None if is_store_error else error,
            )
        await world.sleep(delay)
