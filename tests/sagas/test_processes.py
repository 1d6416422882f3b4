"""A real worker that is killed at ten moments of a saga: the saga ends right."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from daybreak import Daybreak

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

TASKS = """
from pathlib import Path

from daybreak import Daybreak, Saga

app = Daybreak("sqlite:///jobs.db")


def note(text, context):
    with Path("log").open("a") as log:
        log.write(text + " " + context["name"] + chr(10))


def step(name, fails=False):
    def run(context: dict) -> dict:
        note(name, context)
        if fails and context["fails"]:
            raise ValueError("broken")
        return {name: True}

    run.__name__ = run.__qualname__ = name
    globals()[name] = app.task(retry=20)(run) if not fails else app.task(retry=1)(run)
    return globals()[name]


saga = Saga("s")
for n in range(4):
    saga.step(step(f"do{n}", fails=n == 3), undo=step(f"undo{n}"))
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


def test_a_worker_killed_at_ten_moments_leaves_no_saga_half(start_worker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = __import__("importlib.util").util.spec_from_file_location("saga_tasks", tmp_path / "tasks.py")
    tasks = __import__("importlib.util").util.module_from_spec(spec)
    spec.loader.exec_module(tasks)
    log, deadline = tmp_path / "log", time.monotonic() + 120
    with tasks.app:
        runs = {f"r{n}": tasks.saga.start({"name": f"r{n}", "fails": n % 2 == 1}, id=f"r{n}") for n in range(10)}
        for moment in range(1, 11):  # killed as soon as so many more effects are there
            worker, before = start_worker(), len(lines_of(log))
            while len(lines_of(log)) < before + moment % 4 + 1:
                if all(run.info().is_finished for run in runs.values()):
                    break
                assert time.monotonic() < deadline, lines_of(log)
                time.sleep(0.002)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        start_worker()
        for name, run in runs.items():
            found = run.wait("60s")
            assert found.state == ("compensated" if name in ("r1", "r3", "r5", "r7", "r9") else "completed"), found
            seen = list(dict.fromkeys(line.split()[0] for line in lines_of(log) if line.split()[1] == name))
            expected = ["do0", "do1", "do2", "do3"]
            if found.state == "compensated":
                expected += ["undo2", "undo1", "undo0"]
            assert seen == expected
            assert found.context["do2"] is True
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        jobs = [job for job in app.find() if job.run is not None]
        assert all(job.state.value in ("completed", "failed") for job in jobs)
        assert len({job.spec.key for job in jobs}) == len(jobs)
