"""Command lines as jobs, submitted as `daybreak exec` does it."""

from __future__ import annotations

import sys
import time
from typing import Any

from worker_processes import ask, is_alive, until
from worker_tasks import app

from daybreak import JobHandle

QUICK = {"DAYBREAK_WORKER_CANCEL_GRACE": "500ms"}

# Starts a child, prints both pids, and runs for ever.
FAMILY = """
import os, subprocess, sys, time
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], **quiet)
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(3600)
"""


def submit(*argv: str, timeout: str | None = None, attempts: int = 1, **args: Any) -> JobHandle[Any]:
    async def hand_in(client: Any) -> str:
        return await client.submit(client.spec("exec", {"argv": list(argv), **args}, retry=attempts, timeout=timeout))

    return app.job(ask(app, hand_in))


def submit_family(stage: Any, timeout: str | None = None) -> tuple[JobHandle[Any], list[int]]:
    """A job whose command has started a child, and the pids of both."""
    place = stage.file(f"pids-{time.monotonic_ns()}")
    job = submit(sys.executable, "-c", FAMILY, str(place), timeout=timeout)
    until(lambda: place.exists() and len(place.read_text().split()) == 2, "it runs, and has a child")
    return job, [int(pid) for pid in place.read_text().split()]


def all_gone(pids: list[int]) -> None:
    until(lambda: not any(map(is_alive, pids)), f"{pids} are gone", within=5)
