"""Plants each cause for which a job can wait, with real workers on a SQLite file, and runs the command that removes it.

The words of `daybreak why ID` are parsed as a person reads them: the sentence of the cause, and the command below it. A
shell runs that command, and the job counts as started at its `started` event."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from worker_processes import nobody_left, until

from daybreak import JobHandle, State

TASKS = """
import time
from pathlib import Path

from daybreak import Breaker, Context, Daybreak, Resource, Retry, Transient

app = Daybreak()
HERE = Path(__file__).parent
SLOW = Retry(strategy="fixed", attempts=5, delay="1h")
SOON = Retry(strategy="fixed", attempts=1000, delay="20ms")


@app.task
def quick() -> None:
    pass


@app.task
def turn() -> None:
    time.sleep(0.2)


@app.task
def hold() -> None:
    while not (HERE / "go").exists():
        time.sleep(0.02)


@app.task(resource=Resource("licence", slots=1))
def licensed(name: str = "") -> None:
    while name and not (HERE / name).exists():
        time.sleep(0.02)


@app.task(resource=Resource("metered", rate="1/h"))
def metered() -> None:
    pass


@app.task(resource=Resource("shaky", breaker=Breaker(failures=1, open_for="1h")), retry=1)
def shaky(is_down: bool = False) -> None:
    if is_down:
        raise Transient("down")


