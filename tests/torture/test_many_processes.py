"""Eight processes on one file: nothing lost, order and limits kept, nobody starved, nobody held up by a sleeper."""

# ruff: noqa: ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest
from player_processes import LEASE, LONG, Player, PlayerProcesses, count, told
from story import Story, retell

from daybreak.client.client import Client
from daybreak.core.model import FINAL
from daybreak.stores.sqlite import SqliteStore
from daybreak.stores.sqlite.write_lock import WRITE_BYTE
from daybreak.system import platform

pytestmark = pytest.mark.torture

PLAYERS = 8
LIMITS = {"narrow": 3}
BACKLOG = {"wide": 3000, "narrow": 100}  # more than is worked off: nobody waits for want of jobs
SLACK = 0.75  # seconds beyond one lease: eight processes share two cores


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    path = tmp_path / "many.db"
    async with SqliteStore(path) as store:
        client = Client(store, by="filler")
        await client.set_queue("narrow", max_running=LIMITS["narrow"])
        await client.submit_many(
            client.spec("noop", queue=queue, priority=n % 11) for queue, most in BACKLOG.items() for n in range(most)
        )
    return path


@pytest.mark.parametrize("burners", [0, 4])
async def test_eight_processes_share_one_file(db, tmp_path, tell, burners):
    """Also on a busy machine, where whoever is waked for its turn may find that a process already running took it."""
    with PlayerProcesses(db, tmp_path) as processes:
        players = processes.start_all("mix", [f"p{n}" for n in range(PLAYERS)], barrier=True)
        processes.start_all("burn", [f"burner{n}" for n in range(burners)])
        began = time.monotonic()
        for player in players:
            player.order("go")
        time.sleep(count(8, 90))
        ended = time.monotonic()
        codes = [player.finish() for player in players]
        lines = processes.lines()
        assert codes == [0] * PLAYERS, "\n".join(player.complaint() for player in players)
    assert_no_trouble(lines)
    story = await assert_nothing_lost(db, lines)
    contended = [line for line in lines if began + 0.5 < line["t"] < ended]
    claims = Counter({player.called: 0 for player in players})
    for line in told(contended, "claimed"):
        claims[line["p"]] += len(line["jobs"])
    fair = claims.total() / PLAYERS
    waits = [longest_wait(contended, player.called, began, ended) for player in players]
    tell(
        f"{len(story.lives)} jobs, {claims.total() / (ended - began):.0f} claims/s, shares of fair: "
        f"{min(claims.values()) / fair:.2f} to {max(claims.values()) / fair:.2f}, longest that one got nothing done "
        f"{max(waits):.2f} s, most running in narrow: {story.most['narrow']}"
    )
    assert story.most["narrow"] == LIMITS["narrow"], "the limit was never reached: the test showed nothing"
    if LONG:
        assert min(claims.values()) >= fair / 2, f"starved: {claims}"
        assert max(waits) < 2 * LEASE.total_seconds(), "who waits for its turn for longer than its lease loses its jobs"


def longest_wait(lines: list[dict[str, Any]], name: str, began: float, ended: float) -> float:
    marks = [began, *(line["t"] for line in lines if line["p"] == name), ended]
    return max(after - before for before, after in itertools.pairwise(marks))


