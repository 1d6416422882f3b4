"""Workers as processes of their own: how each library's is started, how jobs reach it, when it has done everything.

A runner is named by its store and itself: sqlite/ours, redis/celery. The store is opened for it."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from benchmarks.processes import Process
from benchmarks.servers import Server
from benchmarks.starts import Starts, wait_until
from benchmarks.stores import opened

FULL, NORMAL = "2", "1"


class Runner(Protocol):
    """A library, its store, and workers of it with default settings."""

    def submit(self, n: int) -> object: ...

    def submit_urgent(self, n: int) -> object: ...

    def fill(self, jobs: int) -> None: ...

    def is_done(self) -> bool:
        """Whether every started job is settled, as far as the library shows it."""
        ...

    def work(self, *, name: str = "worker") -> Process: ...

    def facts(self) -> dict[str, str]: ...

    def close(self) -> None: ...


# -- Daybreak ----------------------------------------------------------------------------------------------------------


class Ours:
    def __init__(self, place: Path, server: Server, app: str = "coro", task: str = "noop") -> None:
        self.place = place
        self.server = server
        self.app = getattr(importlib.import_module("benchmarks.apps.ours"), app)
        self.app.use(server.url)
        self._name = app
        self.task = self.app.find_task(task)
        self._urgent = self.task.using(priority="critical")
        self._low = self.task.using(priority="low")

    def submit(self, n: int) -> object:
        return self.task.submit(n)

    def submit_urgent(self, n: int) -> object:
        return self._urgent.submit(n)

    def fill(self, jobs: int, **arguments: Any) -> None:
        self._low.submit_many([{"n": n, **arguments} for n in range(jobs)])

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Pause: no job starts meanwhile."""
        queue = self.app.queue("default")
        queue.pause()
        yield
        queue.resume()

    def is_done(self) -> bool:
        return bool(self.app.queue("default").stats().active == 0)

    def work(self, *options: str, app: str | None = None, name: str = "worker") -> Process:
        command = [sys.executable, "-m", "daybreak.cli", "worker", f"benchmarks.apps.ours:{app or self._name}"]
        return Process([*command, *options], self.place, name)

    def workers(self) -> int:
        """How many workers have reported that they are ready."""

        async def count() -> int:
            return len(await (await self.app.client()).store.records("worker"))

        return self.app.portal.run(count())

    def facts(self) -> dict[str, str]:
        return self.server.facts()

    def close(self) -> None:
        self.app.close()


@contextmanager
def ours(store: str, place: Path, app: str = "coro", task: str = "noop", *, counting: bool = False) -> Iterator[Ours]:
    with opened(store, place, counting=counting) as server:
        runner = Ours(place, server, app, task)
        try:
            yield runner
        finally:
            runner.close()


# -- peers on servers --------------------------------------------------------------------------------------------------


class Served:
    """A peer as its module in apps/ describes it. Its worker is killed at the end, because some stop slowly."""

    def __init__(self, place: Path, server: Server, module: str) -> None:
        self._place = place
        self._server = server
        self._app = importlib.import_module(f"benchmarks.apps.{module}")
        if hasattr(self._app, "prepare"):
            self._app.prepare()
        self.enqueue: Callable[[range], None] = self._app.enqueue
        self.bulk: Callable[[range], None] | None = getattr(self._app, "bulk", None)

    def submit(self, n: int) -> object:
        return self.enqueue(range(n, n + 1))

    def submit_urgent(self, n: int) -> object:
        return self._app.urgent(n)

    def fill(self, jobs: int) -> None:
        (self.bulk or self.enqueue)(range(jobs))

    def is_done(self) -> bool:
        return True

    def work(self, *, name: str = "worker") -> Process:
        command = getattr(self._app, "COMMAND", None) or (sys.executable, *self._app.WORKER)
        return Process(command, self._place, name, stop=signal.SIGKILL)

    def facts(self) -> dict[str, str]:
        told = self._app.versions() if hasattr(self._app, "versions") else _versions(self._app.PACKAGES)
        return {"version": ", ".join(f"{name} {number}" for name, number in told.items())} | self._server.facts()

    def close(self) -> None:
        if hasattr(self._app, "close"):
            self._app.close()


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    return {package: version(package) for package in packages}


# -- peers on SQLite ---------------------------------------------------------------------------------------------------


