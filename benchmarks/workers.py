"""Workers as processes of their own: how each library's is started, how jobs reach it, when it has done everything."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from benchmarks.starts import Starts, wait_until

ROOT = Path(__file__).resolve().parent.parent
STOPPED_WITHIN = 30
FULL, NORMAL = "2", "1"


class Process:
    """A worker in a session of its own; leaving the block ends it and everything it started."""

    def __init__(self, command: Sequence[str], place: Path, name: str = "worker") -> None:
        self._log = place / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> bool:
        """True while it lives; what it said last, as an error, otherwise."""
        if (code := self._process.poll()) is None:
            return True
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise RuntimeError(f"the worker ended with {code}: {said[-1] if said else 'it said nothing'}")

    def kill(self) -> None:
        """The supervisor alone, as the system's killer of the greedy would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOPPED_WITHIN)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


class Runner(Protocol):
    """A library, its store in the case's directory, and one worker of it with default settings."""

    def submit(self, n: int) -> object: ...

    def submit_urgent(self, n: int) -> object: ...

    def fill(self, jobs: int) -> None: ...

    def is_done(self) -> bool:
        """Whether everything that began has been settled, as far as the library tells."""
        ...

    def work(self) -> Process: ...

    def facts(self) -> dict[str, str]: ...


# -- Daybreak ----------------------------------------------------------------------------------------------------------


class Ours:
    def __init__(self, place: Path, app: str = "coro", task: str = "noop") -> None:
        os.environ["DAYBREAK_URL"] = f"sqlite:///{place / 'daybreak.db'}"
        self.place = place
        self.app = getattr(importlib.import_module("benchmarks.apps.ours"), app)
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

    def is_done(self) -> bool:
        return bool(self.app.queue("default").stats().active == 0)

    def work(self, *options: str, app: str | None = None, name: str = "worker") -> Process:
        command = [sys.executable, "-m", "daybreak.cli", "worker", f"benchmarks.apps.ours:{app or self._name}"]
        return Process([*command, *options], self.place, name)

    def facts(self) -> dict[str, str]:
        return {}


# -- peers -------------------------------------------------------------------------------------------------------------


class Huey:
    def __init__(self, place: Path, *kind: str) -> None:
        from benchmarks.apps import huey_app

        self._place = place
        self._kind = kind or ("-k", "thread", "-w", "1")
        self._app = huey_app

    def submit(self, n: int) -> object:
        return self._app.noop(n)

    def submit_urgent(self, n: int) -> object:
        return self._app.noop(n, priority=10)

    def fill(self, jobs: int) -> None:
        for n in range(jobs):
            self._app.noop(n)

    def is_done(self) -> bool:
        return True

    def work(self) -> Process:
        module = "huey.bin.huey_consumer"
        return Process([sys.executable, "-m", module, "benchmarks.apps.huey_app.queue", *self._kind, "-q"], self._place)

    def facts(self) -> dict[str, str]:
        return {"synchronous": str(self._app.queue.storage.sql("PRAGMA synchronous", results=True)[0][0])}


class PersistAck:
    def __init__(self, place: Path) -> None:
        from persistqueue import SQLiteAckQueue

        self._place = place
        self._queue = SQLiteAckQueue(str(place / "persist"))

    def submit(self, n: int) -> object:
        return self._queue.put({"n": n})

    submit_urgent = submit  # it has no priorities

    def fill(self, jobs: int) -> None:
        for n in range(jobs):
            self.submit(n)

    def is_done(self) -> bool:
        return True

    def work(self) -> Process:
        return Process([sys.executable, "-m", "benchmarks.apps.persist_loop"], self._place)

    def facts(self) -> dict[str, str]:
        return {"synchronous": str(self._queue._putter.execute("PRAGMA synchronous").fetchone()[0])}


class Taskito:
    def __init__(self, place: Path) -> None:
        os.environ["TASKITO_LOG_LEVEL"] = "WARNING"
        from benchmarks.apps import taskito_app

        self._place = place
        self._app = taskito_app
        self._task = taskito_app.async_noop

    def submit(self, n: int) -> object:
        return self._task.delay(n)

    def submit_urgent(self, n: int) -> object:
        return self._task.apply_async(args=(n,), priority=10)

    def fill(self, jobs: int) -> None:
        self._task.map([(n,) for n in range(jobs)])

    def is_done(self) -> bool:
        stats = self._app.queue.stats()
        return not stats.get("pending") and not stats.get("running")

    def work(self) -> Process:
        command = [sys.executable, "-m", "taskito.cli", "worker", "--app", "benchmarks.apps.taskito_app:queue"]
        return Process(command, self._place)

    def facts(self) -> dict[str, str]:
        # Its connections live in compiled code and answer no question; what that code sets stands in it.
        from taskito import _taskito

        compiled = Path(_taskito.__file__).read_bytes()
        return {"synchronous": NORMAL if b"PRAGMA synchronous = NORMAL" in compiled else "unknown"}


class Celery:
    """On a Redis of its own, which keeps nothing on disk."""

    def __init__(self, place: Path) -> None:
        port = _free_port()
        os.environ["DAYBREAK_BENCH_REDIS"] = f"redis://127.0.0.1:{port}/0"
        self._place = place
        server = shutil.which("redis-server")
        assert server, "there is no redis-server"
        words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(place)]
        self.server = Process([server, *words], place, "redis")
        wait_until(lambda: _is_open(port), "the start of Redis", within=20)
        from benchmarks.apps import celery_app

        self._task = celery_app.noop

    def submit(self, n: int) -> object:
        return self._task.delay(n)

    submit_urgent = submit

    def fill(self, jobs: int) -> None:
        for n in range(jobs):
            self.submit(n)

    def is_done(self) -> bool:
        return True

    def work(self) -> Process:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]
        command = ["-m", "celery", "-A", "benchmarks.apps.celery_app:queue", "worker", "-P", "prefork", "-c", "2"]
        return Process([sys.executable, *command, *quiet], self._place)

    def facts(self) -> dict[str, str]:
        return {"store": "Redis, nothing on disk"}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


RUNNERS = {
    "sqlite": Ours,
    "sqlite-sync": lambda place: Ours(place, "plain", "plain_noop"),
    "huey": Huey,
    "huey-process": lambda place: Huey(place, "-k", "process", "-w", "2"),
    "persist-ack": PersistAck,
    "taskito": Taskito,
    "celery": Celery,
}


@contextmanager
def runner_for(name: str, place: Path) -> Iterator[Runner]:
    with ExitStack() as around:
        runner: Runner = RUNNERS[name](place)
        if isinstance(runner, Celery):
            around.enter_context(runner.server)
        if isinstance(runner, Ours):
            around.callback(runner.app.close)
        yield runner


@contextmanager
def at_work(runner: Runner, starts: Starts) -> Iterator[Process]:
    """A worker that has run something already and now has nothing to do."""
    with runner.work() as worker:
        warm_up(runner, starts, worker)
        yield worker


def warm_up(runner: Runner, starts: Starts, worker: Process, jobs: int = 20) -> None:
    for n in range(jobs):
        runner.submit(n)
    wait_until(lambda: worker.check() and len(starts) >= jobs, "the worker's first jobs", within=60)
    wait_until(runner.is_done, "the end of the worker's first jobs", within=60)
    time.sleep(0.5)
    starts.forget()
