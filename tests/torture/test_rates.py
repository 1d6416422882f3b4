"""A busy loop hands jobs back before they began: the starts that they took of a rate come back."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rates_load import JOBS, app, block, short
from server_stores import place_on
from worker_processes import LINES, WorkerProcess, nobody_left, read_lines, until

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("rates_load.py")
BLOCKS_EACH = 12  # every so many jobs one blocks the loop


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as around:
        url = f"sqlite:///{tmp_path}/jobs.db"
        if request.param != "sqlite":
            url = around.enter_context(place_on(request.param))
        around.enter_context(nobody_left())
        app.use(url)
        around.callback(app.close)
        yield tmp_path


def test_every_start_of_a_job_that_was_handed_back_before_it_began_comes_back(folder, tell) -> None:
    """There are as many starts as jobs, and one more: all jobs can run only if no start is lost."""
    with WorkerProcess(TARGET, app.settings.url, folder, "--processes", "1", "--async-jobs", "8") as worker:
        worker.wait_ready(app)
        short.map(range(1000), timeout="120s")  # a loop that was quick is given jobs ahead
        jobs = [block.submit(0.0 if n % BLOCKS_EACH else 0.3) for n in range(JOBS)]
        until(lambda: len(read_lines(word="began")) == JOBS, f"all {JOBS} jobs have begun", within=60)
        for job in jobs:
            job.result(timeout="60s")
        assert worker.stop() == 0
    kinds = Counter(event.kind for job in jobs for event in job.history())
    tell(f"{kinds['started']} starts taken, {kinds['released']} of them unused, {JOBS} jobs ran with {JOBS + 1} starts")
    assert kinds["released"] > 1, "no job was handed back: the test showed nothing"
    assert kinds["started"] == kinds["completed"] + kinds["released"]
    assert kinds["completed"] == JOBS
    assert all(job.info().attempt == 1 for job in jobs)
