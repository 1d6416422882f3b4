"""Workers and clients on a server: starts and kills them, submits their jobs, and finds who holds which job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from player_processes import LONG, count
from worker_load import aeffect, app, effect
from worker_processes import WorkerProcess, ask, thaw, until

from daybreak import Client
from daybreak.core.model import UNFINISHED, Job, State

TARGET = Path(__file__).with_name("worker_load.py")
CLIENT = Path(__file__).with_name("server_client.py")
LEASE = count(1, 2)  # seconds
LEASES = (LEASE,) if LONG else (LEASE, 2 * LEASE, 5 * LEASE)
"""To be tried in turn where no living worker may be given up: on a busy machine it may be late for a short lease, and
then that is right. Who is given up at every length is wronged. The long form has one length and hears no excuse."""

CALM = 30  # seconds: leases that run out for nobody, however busy the machine is
DRAIN = 120.0
TRIES = 20  # until something was shown


@contextlib.contextmanager
def used(url: str) -> Iterator[None]:
    app.close()
    app.use(url)
    try:
        yield
    finally:
        app.close()


@dataclass
class ServerProcesses:
    """Workers and clients; none outlives the test."""

    folder: Path
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    clients: list[subprocess.Popen[str]] = field(default_factory=list)
    deaths: dict[str, datetime] = field(default_factory=dict)

    def start(self, name: str, lease: int = LEASE, url: str | None = None, env: dict[str, str] | None = None) -> None:
        words = ("--lease", f"{lease}s", "--processes", "1", "--async-jobs", "6", "--name", name)
        self.workers[name] = WorkerProcess(TARGET, url or app.settings.url, self.folder, *words, env=env)

    def start_all(self, *names: str, lease: int = LEASE, url: str | None = None) -> None:
        for name in names:
            self.start(name, lease, url)
        for name in names:
            self.workers[name].wait_ready(app)

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        assert worker.returned is None, f"{name} had ended by itself: {worker.said}"
        self.deaths[name] = datetime.now(UTC)
        worker.kill()

    def oversleep(self, name: str) -> None:
        """It is stopped, though not its children, until something that it holds runs elsewhere. Then it goes on and
        says how its own run of that ended."""
        worker = self.workers[name]
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            held = {job.id: job.fence for job in held_by(name)}
            until(lambda: not held or runs_elsewhere(held), f"what {name} held was taken over", DRAIN)
        finally:
            thaw([worker.pid])

    def client(self, role: str, name: str, url: str | None = None, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, str(CLIENT), role, url or app.settings.url, name]
        pipe = subprocess.PIPE
        self.clients.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env))

    def ready(self) -> None:
        for client in self.clients:
            assert pipes_of(client)[1].readline() == "ready\n"

    def dismiss_clients(self) -> None:
        """They end what they are at."""
        for client in self.clients:
            pipes_of(client)[0].close()
        for client in self.clients:
            assert client.wait(DRAIN) == 0
            pipes_of(client)[1].close()
        self.clients = []

    def stop(self) -> str:
        """What the workers said in their lives, which go on to a good end."""
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)
        for worker in self.workers.values():
            assert worker.wait(60) == 0, worker.said
        said = self.said
        self.workers = {}
        assert "Traceback" not in said, said
        return said

    @property
    def said(self) -> str:
        return "".join(worker.said for worker in self.workers.values())

    def kill_all(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        for client in self.clients:
            client.kill()
            client.wait()
            for pipe in pipes_of(client):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def pipes_of(client: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert client.stdin is not None
    assert client.stdout is not None
    return client.stdin, client.stdout


# -- work --------------------------------------------------------------------------------------------------------------


def submit_all(seconds: list[float]) -> list[str]:
    """Jobs that take so long, sync and async ones in turn; their ids."""
    rows = [{"seconds": each} for each in seconds]
    return [job.id for job in effect.submit_many(rows[::2]) + aeffect.submit_many(rows[1::2])]


def submit_lasting(seconds: list[float]) -> list[str]:
    """Jobs that all run at once, as far as two workers can: one sync job for each of them, the rest async."""
    rows = [{"seconds": each} for each in seconds]
    return [job.id for job in effect.submit_many(rows[:2]) + aeffect.submit_many(rows[2:])]


def submit_until_all_work(names: set[str], seconds: float) -> list[str]:
    """Until each of these workers holds a job; one that is quick may take them all, then there are more."""
    jobs: list[str] = []
    for _ in range(TRIES):
        jobs += submit_lasting([seconds] * 4)
        ends_at = time.monotonic() + LEASE
        while time.monotonic() < ends_at:
            if {name_in(job.worker) for job in get_all(jobs)} >= names:
                return jobs
    raise AssertionError(f"not all of {names} take work")


def drain() -> float:
    """Until every job has ended."""
    began_at = time.monotonic()
    while left := unfinished():
        assert time.monotonic() < began_at + DRAIN, f"{left} jobs have not ended"
        time.sleep(0.05)
    return time.monotonic() - began_at


def unfinished() -> int:
    """Counted at one moment: between two, a job could go from one state to another unseen."""
    counts = ask(app, lambda client: client.count())
    return sum(counts[state] for state in UNFINISHED)


# -- who has it --------------------------------------------------------------------------------------------------------


def name_in(worker: str | None) -> str:
    """The name that the worker was given, without what makes its id unique."""
    return (worker or "").partition("-")[0]


def running() -> list[Job]:
    async def look(client: Client) -> list[Job]:
        return [job async for job in client.find_all(state=State.RUNNING)]

    return ask(app, look)


def held_by(name: str) -> list[Job]:
    return [job for job in running() if name_in(job.worker) == name]


def get_all(jobs: Sequence[str]) -> list[Job]:
    async def look(client: Client) -> list[Job]:
        return [job for job in await client.store.get(jobs) if job is not None]

    return ask(app, look)


def runs_elsewhere(held: dict[str, int]) -> bool:
    """Whether one of these, of which the fence is known, runs anew, or all have ended. Who takes it over raises its
    fence, and who starts it does."""
    found = get_all(list(held))
    anew = any(job.state is State.RUNNING and job.fence >= held[job.id] + 2 for job in found)
    return anew or all(job.state not in UNFINISHED for job in found)
