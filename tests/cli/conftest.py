"""A folder with a store, the command line in it, and ways to bring jobs into any state."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daybreak.cli.root import root
from daybreak.client.client import Client
from daybreak.core.model import Done, Failed, Failure, HandedBack, Job, Outcome
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.stores.sqlite import SqliteStore
from daybreak.worker.supervisor.worker_record import WorkerRecord

FOREVER = timedelta(hours=1)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing of the machine that runs the tests shows in them."""
    for name in list(os.environ):
        if name.startswith("DAYBREAK_") or name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    if hasattr(time, "tzset"):
        time.tzset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Result]:
    """Runs a command line in this process; its exit code must be `code`."""

    def run(*words: str, code: int | None = 0, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(root, list(words), input=stdin)
        if code is not None:
            assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def ask(cli: Callable[..., Result]) -> Callable[..., Any]:
    """The JSON that a command line prints."""
    return lambda *words, **how: json.loads(cli(*words, **how).stdout)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program as a process of its own; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, **how: Any) -> subprocess.Popen[str]:
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, **how}
        started.append(subprocess.Popen([sys.executable, "-m", "daybreak.cli", *words], text=True, **how))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def until() -> Callable[..., Any]:
    """Looks again and again until it is so; fails after half a minute."""

    def wait(is_so: Callable[[], Any], patience: float = 30) -> Any:
        give_up = time.monotonic() + patience
        while not (found := is_so()):
            assert time.monotonic() < give_up, "waited too long"
            time.sleep(0.02)
        return found

    return wait


class Place:
    """The default store of the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "daybreak.db"

    def do(self, what: Callable[[Client], Awaitable[Any]]) -> Any:
        async def opened() -> Any:
            async with SqliteStore(self.path) as store:
                return await what(Client(store, by="ann"))

        return asyncio.run(opened())

    def submit(self, task: str = "mail", args: dict[str, Any] | None = None, **options: Any) -> str:
        return self.do(lambda client: client.submit(task, args, **options))

    def get(self, job: str) -> Job:
        return self.do(lambda client: client.get(job))

    def end(self, outcome: Outcome, task: str = "mail", args: dict[str, Any] | None = None, **options: Any) -> str:
        """A job that ended so."""

        async def run(client: Client) -> str:
            job, lease = await _leased(client, task, args, options)
            settlement = settle(lease, outcome, chance=0.5, by=lease.worker)
            await client.store.exchange(Exchange(settle=[settlement]))
            return job

        return self.do(run)

    def complete(self, result: bytes | None = b'"ok"', task: str = "mail", **options: Any) -> str:
        return self.end(Done(result), task, **options)

    def fail(self, message: str = "no", task: str = "mail", *, kind: str = "ValueError", **options: Any) -> str:
        trace = f'Traceback (most recent call last):\n  File "mail.py", line 7, in send\n{kind}: {message}'
        return self.end(Failed(Failure(message=message, kinds=(kind,), traceback=trace)), task, **options)

    def run(self, task: str = "mail", *, progress: float | None = None, message: str = "", **options: Any) -> str:
        """A job that runs, held by worker w1."""

        async def start(client: Client) -> str:
            job, lease = await _leased(client, task, None, options)
            beat = Beat(seq=lease.seq, fence=lease.fence, lease_for=FOREVER, progress=progress, message=message)
            await client.store.extend([beat])
            return job

        return self.do(start)

    def worker(self, *tasks: str | tuple[str, int], seen: timedelta = timedelta(), **about: Any) -> None:
        """The record of a worker, last seen so long ago."""
        now = datetime.now(UTC)
        pairs = tuple((task, 1) if isinstance(task, str) else task for task in tasks)
        about = {"id": "w1-id", "name": "w1", "host": "box", "pid": 7, "queues": ("default",), **about}
        record = WorkerRecord(started_at=now - seen - timedelta(minutes=5), seen_at=now - seen, tasks=pairs, **about)
        self.do(lambda client: client.store.put([record.put()]))


async def _leased(client: Client, task: str, args: dict[str, Any] | None, options: dict[str, Any]) -> tuple[str, Any]:
    job = await client.submit(task, args, **options)
    claim = Claim(worker="w1", queues=(options.get("queue", "default"),), limit=1000, lease_for=FOREVER)
    leases = (await client.store.exchange(Exchange(claim=claim))).leases
    [lease] = [lease for lease in leases if lease.job == job]
    others = [settle(other, HandedBack(), chance=0.5, by="w1") for other in leases if other is not lease]
    await client.store.exchange(Exchange(settle=others))
    return job, lease


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class AwaitedPlace(Place):
    """A place for tests that run on a loop themselves."""

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def do(self, what: Callable[[Client], Awaitable[Any]]) -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(super().do, what).result()


@pytest.fixture
def aplace(tmp_path: Path) -> AwaitedPlace:
    return AwaitedPlace(tmp_path)
