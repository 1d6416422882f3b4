"""Command lines run only on workers that allow them, and end when their worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from worker_commands import submit, submit_family
from worker_processes import is_alive, until
from worker_tasks import app

from daybreak import State


def test_the_command_of_a_killed_worker_is_ended(stage):
    with stage.process("--processes", "1", "--allow-commands") as worker:
        _, pids = submit_family(stage)
        worker.kill()
    until(lambda: not is_alive(pids[0]), "the command is gone", within=2)
    if is_alive(pids[1]):  # no supervisor is left that knows this process
        os.kill(pids[1], signal.SIGKILL)


def test_a_worker_runs_commands_only_if_that_is_allowed(stage):
    with stage.process("--processes", "1") as worker:
        worker.wait_ready(app)
        job = submit("touch", str(stage.file("done")))
        watched_until = time.monotonic() + 1.5
        until(lambda: time.monotonic() > watched_until, "it had time to")
        assert job.state() is State.QUEUED
        assert not stage.file("done").exists()
        assert worker.stop() == 0


def test_a_worker_for_commands_needs_no_app(stage):
    command = [sys.executable, "-m", "daybreak.cli", "worker", "--allow-commands", "--until-idle", "--url", stage.url]
    job = submit("echo", "hello")
    done = subprocess.run(command, cwd=stage.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert job.result(timeout="5s")["stdout"] == "hello\n"
