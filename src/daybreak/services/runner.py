"""Runs services side by side; one that fails is tried again and stops no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from daybreak.core.errors import StoreError
from daybreak.services.janitor import Janitor
from daybreak.services.reaper import Reaper, pace
from daybreak.services.scheduler import Scheduler
from daybreak.store.protocol import Store
from daybreak.system import patience
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.services")
LONGEST_PAUSE = timedelta(seconds=2)  # spread to three; with one lease of watching behind it, within two leases


class Service(Protocol):
    async def tick(self) -> timedelta:
        """Do what is due; answer how long nothing more will be."""
        ...


def crew(store: Store, world: World, *, name: str, lease_for: timedelta = timedelta(seconds=7)) -> list[Service]:
    """The services that every worker runs; together they ask the store less than once a second while nothing happens.

    `lease_for` is how long the worker's own leases are: what a dead one held is free within that and one pace."""
    return [
        Reaper(store, world, name=name, every=pace(lease_for), lease_for=lease_for),
        Scheduler(store),
        Janitor(store, world, name=name),
    ]


async def run(services: Sequence[Service], world: World) -> None:
    """Tick for ever, each service at its own pace."""
    patience.unbound()
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(_run(service, world))


async def _run(service: Service, world: World) -> None:
    pause = timedelta(milliseconds=100)
    while True:
        try:
            delay = await service.tick()
            pause = timedelta(milliseconds=100)
        except Exception as error:  # noqa: BLE001 - whatever ails one tick, the next is made, and the others go on
            # Spread out, so that many workers do not come back to a store in the same instant.
            delay = pause * (0.5 + world.chance.random())
            pause = min(pause * 2, LONGEST_PAUSE)
            known = isinstance(error, StoreError)
            _log.warning(
                "%s: %s; trying again in %.1f s",
                type(service).__name__.lower(),
                error if known else repr(error),
                delay.total_seconds(),
                exc_info=None if known else error,
            )
        await world.sleep(delay)
