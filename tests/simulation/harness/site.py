"""Everything one simulation shares: its loop, worlds, history, network, store, processes and counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from daybreak.client.client import Client
from daybreak.core.events import Event
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.worker import Worker
from harness.history import History
from harness.loop import SimLoop, run_now
from harness.network import Network
from harness.plan import Plan
from harness.process import Process
from harness.wire import Wire
from harness.world import ProcessWorld, SimWorld

StoreFactory = Callable[[World], Store]
SKEWS: Final = tuple(seconds * 1_000_000 for seconds in (0, 0, 90, -90, 3600, -86_400))


@dataclass(frozen=True)
class Parts:
    """What is under test beside the store; the planted bugs bring their own."""

    client: type[Client] = Client
    reaper: type[Reaper] = Reaper
    reuse_names: bool = False


@dataclass
class Site:
    plan: Plan
    loop: SimLoop
    world: SimWorld
    store: Store
    factory: StoreFactory
    parts: Parts
    history: History
    network: Network
    fate: Random
    sometimes: Counter[str] = field(default_factory=Counter)
    worlds: dict[str, ProcessWorld] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    workers: list[Process] = field(default_factory=list)
    running: dict[str, Worker] = field(default_factory=dict)
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
        process = self.processes[name] = Process(name, self.loop)
        if (left := self.frozen_until - self.loop.time()) > 0:
            self.freeze(process, left)  # on a machine that stands still nothing starts either
        return process

    def world_of(self, process: Process) -> ProcessWorld:
        if process.name not in self.worlds or self.worlds[process.name].process is not process:
            world = self.worlds[process.name] = ProcessWorld(self.world, process)
            if self.plan.has("skew") and not self.calm:
                world.offset = self.fate.choice(SKEWS)
        return self.worlds[process.name]

    def wire(self, process: Process) -> Wire:
        """The store as this process reaches it. One that processes share is opened by each of them, as in life."""
        if not self.store.traits.shared:
            return Wire(self, process, self.store, self.world)
        world = self.world_of(process)
        store = run_now(self.factory(world).open())
        process.at_end(lambda: run_now(store.close()))
        return Wire(self, process, store, world)

    def new_events(self) -> list[Event]:
        """What was committed since the last look, straight from the store."""
        found: list[Event] = []
        while True:
            feed = run_now(self.store.events(self.cursor))
            self.cursor = feed.cursor
            if not feed.events:
                return found
            found += feed.events

    def freeze(self, process: Process, seconds: float) -> None:
        self.history.freeze(process.name, seconds)
        process.freeze(seconds)

    def saw(self, what: str, times: int = 1) -> None:
        self.sometimes[what] += times