@app.task(retry=SLOW)
def fails_first(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise Transient("not yet")


@app.task(resource=Resource("backend"), retry=SOON)
def backend() -> None:
    if not (HERE / "well").exists():
        raise Transient("down")
"""
NEWER = """

@app.task
def newer() -> None:
    pass
"""
LEASE_OF_THE_DEAD = 4.0  # seconds; a worker counts as gone after three of them


class Waits:
    """A folder as a person has it: tasks.py, the store beside it, and workers in processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tasks.py").write_text(TASKS)
        spec = importlib.util.spec_from_file_location(f"waits_{folder.name}", folder / "tasks.py")
        assert spec is not None
        assert spec.loader is not None
        self.tasks: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.tasks)
        self.tasks.app.use(f"sqlite:///{folder}/daybreak.db")
        self.env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self.env = {name: value for name, value in self.env.items() if not name.startswith("DAYBREAK_")}
        self._workers: list[subprocess.Popen[bytes]] = []
        self.narrow: subprocess.Popen[bytes] | None = None
        self.filler: JobHandle[Any] | None = None

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait(60)
        self.tasks.app.close()

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        return self.run(f"exec daybreak worker tasks.py {' '.join(words)}")

    def wait_for(self, worker: subprocess.Popen[bytes]) -> None:
        """Until the worker takes work."""
        until(lambda: worker.pid in {one.pid for one in self.records()}, "the worker is ready")

    def records(self) -> list[Any]:
        from daybreak.worker.supervisor.worker_record import KIND, read

        async def records() -> list[Any]:
            return [read(record) for record in await (await self.tasks.app.client()).store.records(KIND)]

        return self.tasks.app._sessions.portal.run(records())

    def run(self, line: str) -> subprocess.Popen[bytes]:
        with (self.folder / "said").open("ab") as said:
            started = subprocess.Popen(
                ["/bin/sh", "-c", line],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._workers.append(started)
        return started

    # -- as a person does ----------------------------------------------------------------------------------------------

    def command_for(self, job: JobHandle[Any], sentence: str) -> str:
        """The command that `daybreak why` prints below a sentence that matches."""
        said = ""

        def look() -> str:
            nonlocal said
            run = ["daybreak", "why", job.id]
            answer = subprocess.run(run, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
            said = answer.stdout
            for block in said.split("\n\n")[1:]:
                lines = block.splitlines()
                if re.search(sentence, lines[0], re.IGNORECASE) and lines[-1].startswith("  daybreak "):
                    return lines[-1].strip()
            return ""

        try:
            return until(look, sentence)
        except AssertionError:
            raise AssertionError(f"{sentence!r} is not in what `daybreak why` says:\n{said}") from None

    def obey(self, job: JobHandle[Any], command: str) -> float:
        """Run the command; the seconds from its start until the job has started."""
        before = len([event for event in job.history() if event.kind == "started"])
        began = time.time()
        process = self.run(f"exec {command}" if command.startswith("daybreak worker") else command)
        started = until(
            lambda: [event for event in job.history() if event.kind == "started"][before:], f"it starts by {command!r}"
        )
        if command.startswith("daybreak worker"):
            process.terminate()
        assert process.wait(60) == 0
        return started[0].at.timestamp() - began


Plant = Callable[[Waits], tuple[JobHandle[Any], str]]


def _running(job: JobHandle[Any]) -> JobHandle[Any]:
    until(lambda: job.state() is State.RUNNING, f"{job} runs")
    return job


def _is(job: JobHandle[Any], state: State) -> JobHandle[Any]:
    until(lambda: job.state() is state, f"{job} is {state.value}")
    return job


# -- causes that a worker with free slots meets ------------------------------------------------------------------------


def scheduled(here: Waits) -> tuple[JobHandle[Any], str]:
    return here.tasks.quick.using(delay="1h").submit(), "it is scheduled to start in"


def retry_delay(here: Waits) -> tuple[JobHandle[Any], str]:
    return _is(here.tasks.fails_first.submit(), State.SCHEDULED), r"attempt 1 failed \(Transient\)"


def suspended(here: Waits) -> tuple[JobHandle[Any], str]:
    queue = here.tasks.app.queue("shelf")
    queue.pause()
    job = here.tasks.quick.using(queue="shelf").submit()
    job.suspend()
    queue.resume()
    return job, "it was suspended by"


def paused(here: Waits) -> tuple[JobHandle[Any], str]:
    here.tasks.app.queue("held").pause()
    return here.tasks.quick.using(queue="held").submit(), "its queue 'held' is paused"


def max_running(here: Waits) -> tuple[JobHandle[Any], str]:
    here.tasks.app.queue("narrow").set(max_running=1)
    _running(here.tasks.hold.using(queue="narrow").submit())
    return here.tasks.quick.using(queue="narrow").submit(), "runs at most 1 job at once"


def resource_busy(here: Waits) -> tuple[JobHandle[Any], str]:
    _running(here.tasks.licensed.submit("go"))
    return _is(here.tasks.licensed.submit(), State.BLOCKED), "the resource 'licence' has 1 slot, of which 1 is in use"


def rate(here: Waits) -> tuple[JobHandle[Any], str]:
    here.tasks.metered.submit().wait(timeout="60s")
    return _is(here.tasks.metered.submit(), State.BLOCKED), "the resource 'metered' starts at most"


def breaker_open(here: Waits) -> tuple[JobHandle[Any], str]:
    here.tasks.shaky.submit(True).wait(timeout="60s")
    return _is(here.tasks.shaky.submit(), State.BLOCKED), "the breaker of the resource 'shaky' is open"


def retry_budget(here: Waits) -> tuple[JobHandle[Any], str]:
    jobs = [here.tasks.backend.submit() for _ in range(30)]
    [*_, job] = until(lambda: [one for one in jobs if one.state() is State.BLOCKED], "retries wait")
    return job, "the resource 'backend' is failing, so its retries are limited"


# -- causes that need a worker of their own ----------------------------------------------------------------------------


def behind_others(here: Waits) -> tuple[JobHandle[Any], str]:
    for _ in range(300):
        here.tasks.turn.using(queue="line").submit()
    return here.tasks.quick.using(queue="line").submit(), "jobs of its queue are before it"


def _filled(here: Waits) -> subprocess.Popen[bytes]:
    """The worker for the queue `full`, with its only slot in use."""
    if here.narrow is None:
        here.narrow = here.worker("--queues", "full", "--processes", "1", "--lease", "1s", "--grace", "10m")
    if here.filler is None:
        here.filler = _running(here.tasks.hold.using(queue="full").submit())
    return here.narrow


def worker_full(here: Waits) -> tuple[JobHandle[Any], str]:
    _filled(here)
    return here.tasks.quick.using(queue="full").submit(), "all 1 slot of 1 worker that could run it are in use"


def unknown_task(here: Waits) -> tuple[JobHandle[Any], str]:
    """The app was deployed anew: its new task is in the file, and not in the worker that still runs."""
    with (here.folder / "tasks.py").open("a") as file:
        file.write(NEWER)

    @here.tasks.app.task
    def newer() -> None:
        pass

    return newer.submit(), "no live worker has the task 'newer', version 1"


def draining(here: Waits) -> tuple[JobHandle[Any], str]:
    """The worker whose only slot is in use is asked to stop, and waits for its job."""
    _filled(here).send_signal(signal.SIGTERM)
    here.narrow = here.filler = None
    return here.tasks.quick.using(queue="full").submit(), "could run it, but stops and claims no more jobs"


PLANTS: dict[str, Plant] = {
    plant.__name__.replace("_", " "): plant
    for plant in (
        scheduled, retry_delay, suspended, paused, max_running, resource_busy, rate, breaker_open, retry_budget,
        behind_others, worker_full, draining, unknown_task,
    )
}  # fmt: skip
DEAD = "dead worker's lease"
CAUSES = [*PLANTS, DEAD]


@contextlib.contextmanager
def planted(folder: Path) -> Iterator[Callable[[str], float]]:
    """Answers for each cause how many seconds after its command the job started."""
    (folder / "main").mkdir()
    (folder / "lost").mkdir()
    with nobody_left():
        here, lost = Waits(folder / "main"), Waits(folder / "lost")
        try:
            # Killed first: it counts as gone after a while.
            dead = lost.worker("--processes", "1", "--lease", f"{LEASE_OF_THE_DEAD:g}s")
            free = here.worker("--queues", "default,held,narrow,shelf", "--processes", "6", "--lease", "2s")
            here.worker("--queues", "line", "--processes", "1", "--lease", "2s")
            here.narrow = here.worker("--queues", "full", "--processes", "1", "--lease", "1s", "--grace", "10m")
            held = _running(lost.tasks.hold.submit())
            dead.kill()
            here.wait_for(free)

            def seconds(cause: str) -> float:
                if cause == DEAD:
                    return _after_death(lost, held)
                job, sentence = PLANTS[cause](here)
                command = here.command_for(job, sentence)
                if cause == "retry budget":
                    (here.folder / "well").touch()
                return here.obey(job, command)

            yield seconds
        finally:
            for place in (here, lost):
                (place.folder / "go").touch()
                place.close()


def _after_death(lost: Waits, job: JobHandle[Any]) -> float:
    """Ask while no worker runs. Then another one starts, and the command gives the job back before that one may take
    the lease over."""
    until(lambda: not any(one.is_live(datetime.now(UTC)) for one in lost.records()), "the dead worker counts as gone")
    command = lost.command_for(job, "its worker .* is gone")
    (lost.folder / "go").touch()
    lost.wait_for(lost.worker("--processes", "1", "--lease", f"{LEASE_OF_THE_DEAD:g}s"))
    return lost.obey(job, command)
