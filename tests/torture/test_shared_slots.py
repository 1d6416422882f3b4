"""Workers are killed while their jobs share slots: never more in use than there are, and none idle for long.

DAYBREAK_TORTURE_URL names a store other than a new SQLite file, with a schema or prefix of its own."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from player_processes import LONG, count
from slots_load import SLOTS, app, hold
from worker_processes import LINES, WorkerProcess, ask, nobody_left, read_lines, until

from daybreak.core.model import UNFINISHED, State

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("slots_load.py")
JOBS = count(24, 300)
WORKERS = count(2, 4)
LEASE = 1.0  # seconds
EVERY = count(1, 3)  # seconds between two kills
MOST_KILLS = count(2, 1000)
WITHIN = 120.0 + JOBS  # seconds after which the test gives up, whatever the machine


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with nobody_left():
        app.use(os.environ.get("DAYBREAK_TORTURE_URL", f"sqlite:///{tmp_path}/jobs.db"))
        yield tmp_path
        app.close()


def left() -> int:
    counts = ask(app, lambda client: client.count())
    return sum(counts[state] for state in UNFINISHED)


def start(folder: Path) -> WorkerProcess:
    return WorkerProcess(TARGET, app.settings.url, folder, "--lease", f"{LEASE:g}s", "--processes", "2")


def peak(lines: list[dict[str, Any]]) -> int:
    """The most slots in use at once, by the words of those who had them. A run that was killed counts for nothing."""
    began = {(line["job"], line["fence"]): line for line in lines if line["word"] == "began"}
    changes = []
    for line in lines:
        if line["word"] == "did":
            changes += [(began[line["job"], line["fence"]]["t"], line["slots"]), (line["t"], -line["slots"])]
    in_use = most = 0
    for _, slots in sorted(changes):
        in_use += slots
        most = max(most, in_use)
    return most


def test_slots_are_never_exceeded_and_do_not_stand_idle_while_workers_are_killed(folder, tell):
    chance = random.Random(41)
    rows = [{"slots": chance.randint(1, SLOTS), "seconds": 0.05 + 0.2 * chance.random()} for _ in range(JOBS)]
    needed = sum(row["slots"] * row["seconds"] for row in rows) / SLOTS
    jobs = hold.submit_many(rows)
    kills = 0
    with contextlib.ExitStack() as ending:
        workers = [start(folder) for _ in range(WORKERS)]
        ending.callback(lambda: [worker.kill() for worker in workers])
        for worker in workers:
            worker.wait_ready(app)
        began_at = time.monotonic()
        while left() and time.monotonic() - began_at < WITHIN:
            next_kill = time.monotonic() + EVERY
            while time.monotonic() < next_kill and left():
                time.sleep(0.05)
            if kills < MOST_KILLS and left():
                n = kills % WORKERS
                workers[n].kill()
                workers[n] = start(folder)
                kills += 1
        took = time.monotonic() - began_at
        until(lambda: not left(), "all are done", 1)
    most, states = peak(read_lines()), Counter(job.info().state for job in jobs)
    runs = Counter((line["job"], line["fence"]) for line in read_lines(word="began"))
    tell(
        f"{JOBS} jobs of 1 to {SLOTS} slots, {needed:.1f} s of slot time, took {took:.1f} s with {kills} kills; "
        f"at most {most} of {SLOTS} slots in use; {len(runs) - JOBS} runs were repeats"
    )
    assert states == {State.COMPLETED: JOBS}
    assert max(runs.values()) == 1, "one lease was begun twice"
    assert most <= SLOTS
    if LONG:
        assert took <= 1.6 * needed + kills * 2 * LEASE
