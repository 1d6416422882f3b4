"""Idle processes: woken at once by a submit elsewhere, and otherwise asleep."""

# ruff: noqa: ASYNC240 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from player_processes import LONG, Player, PlayerProcesses, count, told

from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

SUBMITS = count(50, 1000)
FAR_BELOW_THE_POLL = 0.1  # seconds; the slow poll behind the wake-up is several times that


PATIENCE = 120.0  # seconds


async def usage(processes: PlayerProcesses, player: Player) -> dict[str, Any]:
    before = len(told(processes.lines(), "usage"))
    player.order("usage")
    for _ in range(1000):
        if len(found := told(processes.lines(), "usage")) > before:
            return found[-1]
        await asyncio.sleep(0.05)
    pytest.fail(f"{player.name} does not answer: {player.complaint()}")


async def claimed(processes: PlayerProcesses, jobs: set[str], patience: float = PATIENCE) -> dict[str, float]:
    """When each of these jobs was claimed."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        when = {job: line["t"] for line in told(processes.lines(), "claimed") for job, _ in line["jobs"]}
        if jobs <= when.keys():
            return when
        await asyncio.sleep(0.1)
    pytest.fail(f"{len(jobs - when.keys())} of {len(jobs)} jobs were not claimed within {patience} s")


async def test_a_submit_wakes_an_idle_process_elsewhere(tmp_path: Path, tell):
    db = tmp_path / "wake.db"
    with PlayerProcesses(db, tmp_path) as processes:
        [idler] = processes.start_all("idle", ["idler"])
        async with SqliteStore(db) as store:
            client = Client(store)
            await asyncio.sleep(1)
            before = await usage(processes, idler)
            asked: dict[str, float] = {}
            for _ in range(SUBMITS):
                began = time.monotonic()
                asked[await client.submit("noop", queue="wide")] = began
                await asyncio.sleep(0.03)
            when = await claimed(processes, set(asked))
            after = await usage(processes, idler)
        assert idler.finish() == 0, idler.complaint()
    delays = sorted(when[job] - began for job, began in asked.items())
    p50, p90, worst = delays[len(delays) // 2], delays[len(delays) * 9 // 10], delays[-1]
    woken = after["woken"] - before["woken"]
    tell(
        f"{SUBMITS} submits, woken {woken} times; submit to claim p50 {p50 * 1000:.1f} ms, p90 {p90 * 1000:.1f} ms, "
        f"worst {worst * 1000:.1f} ms"
    )
    assert woken > 0, "the claims came from something else than wake-ups"
    if LONG:
        assert p50 < FAR_BELOW_THE_POLL / 4
        assert p90 < FAR_BELOW_THE_POLL
        assert woken >= SUBMITS * 0.5, "the claims came from something else than wake-ups"
    assert woken <= SUBMITS * 3, "woken again and again for nothing"


async def test_an_idle_process_sleeps(tmp_path: Path, tell):
    db = tmp_path / "idle.db"
    with PlayerProcesses(db, tmp_path) as processes:
        [idler] = processes.start_all("idle", ["idler"])
        await asyncio.sleep(1)
        before = await usage(processes, idler)
        await asyncio.sleep(count(3, 30))
        after = await usage(processes, idler)
        assert idler.finish() == 0, idler.complaint()
    passed = after["t"] - before["t"]
    cpu = (after["cpu"] - before["cpu"]) / passed
    switches = (after["switches"] - before["switches"]) / passed
    tell(
        f"{cpu:.3%} CPU, {switches:.1f} context switches/s, {after['woken'] - before['woken']} wake-ups "
        f"in {passed:.1f} s"
    )
    assert after["woken"] == before["woken"]
    if LONG:
        assert switches < 30, "it looks again and again"
        assert cpu < 0.005


async def test_a_stopped_sleeper_holds_no_submitter_up(tmp_path: Path, tell):
    """Its socket fills; whoever submits must not wait for it."""
    db = tmp_path / "deaf.db"
    with PlayerProcesses(db, tmp_path) as processes:
        [idler] = processes.start_all("idle", ["idler"])
        await asyncio.sleep(1)
        idler.freeze()
        async with SqliteStore(db) as store:
            client = Client(store)
            began = time.monotonic()
            slowest = 0.0
            jobs = set()
            async with asyncio.timeout(PATIENCE):
                for _ in range(2000):
                    asked = time.monotonic()
                    jobs.add(await client.submit("noop", queue="wide"))
                    slowest = max(slowest, time.monotonic() - asked)
            took = time.monotonic() - began
            idler.thaw()
            await claimed(processes, jobs, PATIENCE)
        assert idler.finish() == 0, idler.complaint()
    tell(f"2000 submits beside a stopped sleeper in {took:.1f} s, slowest {slowest * 1000:.0f} ms; all claimed after")
    assert slowest < 1.0 or not LONG


async def test_the_dead_leave_no_wake_ups_behind(tmp_path: Path, tell):
    db = tmp_path / "dead.db"
    with PlayerProcesses(db, tmp_path) as processes:
        for idler in processes.start_all("idle", [f"idler{n}" for n in range(4)]):
            idler.kill()
        [heir] = processes.start_all("idle", ["heir"])
        async with SqliteStore(db) as store:
            client = Client(store)
            await asyncio.sleep(1)
            jobs = {await client.submit("noop", queue="wide") for _ in range(20)}
            await claimed(processes, jobs)
        assert heir.finish() == 0, heir.complaint()
    left = sorted(p.name for p in tmp_path.glob("dead.db-locks/wake/*"))
    tell(f"left in the wake folder after 4 kills and a clean end: {left}")
    assert not left


async def test_a_path_longer_than_a_socket_address_is_no_hindrance(tmp_path: Path, tell):
    folder = tmp_path / ("deep" * 30) / ("deeper" * 20)
    folder.mkdir(parents=True)
    db = folder / "wake.db"
    with PlayerProcesses(db, tmp_path) as processes:
        [idler] = processes.start_all("idle", ["idler"])
        async with SqliteStore(db) as store:
            client = Client(store)
            await asyncio.sleep(1)
            before = await usage(processes, idler)
            asked = {}
            for _ in range(20):
                began = time.monotonic()
                asked[await client.submit("noop", queue="wide")] = began
                await asyncio.sleep(0.05)
            when = await claimed(processes, set(asked))
            after = await usage(processes, idler)
        assert idler.finish() == 0, idler.complaint()
    delays = sorted(when[job] - began for job, began in asked.items())
    tell(f"path of {len(str(db))} bytes: submit to claim p50 {delays[10] * 1000:.1f} ms")
    assert after["woken"] > before["woken"]
    assert delays[10] < FAR_BELOW_THE_POLL / 4 or not LONG
    assert not list((folder / "wake.db-locks" / "wake").iterdir())
