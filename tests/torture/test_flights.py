"""Jobs of four processes that would all compute the same, and real workers: whatever becomes of the one that runs, all
others get its result."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flights_load import app, finish_file
from player_processes import LONG, count
from server_stores import place_on
from worker_processes import LINES, WorkerProcess, ask, nobody_left, read_lines, until

from daybreak.core.model import UNFINISHED, Job, State
from daybreak.store.protocol import Amend

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("flights_load.py")
SUBMITTERS = 4
JOBS = count(200, 1000)
TURNS = count(2, 20)


@pytest.fixture(params=["sqlite", "redis", *(["postgres"] if LONG else [])])
def folder(request, tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        else:
            url = stack.enter_context(place_on(request.param))
        stack.enter_context(nobody_left())
        app.use(url)
        stack.callback(app.close)
        yield tmp_path


class Submitters:
    """Processes that submit the same job when they are told to."""

    def __init__(self, point: int) -> None:
        words = (app.settings.url, str(JOBS // SUBMITTERS), str(point))
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(TARGET), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(SUBMITTERS)
        ]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def submit(self) -> list[str]:
        """The ids of all jobs."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate()[0] for process in self._processes]
        assert [process.returncode for process in self._processes] == [0] * SUBMITTERS
        return [job for line in said for job in line.split()]


def begun(point: int) -> list[str]:
    return [line["job"] for line in read_lines(word="began", point=point)]


def read(jobs: list[str]) -> list[Job]:
    found = ask(app, lambda client: client.store.get(jobs))
    assert None not in found
    return [job for job in found if job is not None]


def unfinished() -> int:
    counts = ask(app, lambda client: client.count())
    return sum(counts[state] for state in UNFINISHED)


def left_of(jobs: list[str], withdrawn: set[str]) -> list[str]:
    return [job for job in jobs if job not in withdrawn]


def worker(folder: Path) -> WorkerProcess:
    return WorkerProcess(TARGET, app.settings.url, folder, "--lease", "1s", "--processes", "2")


def test_whatever_becomes_of_the_leader_all_others_get_the_result(folder, tell):
    """The one that runs is cancelled, or its worker is killed; of those that wait some are cancelled, too."""
    chance, withdrawn, kills = random.Random(11), set[str](), 0
    with contextlib.ExitStack() as ending:
        workers = [worker(folder) for _ in range(2)]
        ending.callback(lambda: [one.kill() for one in workers])
        for one in workers:
            one.wait_ready(app)
        jobs = Submitters(0).submit()
        until(lambda: begun(0), "somebody runs")
        for turn in range(TURNS):
            if turn % 2:
                child = read_lines(word="began")[-1]["pid"]
                [n] = [n for n, one in enumerate(workers) if child in one.children]
                workers[n].kill()
                workers[n] = worker(folder)
                kills += 1
            else:
                chosen = (begun(0)[-1], *chance.sample(left_of(jobs, withdrawn), 5))
                ask(
                    app, lambda client, chosen=chosen: client.store.amend(Amend(action="cancel", by="ann", jobs=chosen))
                )
                withdrawn.update(chosen)
            until(lambda runs=turn + 1: len(begun(0)) > runs, "another runs")
        finish_file(0).touch()
        until(lambda: not unfinished(), "all have ended")
        for one in workers:
            one.stop()
    found, runs = read(jobs), len(begun(0))
    assert {job.state for job in found if job.id not in withdrawn} == {State.COMPLETED}
    assert {job.state for job in found} == {State.COMPLETED, State.CANCELLED}
    assert len({job.result for job in found if job.state is State.COMPLETED}) == 1
    assert runs == 1 + TURNS, "a job ran that should have waited"
    tell(f"{len(withdrawn)} of {JOBS} jobs withdrawn, {kills} workers killed: {runs} runs, all others have the result")
