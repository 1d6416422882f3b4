"""What goes wrong from outside, at the times that the plan says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from harness.history import Window
from harness.loop import START
from harness.plan import LEASE_SECONDS

if TYPE_CHECKING:
    from harness.site import Site

FROZEN: Final = 10 * LEASE_SECONDS
DAY: Final = 86_400 * 1_000_000


async def strike(site: Site) -> None:
    """Every fault of the plan, then quiet."""
    for at, kind in site.plan.faults:
        await asyncio.sleep(max(0.0, START + at + site.shift - site.loop.time()))
        _FAULTS[kind](site)
        if kind == "freeze_all":
            await asyncio.sleep(FROZEN)
    await asyncio.sleep(max(0.0, START + site.plan.chaos_for + site.shift - site.loop.time()))


def crash(site: Site) -> None:
    process = site.fate.choice(site.workers)
    if process.alive:
        site.saw("worker crashed")
        site.history.crash(process.name)
        process.kill()


def stop(site: Site) -> None:
    """Someone stops a worker, and some do not wait until it has finished."""
    process = site.fate.choice(site.workers)
    worker = site.running.get(process.name)
    if process.alive and worker is not None:
        site.history.note(process.name, "is asked to stop")
        process.call_soon(worker.stop)
        if site.fate.random() < 0.3:
            process.call_later(site.fate.uniform(0, 3), worker.stop)


def freeze(site: Site) -> None:
    """0.2 to 10 leases; longer than one lease, and what it holds is given to others while it still believes."""
    process = site.fate.choice(site.workers)
    seconds = LEASE_SECONDS * 10 ** site.fate.uniform(-0.7, 1)
    site.saw("zombie woke" if seconds > LEASE_SECONDS else "short freeze")
    site.freeze(process, seconds)


def freeze_child(site: Site) -> None:
    """Someone stops a child, and lets it go on after a while; its supervisor goes on meanwhile."""
    children = [process for name, process in site.processes.items() if name.startswith("child") and process.alive]
    if children:
        site.saw("child froze")
        site.freeze(site.fate.choice(children), site.fate.uniform(0.5, 45.0))


def freeze_all(site: Site) -> None:
    """A suspended machine: workers and reapers stop together, and afterwards nobody may be charged for it."""
    site.saw("all froze")
    site.shift += FROZEN  # what is planned for later comes later
    _window(site, FROZEN, "freeze of all")
    site.frozen_until = site.loop.time() + FROZEN
    for process in site.processes.values():
        if process.alive:
            site.freeze(process, FROZEN + site.fate.uniform(0, 0.2))


def outage(site: Site) -> None:
    """The store cannot be reached: calls fail."""
    seconds = site.fate.uniform(0.5, 18.0)
    site.network.silent_until = max(site.network.silent_until, site.loop.time() + seconds)
    _window(site, seconds, "outage")


def stall(site: Site) -> None:
    """The store cannot be reached: calls hang, and all are performed when it comes back, in any order.

    Not a reap: it states what its sender knew when it was sent, so one that hangs longer than a lease takes over
    from holders that hang beside it. Fails as in an outage here, until the seam can tell (see `Reap.watched_for`)."""
    seconds = site.fate.uniform(0.5, 18.0)
    site.network.stalled_until = max(site.network.stalled_until, site.loop.time() + seconds)
    site.saw("store hung")
    _window(site, seconds, "stall")


def clock(site: Site) -> None:
    """Someone sets the store's wall clock, by a day."""
    before = site.world.offset
    site.world.offset = site.fate.choice([step for step in (-DAY, 0, DAY) if step != before])
    site.saw("clock stepped back" if site.world.offset < before else "clock stepped forth")
    site.history.note("world", "clock set", site.world.offset - before)


def client_crash(site: Site) -> None:
    callers = [process for name, process in site.processes.items() if name.startswith("caller") and process.alive]
    if callers:
        process = site.fate.choice(callers)
        site.saw("client crashed")
        site.history.crash(process.name)
        process.kill()


def calm(site: Site) -> None:
    """Nothing goes wrong from now on."""
    site.calm = site.network.calm = True
    for world in (site.world, *site.worlds.values()):
        world.offset = 0
    for process in site.processes.values():
        process.thaw()
    site.history.quiet_from = site.world.steady()
    site.history.note("world", "quiet")


def _window(site: Site, seconds: float, what: str) -> None:
    now = site.world.steady()
    site.history.windows.append(Window(now, now + round(seconds * 1e6), what))
    site.history.note("world", what, round(seconds, 6))


_FAULTS: Final = {
    "crash": crash,
    "stop": stop,
    "freeze": freeze,
    "freeze_child": freeze_child,
    "freeze_all": freeze_all,
    "outage": outage,
    "stall": stall,
    "clock": clock,
    "client_crash": client_crash,
}
