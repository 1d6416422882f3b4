"""Processes as they are deployed: a worker with its services, started, killed and started again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from daybreak.services import runner
from daybreak.services.janitor import Janitor
from daybreak.services.scheduler import Scheduler
from daybreak.store.protocol import Purge
from harness.plan import LEASE, REAP_EVERY
from harness.process import Process

if TYPE_CHECKING:
    from harness.site import Site

KNOWN: Final = frozenset({("work", 1)})
KNOWN_LATER: Final = KNOWN | {("late", 1)}
# The whole feed is kept: the reader may be cut off for long, and the checker compares all of it.
PURGE: Final = Purge(events_for=timedelta(days=30))


def start_worker(site: Site, tasks: frozenset[tuple[str, int]], *, name: str | None = None) -> Process:
    process = site.process("worker", name=name)
    worker = site.parts.worker(site, process, tasks)
    world, store = site.world_of(process), worker.store
    services: list[runner.Service] = [
        site.parts.reaper(store, world, name=process.name, every=REAP_EVERY, lease_for=LEASE),
        Scheduler(store),
        Janitor(store, world, name=process.name, purge=PURGE, every=timedelta(seconds=20)),
    ]
    site.history.note(process.name, "starts")
    process.spawn(worker.run())
    process.spawn(runner.run(services, world))
    return process


async def keep_manned(site: Site, tasks: frozenset[tuple[str, int]]) -> None:
    """One place at which a worker stands: when it dies another comes, under a new identity."""
    process = start_worker(site, tasks)
    site.workers.append(process)
    while True:
        await asyncio.sleep(0.5)
        if not process.alive:
            await asyncio.sleep(0.1 if site.calm else site.fate.uniform(0.1, 5.0))
            at = site.workers.index(process)
            process = start_worker(site, tasks, name=process.name if site.parts.reuse_names else None)
            site.workers[at] = process
