"""The demo, as `make demo` tells it, with fewer jobs; and that it would say so if a promise were broken."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from daybreak.client import Client
from daybreak.demo import buck, licence, story
from daybreak.demo.measure import measure
from daybreak.events import Event
from daybreak.model import Done, Failed, Failure, Lost, State
from daybreak.policy.settle import settle
from daybreak.store import Claim, Exchange, Reap
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.clock import ManualClock

DEADLINE = 120


def test_the_demo_ends_by_itself_and_reports_that_nothing_was_lost(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "daybreak.demo", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    told = dict(re.findall(r"^  ([a-z ]+?)  +(\d[\d.]*(?: m?s)?)(?=\s)", ran.stdout, re.MULTILINE))
    assert told["accepted"] == told["completed"] == "73"
    assert told["lost"] == told["completed twice"] == "0"
    assert int(told["retried"]) > 0
    assert re.search(r"retried +\d+  \w*Connection\w*:", ran.stdout)
    assert told["urgent job waited"].endswith("s")
    assert re.search(r"overtook [1-9]\d* jobs", ran.stdout)
    assert told["recovered in"].endswith("s")
    assert re.search(r"recovered in +[\d.]+ m?s  [1-9]\d* jobs", ran.stdout)
    assert re.search(r"second round +72  of 72 found done in [\d.]+ m?s; 0 ran again", ran.stdout)
    assert "0.50  " in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_vanishes_from_the_store_is_told_and_fails_the_demo(tmp_path):
    """A thief takes an accepted job away, by means that leave nothing behind but the demo's own knowledge of it."""
    told = io.StringIO()
    thief = threading.Thread(target=lambda: asyncio.run(_steal(tmp_path / "demo.db")), daemon=True)
    thief.start()
    code = story.run(quick=True, folder=tmp_path, console=Console(file=told, width=200))
    thief.join(DEADLINE)
    assert code == 1
    assert re.search(r"lost +1 ", told.getvalue())
    assert "Something is wrong: 1 of 73 jobs accepted and then lost" in told.getvalue()
    assert str(tmp_path) in told.getvalue()


async def _steal(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if path.exists():
            async with SqliteStore(path) as store:
                client = Client(store, by="thief")
                for job in (await client.find(state="queued")).jobs[-1:]:
                    if (await client.cancel(job.id)).verdict == "done":
                        await client.remove(job.id)
                        return
        await asyncio.sleep(0.05)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_ctrl_c_ends_the_demo_and_its_workers_and_leaves_nothing(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "daybreak.demo", "--quick"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        [line for line in iter(demo.stdout.readline, "") if "Two workers start" in line or line == ""][:1]
    finally:
        demo.kill()