class _OnFile:
    """The common parts of peers on SQLite: one job after another, and nothing to close."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def submit(self, n: int) -> object:
        raise NotImplementedError

    def enqueue(self, numbers: range) -> None:
        for n in numbers:
            self.submit(n)

    bulk: Callable[[range], None] | None = None

    def fill(self, jobs: int) -> None:
        (self.bulk or self.enqueue)(range(jobs))

    def is_done(self) -> bool:
        return True

    def close(self) -> None: ...


class Huey(_OnFile):
    def __init__(self, place: Path, *kind: str) -> None:
        from benchmarks.apps import huey_app

        super().__init__(place)
        self._kind = kind or ("-k", "thread", "-w", "1")
        self._app = huey_app

    def submit(self, n: int) -> object:
        return self._app.noop(n)

    def submit_urgent(self, n: int) -> object:
        return self._app.noop(n, priority=10)

    def work(self, *, name: str = "worker") -> Process:
        module = "huey.bin.huey_consumer"
        command = [sys.executable, "-m", module, "benchmarks.apps.huey_app.queue", *self._kind, "-q"]
        return Process(command, self._place, name)

    def facts(self) -> dict[str, str]:
        return _synchronous(self._app.queue.storage.sql("PRAGMA synchronous", results=True)[0])


class PersistAck(_OnFile):
    def __init__(self, place: Path) -> None:
        from persistqueue import SQLiteAckQueue

        super().__init__(place)
        self._queue = SQLiteAckQueue(str(place / "persist"))

    def submit(self, n: int) -> object:
        return self._queue.put({"n": n})

    submit_urgent = submit  # it has no priorities

    def work(self, *, name: str = "worker") -> Process:
        return Process([sys.executable, "-m", "benchmarks.apps.persist_loop"], self._place, name)

    def facts(self) -> dict[str, str]:
        return _synchronous(self._queue._putter.execute("PRAGMA synchronous").fetchone())


class PersistPriority(_OnFile):
    """Only for submits, as is litequeue: neither has a worker."""

    def __init__(self, place: Path) -> None:
        from persistqueue import PriorityQueue

        super().__init__(place)
        self._queue = PriorityQueue(str(place))

    def submit(self, n: int) -> object:
        return self._queue.put({"n": n}, priority=n % 5)

    def facts(self) -> dict[str, str]:
        return _synchronous(self._queue._putter.execute("PRAGMA synchronous").fetchone())


class LiteQueue(_OnFile):
    def __init__(self, place: Path) -> None:
        from litequeue import LiteQueue as Queue

        super().__init__(place)
        self._queue = Queue(str(place / "lite.db"))

    def submit(self, n: int) -> object:
        return self._queue.put(str(n))

    def facts(self) -> dict[str, str]:
        return _synchronous(self._queue.conn.execute("PRAGMA synchronous").fetchone())


class Taskito(_OnFile):
    def __init__(self, place: Path) -> None:
        os.environ["TASKITO_LOG_LEVEL"] = "WARNING"
        from benchmarks.apps import taskito_app

        super().__init__(place)
        self._app = taskito_app
        self._task = taskito_app.async_noop

    def submit(self, n: int) -> object:
        return self._task.delay(n)

    def submit_urgent(self, n: int) -> object:
        return self._task.apply_async(args=(n,), priority=10)

    def bulk(self, numbers: range) -> None:
        self._task.map([(n,) for n in numbers])

    def is_done(self) -> bool:
        stats = self._app.queue.stats()
        return not stats.get("pending") and not stats.get("running")

    def work(self, *, name: str = "worker") -> Process:
        command = [sys.executable, "-m", "taskito.cli", "worker", "--app", "benchmarks.apps.taskito_app:queue"]
        return Process(command, self._place, name)

    def facts(self) -> dict[str, str]:
        # Its connections live in compiled code and answer no question; what that code sets stands in it.
        from taskito import _taskito

        compiled = Path(_taskito.__file__).read_bytes()
        return {"synchronous": NORMAL if b"PRAGMA synchronous = NORMAL" in compiled else "unknown"}


def _synchronous(told: Any) -> dict[str, str]:
    return {"synchronous": str(told[0])}


# -- by name -----------------------------------------------------------------------------------------------------------


ON_FILE: dict[str, Callable[[Path], Any]] = {
    "huey": Huey,
    "huey-process": lambda place: Huey(place, "-k", "process", "-w", "2"),
    "persist-ack": PersistAck,
    "persist-priority": PersistPriority,
    "litequeue": LiteQueue,
    "taskito": Taskito,
}
SERVED = {
    ("redis", "huey"): "huey_redis_app",
    ("postgres", "taskito"): "taskito_postgres_app",
}
APPS = {"ours": ("coro", "noop"), "ours-sync": ("plain", "plain_noop"), "ours-sharing": ("sharing", "noop")}


@contextmanager
def runner_for(name: str, place: Path) -> Iterator[Any]:
    """A `Runner`; peers also have `enqueue`, and `bulk` where they have such a call."""
    store, _, who = name.partition("/")
    if who in APPS:
        with ours(store, place, *APPS[who]) as runner:
            yield runner
        return
    with opened(store, place) as server:
        theirs = ON_FILE[who](place) if store == "sqlite" else _served(store, who, place, server)
        try:
            yield theirs
        finally:
            theirs.close()


def _served(store: str, who: str, place: Path, server: Server) -> Served:
    return Served(place, server, SERVED.get((store, who), f"{who}_app"))


@contextmanager
def at_work(runner: Runner, starts: Starts) -> Iterator[Process]:
    """A worker that has run something already and now has nothing to do."""
    with runner.work() as worker:
        warm_up(runner, starts, worker)
        yield worker


def warm_up(runner: Runner, starts: Starts, *workers: Process, jobs: int = 20) -> None:
    for n in range(jobs):
        runner.submit(n)
    wait_until(
        lambda: all(worker.check() for worker in workers) and len(starts) >= jobs, "the workers' first jobs", within=60
    )
    wait_until(runner.is_done, "the end of the workers' first jobs", within=60)
    time.sleep(0.5)
    starts.forget()
