"""A real worker that is killed at ten moments of sagas: each ends right, also those that are cancelled meanwhile."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from daybreak import Daybreak

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

TASKS = """
import time
from pathlib import Path

from daybreak import Daybreak, Saga

app = Daybreak("sqlite:///jobs.db")


def note(text, context):
    with Path("log").open("a") as log:
        log.write(text + " " + context["name"] + chr(10))


def step(name, fails=False):
    def run(context: dict) -> dict:
        note(name, context)
        while name == "do2" and context["waits"]:
            time.sleep(0.01)
        if fails and context["fails"]:
            raise ValueError("broken")
        return {name: True}

    run.__name__ = run.__qualname__ = name
    globals()[name] = app.task(retry=20)(run) if not fails else app.task(retry=1)(run)
    return globals()[name]


saga = Saga("s")
for n in range(5):
    saga.step(step(f"do{n}", fails=n == 4), undo=step(f"undo{n}"))
"""


@pytest.fixture
def start_worker(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "daybreak.cli", "worker", "tasks.py", "--processes", "1", "--lease", "2s"],
            cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def lines_of(log) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


EVERY_STEP = [f"do{n}" for n in range(5)]
COMPLETES, FAILS, WAITS = ["r0", "r2", "r4", "r6"], ["r1", "r3", "r5"], ["r7", "r8", "r9"]


def effects_of(log, run: str) -> list[str]:
    """What the jobs of a saga did, in order; a job whose worker was killed may have done it twice."""
    return list(dict.fromkeys(line.split()[0] for line in lines_of(log) if line.split()[1] == run))


def test_a_worker_killed_at_ten_moments_leaves_no_saga_half(start_worker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("saga_tasks", tmp_path / "tasks.py")
    tasks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tasks)
    log, deadline = tmp_path / "log", time.monotonic() + 200

    def until(is_so) -> None:
        while not is_so():
            assert time.monotonic() < deadline, lines_of(log)
            time.sleep(0.002)

    def kill_after(more: int) -> None:
        """Kill a worker as soon as so many more effects are there."""
        worker, before = start_worker(), len(lines_of(log))
        until(lambda: len(lines_of(log)) >= before + more)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    with tasks.app:
        runs = {
            name: tasks.saga.start({"name": name, "fails": name in FAILS, "waits": name in WAITS}, id=name)
            for name in COMPLETES + FAILS + WAITS
        }
        for moment in range(1, 8):
            kill_after(moment % 3 + 1)
        left = set(WAITS)
        while left:  # cancelled while its third step runs, or while the worker that ran it is dead
            worker = start_worker()
            until(lambda: any("do2" in effects_of(log, name) for name in left))
            name = next(name for name in sorted(left) if "do2" in effects_of(log, name))
            left.discard(name)
            if not left:
                runs[name].cancel()
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            if left:
                runs[name].cancel()
        start_worker()
        for name, run in runs.items():
            found = run.wait("120s")
            assert found.state == ("completed" if name in COMPLETES else "compensated"), found
            seen = effects_of(log, name)
            if name in COMPLETES:
                assert seen == EVERY_STEP
            elif name in FAILS:
                assert seen == [*EVERY_STEP, "undo3", "undo2", "undo1", "undo0"]
            else:
                assert seen == ["do0", "do1", "do2", "undo1", "undo0"]
                assert found.error.startswith("cancelled")
            assert found.context["do1"] is True
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        jobs = [job for job in app.find() if job.run is not None]
        assert all(job.is_final for job in jobs)
        assert len({job.spec.key for job in jobs}) == len(jobs)