async def test_a_stopped_process_holds_nobody_up(db, tmp_path, tell):
    chance = random.Random(7)
    stops: list[tuple[str, float, float]] = []
    ended_by_store = inside = 0
    with (
        PlayerProcesses(db, tmp_path) as processes,
        (tmp_path / "many.db-locks" / "write.lock").open("rb+") as side_file,
    ):
        turn = side_file.fileno()

        def fresh(n: int) -> Player:
            return processes.start("mix", f"p{n}", reaps=True)

        players = [fresh(n) for n in range(PLAYERS)]
        for player in players:
            player.wait_ready()
        time.sleep(1)
        for stop in range(count(16, 200)):
            n = chance.randrange(PLAYERS)
            victim = players[n]
            if stop % 2:
                n = catch_writing(turn, [player.pid for player in players])
                victim = players[n]
            else:
                busy_wait(chance.random() * 0.05)
                victim.freeze()
            stopped = time.monotonic()
            inside += platform.lock_holder(turn, WRITE_BYTE) == victim.pid
            time.sleep(LEASE.total_seconds() * (1.2 + chance.random() * 0.8))
            wait_for_others(processes, victim.called, stopped)
            stops.append((victim.called, stopped, time.monotonic()))
            victim.thaw()
            time.sleep(0.2)
            if victim.returned is not None:
                # The store may end a stopped process that holds the write lock: then it is a killed worker.
                assert victim.returned == -9, victim.complaint()
                ended_by_store += 1
                players[n] = fresh(n).wait_ready()
        alive = [player for player in players if player.returned is None]
        codes = [player.finish() for player in alive]
        assert codes == [0] * len(alive), "\n".join(player.complaint() for player in alive)
        lines = processes.lines()
    gaps = [longest_silence(lines, *stop) for stop in stops]
    assert_no_trouble(lines)
    story = await assert_nothing_lost(db, lines)
    refused = sum(not ok for line in told(lines, "settled") for _, _, ok in line["jobs"])
    tell(
        f"{len(stops)} stops, {inside} of them inside a turn to write, {ended_by_store} ended by the store, longest "
        f"silence of the others {max(gaps):.2f} s (p50 {sorted(gaps)[len(gaps) // 2]:.2f}), {refused} stale "
        f"settlements refused, {len(story.handovers)} leases taken over of {story.kinds['started']}"
    )
    assert inside >= count(1, len(stops) // 4), "too few were stopped while they wrote: the test showed too little"
    assert max(gaps) <= LEASE.total_seconds() + SLACK or not LONG
    assert refused > 0, "no stopped process ever settled late: the test showed nothing"


async def test_many_may_open_a_new_file_at_once(tmp_path, tell):
    """Each file is made, migrated and used by all at the same instant; nobody may mistake it for something else."""
    files = count(60, 2000)
    (tmp_path / "fresh").mkdir()
    with PlayerProcesses(tmp_path / "base.db", tmp_path) as processes:
        names = [f"p{n}" for n in range(3)]
        start = time.monotonic() + 3
        players = processes.start_all(
            "opens", names, fresh=str(tmp_path / "fresh"), files=files, start=start, step=0.04, spread=0.008
        )
        codes = [player.wait(60 + files * 0.1) for player in players]
        lines = processes.lines()
        assert codes == [0] * len(names), players[0].complaint()
    acked = Counter(line["file"] for line in told(lines, "ack"))
    tell(f"{files} new files, each opened by {len(names)} processes at once: {len(told(lines, 'error'))} errors")
    assert_no_trouble(lines)
    assert set(acked.values()) == {len(names)}
    for n in range(files):
        async with SqliteStore(tmp_path / "fresh" / f"{n}.db") as store:
            assert len((await store.events(None)).events) == len(names)


async def test_a_file_that_another_makes_between_two_looks_is_still_ours(tmp_path):
    """The same race, aimed: while one asks what the file is, another makes it a store."""
    path = tmp_path / "raced.db"
    rivals: list[threading.Thread] = []

    def make() -> None:
        asyncio.run(open_and_close(path))

    def look(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
        if "sqlite_schema" in statement and not rivals:
            rivals.append(threading.Thread(target=make))
            rivals[0].start()
            rivals[0].join(1)  # it cannot end if the question is asked in turn: then there is no race
        return True

    def attach(connection: apsw.Connection) -> None:
        connection.exec_trace = look

    apsw.connection_hooks.append(attach)
    try:
        await open_and_close(path)
    finally:
        apsw.connection_hooks.remove(attach)
        for rival in rivals:
            rival.join(10)


async def open_and_close(path: Path) -> None:
    async with SqliteStore(path, threaded=False):
        pass


@pytest.mark.parametrize("killed", [False, True])
async def test_processes_that_open_and_close_all_the_time(db, tmp_path, tell, killed):
    chance = random.Random(5)
    with PlayerProcesses(db, tmp_path) as processes:
        players = processes.start_all("flicker", [f"p{n}" for n in range(5)])
        until = time.monotonic() + count(5, 60)
        while time.monotonic() < until:
            time.sleep(0.1 + chance.random() * 0.3)
            if killed:
                n = chance.randrange(len(players))
                players[n].kill()
                players[n] = processes.start("flicker", f"p{n}")
        for player in players:
            if killed:
                player.wait_ready()
            assert player.finish() == 0, player.complaint()
        lines = processes.lines()
    visits = sorted(line["took"] for line in told(lines, "visit"))
    tell(f"{len(visits)} visits, p50 {visits[len(visits) // 2] * 1000:.0f} ms, slowest {visits[-1] * 1000:.0f} ms")
    assert_no_trouble(lines)
    await assert_nothing_lost(db, lines)


@pytest.mark.parametrize("role", ["twins", "fork"])
async def test_stores_of_one_process_and_its_children_share_the_file(db, tmp_path, tell, role):
    with PlayerProcesses(db, tmp_path) as processes:
        players = [processes.start(role, f"{role}{n}", children=count(6, 60)) for n in range(2)]
        players.append(processes.start("mix", "mixer"))
        for player in players:
            player.wait_ready()
        time.sleep(count(4, 60))
        codes = [player.finish(60) for player in players]
        lines = processes.lines()
        assert codes == [0] * 3, "\n".join(player.complaint() for player in players)
    assert_no_trouble(lines)
    story = await assert_nothing_lost(db, lines)
    children = told(lines, "child")
    tell(f"{story.kinds['started']} claims, {len(children)} forked children")
    assert all(line["status"] == 0 for line in children), children


def catch_writing(turn: int, pids: list[int]) -> int:
    """Stop whoever has the turn to write at this instant; the index of the caught."""
    while True:
        holder = platform.lock_holder(turn, WRITE_BYTE)
        if holder in pids:
            os.kill(holder, signal.SIGSTOP)
            return pids.index(holder)


def wait_for_others(processes: PlayerProcesses, victim: str, stopped: float, patience: float = 120.0) -> None:
    """Until another process has got something done since the victim was stopped, however slow this machine is."""
    until = time.monotonic() + patience
    while not any(line["t"] > stopped and line["p"] != victim for line in reversed(processes.lines())):
        assert time.monotonic() < until, f"nobody got anything done while {victim} stood still"
        time.sleep(0.1)


def busy_wait(seconds: float) -> None:
    """Sleeping would let the moment of the stop follow the scheduler's ticks."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def longest_silence(lines: list[dict[str, Any]], victim: str, stopped: float, resumed: float) -> float:
    """For how long no other process got anything done while the victim stood still."""
    moments = [line["t"] for line in lines if line["p"] != victim and stopped < line["t"] < resumed]
    marks = [stopped, *sorted(moments), resumed]
    return max(after - before for before, after in itertools.pairwise(marks))


def assert_no_trouble(lines: list[dict[str, Any]]) -> None:
    assert not told(lines, "error"), told(lines, "error")[:5]


async def assert_nothing_lost(db: Path, lines: list[dict[str, Any]]) -> Story:
    async with SqliteStore(db) as store:
        story = await retell(store, LIMITS)
        acked = [job for line in told(lines, "ack") for job in line["jobs"]]
        assert len(acked) == len(set(acked))
        missing = set(acked) - story.lives.keys()
        assert not missing, f"{len(missing)} acknowledged jobs are not in the feed"
        found = await store.get(list(story.lives))
        for job in found:
            assert job is not None
            life = story.lives[job.id]
            assert (job.state, job.fence, job.revision) == (life.state, life.fence, life.n), f"{job} is not {life}"
    settled = [(job, fence) for line in told(lines, "settled") for job, fence, ok in line["jobs"] if ok]
    for job, fence in settled:
        assert story.lives[job].settled[fence] == 1, f"{job} fence {fence} was answered settled and is not"
        assert story.lives[job].state in FINAL
    assert len(settled) == len(set(settled)), "two processes were told that they settled one lease"
    return story
