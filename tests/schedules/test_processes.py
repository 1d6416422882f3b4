"""Real workers that are killed, and a server that fires ticks beside them: each tick is one job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta

import pytest

from daybreak import Daybreak

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

TASKS = """
from daybreak import Daybreak

app = Daybreak("sqlite:///jobs.db", name="ticking")


@app.task
def note(n: int) -> int:
    return n


app.schedule("s", note, every="1s", args=[1], catch_up="all", overlap="allow")
"""


@pytest.fixture
def start(tmp_path):
    """Start a `daybreak` command in the folder of the tasks; whatever is left is killed at the end."""
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "daybreak.cli", *command],
            cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def ticks_in(app: Daybreak) -> list[str]:
    return sorted(str(job.meta["tick"]) for job in app.find(task="note") if "tick" in job.meta)


def wait_for(app: Daybreak, n: int) -> list[str]:
    deadline = time.monotonic() + 60
    while len(found := ticks_in(app)) < n:
        assert time.monotonic() < deadline, f"only {len(found)} of {n} ticks were fired"
        time.sleep(0.05)
    return found


def assert_each_second_once(found: list[str]) -> None:
    assert [tick for tick, n in Counter(found).items() if n > 1] == []
    first = datetime.fromisoformat(found[0])
    expected = [first + n * timedelta(seconds=1) for n in range(len(found))]
    assert [datetime.fromisoformat(tick) for tick in found] == expected


def test_workers_that_are_killed_leave_no_tick_out_and_double_none(start, tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        workers = [start("worker", "tasks.py", "--processes", "1") for _ in range(2)]
        total = 0
        for _ in range(4):
            total = len(wait_for(app, total + 2))
            victim = workers.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            workers.append(start("worker", "tasks.py", "--processes", "1"))
        for worker in workers:  # nobody is left for a moment: what was missed is caught up
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        start("worker", "tasks.py", "--processes", "1")
        wait_for(app, total + 4)
        app.find_schedule("s").pause()
        assert_each_second_once(ticks_in(app))


def test_a_server_fires_ticks_while_no_worker_runs(start, tmp_path):
    pytest.importorskip("litestar")
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        worker = start("worker", "tasks.py", "--processes", "1")
        before = len(wait_for(app, 1))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        start("serve", "--url", "jobs.db", "--port", "0")
        wait_for(app, before + 3)
        app.find_schedule("s").pause()
        assert_each_second_once(ticks_in(app))
