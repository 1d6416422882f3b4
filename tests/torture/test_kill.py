"""kill -9 at any moment: what was acknowledged is there, nothing counts twice, and the others carry on."""

# ruff: noqa: ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from player_processes import LEASE, LONG, Player, PlayerProcesses, count, told
from story import retell

from daybreak.client.client import Client
from daybreak.core.model import UNFINISHED, State
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

ROLES = ("submit", "submit", "work", "work", "work")
DRAIN = 180.0


async def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path, tell):
    db = tmp_path / "kill.db"
    chance = random.Random(11)
    kills: list[tuple[str, datetime]] = []
    with PlayerProcesses(db, tmp_path) as processes:
        # A reaper gives nobody up before it has watched for a whole lease: one at least must live that long.
        keeper = processes.start("work", "work-on", reaps=True).wait_ready()
        players = [start(processes, n) for n in range(len(ROLES))]
        for _ in range(count(40, 200)):
            time.sleep(chance.random() * 0.6)
            n = chance.randrange(len(ROLES))
            players[n].kill()
            if players[n].killed_at is None:
                pytest.fail(f"{players[n].name} had ended by itself: {players[n].complaint()}")
            kills.append((players[n].called, datetime.fromtimestamp(players[n].killed_at, UTC)))
            players[n] = start(processes, n)
        for player in players:
            if player.name.startswith("submit"):
                player.wait_ready()
                assert player.finish() == 0, player.complaint()
        drained_in = await drain(db)
        for player in (*players, keeper):
            if player.name.startswith("work"):
                assert player.finish() == 0, player.complaint()
        lines = processes.lines()

    assert not told(lines, "error"), told(lines, "error")[:3]
    acked = {job for line in told(lines, "ack") for job in line["jobs"]}
    starts = {(line["job"], line["fence"]): line["p"] for line in told(lines, "start")}
    assert len(starts) == len(told(lines, "start")), "one lease was started twice"
    async with SqliteStore(db) as store:
        story = await retell(store)
        jobs = {job.id: job for job in await store.get(list(story.lives)) if job is not None}
    lost = acked - jobs.keys()
    assert not lost, f"{len(lost)} of {len(acked)} acknowledged jobs are gone"
    for job in jobs.values():
        assert job.state is State.COMPLETED, f"{job.id} is {job.state} ({job.reason}), not completed"
        result = json.loads(job.result or b"{}")
        assert starts[job.id, job.fence] == result["by"], f"{job.id}: who settled it never started it"
        assert result["fence"] == job.fence
    told_true = [(job, fence) for line in told(lines, "settled") for job, fence, ok in line["jobs"] if ok]
    assert len(told_true) == len(set(told_true))
    assert all(story.lives[job].settled[fence] == 1 for job, fence in told_true)

    died = dict(kills)
    waits = [h.until - died[h.holder] for h in story.handovers if h.holder in died]
    innocent = [h for h in story.handovers if h.holder not in died]
    slowest = max(waits, default=timedelta())
    tell(
        f"{len(kills)} kills, {len(acked)} acknowledged, {len(jobs) - len(acked)} accepted but not heard, 0 lost; "
        f"{len(waits)} leases of the dead taken over within {slowest.total_seconds():.2f} s, {len(innocent)} of the "
        f"living; drained in {drained_in:.1f} s"
    )
    assert waits, "no killed process held a lease: the test showed nothing"
    assert slowest <= 2 * LEASE + timedelta(seconds=0.25) or not LONG


def start(processes: PlayerProcesses, n: int) -> Player:
    # Not waited for: some are to be killed while they open the store.
    return processes.start(ROLES[n], f"{ROLES[n]}{n}", reaps=ROLES[n] == "work", pause=0.05, seed=time.monotonic_ns())


async def drain(db: Path) -> float:
    began = time.monotonic()
    async with SqliteStore(db) as store:
        client = Client(store)
        while time.monotonic() < began + DRAIN:
            counts = await client.count()
            if not sum(counts[state] for state in UNFINISHED):
                return time.monotonic() - began
            time.sleep(0.1)
    pytest.fail(f"not drained after {DRAIN} s: {counts}")
