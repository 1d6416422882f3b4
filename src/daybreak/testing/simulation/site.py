"""Everything one simulation shares: its loop, worlds, history, network, store, processes and counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from daybreak.client import Client
from daybreak.events import Event
from daybreak.services.reaper import Reaper
from daybreak.store import Store
from daybreak.testing.simulation.history import History
from daybreak.testing.simulation.loop import run_now
from daybreak.testing.simulation.network import Network
from daybreak.testing.simulation.plan import Plan
from daybreak.testing.simulation.process import Process
from daybreak.testing.simulation.worker import SimWorker
from daybreak.testing.simulation.world import ProcessWorld, SimWorld
from daybreak.world import World

StoreFactory = Callable[[World], Store]


@dataclass(frozen=True)
class Parts:
    """What is under test beside the store; the planted bugs bring their own."""

    client: type[Client] = Client
    reaper: type[Reaper] = Reaper
    worker: type[SimWorker] = SimWorker
    reuse_names: bool = False


@dataclass
class Site:
    plan: Plan
    loop: asyncio.AbstractEventLoop
    world: SimWorld
    store: Store
    factory: StoreFactory
    parts: Parts
    history: History
    network: Network
    fate: Random
    sometimes: Counter[str] = field(default_factory=Counter)
    processes: dict[str, Process] = field(default_factory=dict)
    workers: list[Process] = field(default_factory=list)
    calm: bool = False
    cursor: str | None = None
    names: int = 0
    shift: float = 0.0
    frozen_until: float = 0.0

    def process(self, kind: str, *, name: str | None = None) -> Process:
        """A new process; its identity was never used before."""
        if name is None:
            self.names += 1
            name = f"{kind}-{self.names}"
        process = Process(name, self.loop)
        process.frozen_until = self.frozen_until  # on a machine that stands still nothing starts either
        self.processes[name] = process
        return process

    def world_of(self, process: Process) -> ProcessWorld:
        return ProcessWorld(self.world, process)

    def store_of(self, world: ProcessWorld) -> Store:
        """A store that processes share is opened by each of them, as in life; one in memory is the same for all."""
        if not self.store.traits.shared:
            return self.store
        return run_now(self.factory(world).open())

    def new_events(self) -> list[Event]:
        """What was committed since the last look, straight from the store."""
        found: list[Event] = []
        while True:
            feed = run_now(self.store.events(self.cursor))
            self.cursor = feed.cursor
            if not feed.events:
                return found
            found += feed.events

    def saw(self, what: str, times: int = 1) -> None:
        self.sometimes[what] += times
