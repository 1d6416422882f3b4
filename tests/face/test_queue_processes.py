"""Several processes on one queue, in one file: each item once, and what a dead one held comes back."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from daybreak import Daybreak, State

TAKER = """
    import sys
    from daybreak import Daybreak

    app = Daybreak("sqlite:///jobs.db")
    queue = app.queue("reports")
    while leases := queue.take(limit=4, wait="300ms"):
        for lease in leases:
            with lease:
                print(lease.data, flush=True)
    app.close()
"""
HOLDER = """
    import time
    from datetime import timedelta
    from daybreak import Daybreak
    from daybreak.api.queues import consumer

    consumer.LEASE_FOR = timedelta(seconds=1)
    app = Daybreak("sqlite:///jobs.db")
    held = app.queue("reports").take(limit=2)
    print("held", len(held), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Daybreak("sqlite:///jobs.db") as app:
        yield app.queue("reports")


def start(script) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", script.path.name], cwd=script.path.parent, stdout=subprocess.PIPE, text=True
    )


def test_processes_take_each_item_once(queue, script):
    for n in range(80):
        queue.add(n)
    taker = script(TAKER)
    takers = [start(taker) for _ in range(3)]
    seen = [int(line) for process in takers for line in process.communicate(timeout=60)[0].splitlines()]
    assert [process.returncode for process in takers] == [0, 0, 0]
    assert sorted(seen) == list(range(80))
    assert queue.stats().by_state["completed"] == 80


def test_what_a_killed_process_held_is_taken_by_another(queue, script, monkeypatch):
    items = [queue.add(n) for n in range(2)]
    holder = start(script(HOLDER))
    try:
        assert holder.stdout.readline() == "held 2\n"
        assert queue.take() == []
        holder.send_signal(signal.SIGKILL)
    finally:
        holder.kill()
        holder.communicate(timeout=30)
    taken = []
    while len(taken) < 2:
        found = queue.take(limit=2, wait="30s")
        assert found
        taken += found
    assert [(lease.id, lease.attempt) for lease in taken] == [(item.id, 2) for item in items]
    for lease in taken:
        lease.complete()
    assert {queue.get(item.id).state for item in items} == {State.COMPLETED}
