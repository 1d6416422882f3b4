"""After a worker was killed: what it ran is taken over by all who are idle, and runs side by side."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from player_processes import count
from private_servers import private_server
from worker_load import aeffect_after, app, await_file_and_stumble
from worker_processes import LINES, WorkerProcess, nobody_left, read_lines, until

from daybreak import JobHandle
from daybreak.worker.supervisor.quarantine import MAX_SOLOS, SOLOS_PER_CORE

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("worker_load.py")
IS_LONG = bool(count(0, 1))
JOBS = 40
SECONDS = 3.0
IDLE = 3
STUMBLING = 20
DEATHS = (1,)
WITHIN = 25.0  # seconds from the kill on: 15 for the takeover by leases of seven seconds, and 10 for the work


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def folder(request, tmp_path, monkeypatch) -> Iterator[Path]:
    if not IS_LONG:
        pytest.skip("it judges by time, or takes long: only the long form of the torture has it")
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as around:
        url = f"sqlite:///{tmp_path}/jobs.db"
        if request.param != "sqlite":
            url = around.enter_context(private_server(request.param, tmp_path)).url
        around.enter_context(nobody_left())
        app.use(url)
        yield tmp_path
        app.close()


def most_at_once(lines: list[dict]) -> int:
    """How many ran at the same time, by what they wrote themselves."""
    steps = sorted((line["t"], 1 if line["word"] == "began" else -1) for line in lines)
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


@pytest.mark.parametrize("deaths", DEATHS)
def test_the_jobs_of_a_killed_worker_are_done_soon_by_those_who_are_idle(folder, tell, deaths):
    words = (TARGET, app.settings.url, folder, "--processes", "1")
    jobs = [aeffect_after.submit(deaths, SECONDS) for _ in range(JOBS)]
    with contextlib.ExitStack() as around:
        for death in range(1, deaths + 1):
            worker = around.enter_context(WorkerProcess(*words))
            until(lambda n=death: len(read_lines(word="began")) == n * JOBS, "all of them run", within=90)
            if death == deaths:
                idle = [around.enter_context(WorkerProcess(*words)) for _ in range(IDLE)]
                for one in idle:
                    one.wait_ready(app)
            killed_at = time.monotonic()
            worker.kill()
        for job in jobs:
            job.result(timeout="120s")
        took = time.monotonic() - killed_at
        lines = [line for line in read_lines() if line["t"] > killed_at]
        tell(
            f"{JOBS} jobs of {SECONDS:g} s done {took:.1f} s after death {deaths}, the first begun after "
            f"{min(line['t'] for line in lines) - killed_at:.1f} s, {most_at_once(lines)} at once at most"
        )
        for one in idle:
            assert one.stop() == 0
    for job in jobs:
        assert job.info().attempt == len(read_lines(job=job.id, word="began"))
    assert most_at_once(lines) > IDLE
    assert took <= WITHIN


def test_three_deaths_of_workers_and_an_error_end_no_job_and_every_attempt_is_one_that_began(folder, tell):
    """At the third death not all of them run: after two deaths each needs a child of its own, and a worker has only so
    many of these. A job that did not run is not charged."""
    jobs = [await_file_and_stumble.submit(str(folder / "gate")) for _ in range(STUMBLING)]
    words = (TARGET, app.settings.url, folder, "--processes", "1", "--lease", "1s")
    in_own_children = min(STUMBLING, MAX_SOLOS, SOLOS_PER_CORE * (os.cpu_count() or 1))
    for death, running in ((1, STUMBLING), (2, STUMBLING), (3, in_own_children)):
        with WorkerProcess(*words) as worker:
            until(lambda n=death, wanted=running: len(with_tries(jobs, n)) == wanted, f"death {death} has its jobs")
            worker.kill()
    deaths = {job.id: len(tries(job)) for job in jobs}
    (folder / "gate").touch()
    with WorkerProcess(*words) as worker:
        for job in jobs:
            job.result(timeout="120s")
        assert worker.stop() == 0
    for job in jobs:
        died, info = deaths[job.id], job.info()
        assert (info.attempt, info.lost, len(tries(job))) == (died + 2, died, died + 2)
    tell(f"{STUMBLING} jobs completed, {sum(deaths.values())} deaths and {STUMBLING} errors charged, none for nothing")


def tries(job: JobHandle[int]) -> list[dict]:
    return read_lines(job=job.id, word="began")


def with_tries(jobs: list[JobHandle[int]], times: int) -> list[JobHandle[int]]:
    return [job for job in jobs if len(tries(job)) == times]
