"""Workers and their children are killed at any moment, and passed through by many jobs: nothing lost, nothing grows."""

# ruff: noqa: ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from player_processes import LONG, count
from story import retell
from worker_load import aeffect, alimited, app, effect, limited
from worker_processes import LINES, WorkerProcess, ask, live_pids, nobody_left, read_lines, rss, until

from daybreak import Client, JobHandle
from daybreak.core.events import Event, fold
from daybreak.core.model import FINAL, UNFINISHED, Reason, State
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("worker_load.py")
KILLS = count(25, 200)
JOBS = count(400, 2_000)
LEASE = count(2, 7)  # seconds; the long form has the default
AGAIN_WITHIN = 15  # seconds from a death to the next start of what was at it; judged in the long form
DRAIN = 180.0
KIB = 1024
WANTED = {"cancel done", "cancel requested", "suspend done", "suspend requested", "resume done"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with nobody_left():
        app.use(f"sqlite:///{tmp_path}/jobs.db")
        yield tmp_path
        app.close()


@dataclass
class ServerProcesses:
    """Workers of which any may be killed at any time, but for the first: someone must live long enough to see that
    another is gone."""

    folder: Path
    chance: random.Random
    workers: list[WorkerProcess] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    deaths: dict[str, datetime] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def start(self, n: int) -> None:
        name = f"w{n}x{sum(self.kills.values())}"
        words = ("--lease", f"{LEASE}s", "--processes", "2", "--async-jobs", "8", "--name", name)
        worker = WorkerProcess(TARGET, app.settings.url, self.folder, *words)
        self.workers[n : n + 1], self.names[n : n + 1] = [worker], [name]

    def kill_someone(self) -> None:
        """Mostly one that is at work, sometimes one that just starts."""
        live = live_pids(app)
        at_work = [n for n, worker in enumerate(self.workers) if worker.pid in live]
        n = self.chance.choice(at_work if self.chance.random() < 0.8 else range(len(self.workers)))
        worker = self.workers[n]
        assert worker.returned is None, f"{self.names[n]} had ended by itself: {worker.said}"
        if n == 0 or (n in at_work and self.chance.random() < 0.4):
            self._kill_child_of(worker)
            return
        self.deaths[self.names[n]] = datetime.now(UTC)
        worker.kill()
        self.kills["workers"] += 1
        self.start(n)

    def _kill_child_of(self, worker: WorkerProcess) -> None:
        children = until(lambda: worker.children, "it has children")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.chance.choice(children), signal.SIGKILL)
        self.kills["children"] += 1

    def stop(self) -> None:
        for worker in self.workers:
            worker.wait_ready(app).signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait() == 0, worker.said


async def test_nothing_is_lost_and_nothing_counts_twice_while_workers_and_children_are_killed(folder, tell):
    chance = random.Random(23)
    crew = ServerProcesses(folder, chance)
    jobs = []
    began_at = time.monotonic()
    with contextlib.ExitStack() as ending:
        for n in range(3):
            crew.start(n)
        ending.callback(lambda: [worker.kill() for worker in crew.workers])
        for worker in crew.workers:
            worker.wait_ready(app)
        for round_ in range(KILLS):
            share = JOBS * (round_ + 1) // KILLS - len(jobs)
            rows = [{"seconds": chance.random() * 0.5} for _ in range(share)]
            jobs += effect.submit_many(rows[::2]) + aeffect.submit_many(rows[1::2])
            time.sleep(chance.random() * count(1, 2))
            crew.kill_someone()
        killed_in = time.monotonic() - began_at
        drained_in = drain()
        crew.stop()

    async with SqliteStore(folder / "jobs.db") as store:
        story = await retell(store)
        events = await all_events(store)
        found = {job.id: job for job in await store.get([job.id for job in jobs]) if job is not None}
    assert len(found) == len(jobs) == JOBS
    lines = read_lines()
    leases = Counter((line["job"], line["fence"]) for line in lines if line["word"] == "began")
    did = {(line["job"], line["fence"]) for line in lines if line["word"] == "did"}
    assert max(leases.values()) == 1, "one lease was begun twice"
    for job in found.values():
        assert job.state is State.COMPLETED, f"{job.id} is {job.state} ({job.reason})"
        fence = int(job.result or b"0")
        assert fence == job.fence, "the result is not of the lease that was settled"
        assert (job.id, fence) in did, "a result without its effect"
        assert sum(event.kind == "completed" for event in events[job.id]) == 1
    waits = [wait for job in jobs for wait in orphaned(events[job.id], crew.deaths)]
    slowest = max(waits, default=0.0)
    tell(
        f"{crew.kills['workers']} workers and {crew.kills['children']} children killed in {killed_in:.0f} s over "
        f"{JOBS} jobs, 0 lost, 0 counted twice; {len(leases) - JOBS} runs were repeats; {len(waits)} orphans of dead "
        f"workers ran again within {slowest:.1f} s at leases of {LEASE} s; {len(story.handovers)} leases taken over; "
        f"drained in {drained_in:.1f} s"
    )
    assert waits, "no killed worker held a lease: the test showed nothing"
    assert crew.kills["children"] >= KILLS // 5
    late = [
        story_of(events[job.id]) for job in jobs if max(orphaned(events[job.id], crew.deaths), default=0) > AGAIN_WITHIN
    ]
    assert not (late and LONG), f"deaths: {crew.deaths}; {late[:3]}"


async def test_requests_and_limits_amid_deaths_are_answered_as_promised(folder, tell):
    """People cancel, suspend and resume whatever comes under their hands while limits run out and processes die."""
    chance = random.Random(31)
    crew = ServerProcesses(folder, chance)
    jobs: list[JobHandle[int]] = []
    cancelled: dict[str, str] = {}
    asked: Counter[str] = Counter()
    with contextlib.ExitStack() as ending:
        for n in range(2):
            crew.start(n)
        ending.callback(lambda: [worker.kill() for worker in crew.workers])
        for worker in crew.workers:
            worker.wait_ready(app)
        for n in range(5 * (rounds := count(8, 60))):
            if n >= rounds and asked.keys() >= WANTED:
                break
            for task in (effect, aeffect, limited, alimited):
                jobs += task.submit_many([{"seconds": chance.random() * 0.4} for _ in range(8)])
            next_kill = time.monotonic() + 0.5 + chance.random()
            while time.monotonic() < next_kill:
                ask_something(chance, jobs, cancelled, asked)
                time.sleep(0.01)
            crew.kill_someone()
        until(lambda: not resume_all(), "nothing is suspended any more", DRAIN)
        drain()
        crew.stop()

    async with SqliteStore(folder / "jobs.db") as store:
        events = await all_events(store)
        found = [job for job in await store.get([job.id for job in jobs]) if job is not None]
    assert len(found) == len(jobs)
    leases = Counter((line["job"], line["fence"]) for line in read_lines(word="began"))
    assert max(leases.values()) == 1, "one lease was begun twice"
    ended = Counter((job.state, job.reason) for job in found)
    for job in found:
        told = fold(events[job.id])
        assert (told.state, told.reason, told.attempt, told.fence) == (job.state, job.reason, job.attempt, job.fence)
        assert sum(event.state in FINAL for event in events[job.id]) == 1, story_of(events[job.id])
        if job.id in cancelled:
            assert job.state is State.CANCELLED, f"{cancelled[job.id]}: {story_of(events[job.id])}"
        else:
            # The limited ones have two attempts, and a death alone at the last ends a job as well.
            assert job.state is State.COMPLETED or job.reason in {Reason.TIMEOUT, Reason.LOST}
            assert job.state is State.COMPLETED or job.spec.task in {"limited", "alimited"}
    tell(
        f"{crew.kills['workers']} workers and {crew.kills['children']} children killed over {len(jobs)} jobs, {asked}: "
        + ", ".join(
            f"{n} {state.value}{f' ({reason.value})' if reason else ''}" for (state, reason), n in ended.items()
        )
    )
    assert asked.keys() >= WANTED, "too little was asked: the test showed too little"


def ask_something(
    chance: random.Random, jobs: list[JobHandle[int]], cancelled: dict[str, str], asked: Counter[str]
) -> None:
    job = chance.choice(jobs[-100:])
    action = chance.choice(["cancel", "suspend", "suspend", "resume", "resume"])
    verdict = getattr(job, action)().verdict
    asked[f"{action} {verdict}"] += 1
    if action == "cancel" and verdict in {"done", "requested"}:
        cancelled[job.id] = verdict


def resume_all() -> int:
    """How many were still suspended, or about to be."""

    async def resume(client: Client) -> int:
        suspended = [
            job async for job in client.find_all(state=UNFINISHED) if job.state is State.SUSPENDED or job.suspending
        ]
        for job in suspended:
            await client.resume(job.id)
        return len(suspended)

    return ask(app, resume)


def drain() -> float:
    began_at = time.monotonic()
    until(lambda: not unfinished(), "drained", DRAIN)
    return time.monotonic() - began_at


def unfinished() -> int:
    """How many are unfinished at one instant: a job that changes its state between two counts would be in neither."""
    counts = ask(app, lambda client: client.count())
    return sum(counts[state] for state in UNFINISHED)


async def all_events(store: SqliteStore) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    cursor = None
    while (feed := await store.events(cursor, limit=5000)).events:
        for event in feed.events:
            found[event.job].append(event)
        cursor = feed.cursor
    return found


def orphaned(events: list[Event], deaths: dict[str, datetime]) -> Iterator[float]:
    """For each lease that a dead worker held when it died: how long after the death the job was started again."""
    for n, event in enumerate(events):
        died_at = deaths.get(event.by.partition("-")[0]) if event.kind == "started" else None
        if died_at is None:
            continue
        after = [later for later in events[n + 1 :] if later.kind != "progress"]
        if after and after[0].kind == "lease_expired":
            again = next(later for later in after if later.kind == "started")
            yield (again.at - max(died_at, event.at)).total_seconds()


def story_of(events: list[Event]) -> str:
    return "; ".join(f"{event.at:%M:%S.%f} {event.kind} by {event.by.partition('-')[0]}" for event in events)


# -- memory ------------------------------------------------------------------------------------------------------------

THROUGH = count(30_000, 1_000_000)
# Bytes that a job may leave behind in a process, by measurement noise. In the short form one step of the allocator is
# much, and a busy machine makes more of them.
PER_JOB = count(2000, 40)


def slope(points: list[tuple[int, int]]) -> float:
    """The least-squares slope of y over x."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def test_memory_of_supervisor_children_and_client_stays_flat(folder, tell):
    words = ("--processes", "1", "--lease", "2s")
    client = [sys.executable, str(Path(__file__).with_name("worker_client.py")), app.settings.url]
    samples: dict[str, list[tuple[int, int]]] = defaultdict(list)
    began_at = time.monotonic()
    with (
        WorkerProcess(TARGET, app.settings.url, folder, *words) as worker,
        subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller,
    ):
        worker.wait_ready(app)
        assert caller.stdout.readline() == "ready\n"
        watched = {"supervisor": worker.pid, "client": caller.pid}
        watched |= {f"child {n}": pid for n, pid in enumerate(worker.children)}
        done = 0
        while done < THROUGH:
            caller.stdin.write("go on\n")
            caller.stdin.flush()
            done += int(caller.stdout.readline())
            for name, pid in watched.items():
                samples[name].append((done, rss(pid)))
        took = time.monotonic() - began_at
        assert sorted(worker.children) == sorted(watched[name] for name in watched if name.startswith("child"))
        caller.stdin.close()
        assert caller.wait(30) == 0
        assert worker.stop() == 0
    grown = {name: slope(points[len(points) // 2 :]) for name, points in samples.items()}
    told = "; ".join(
        f"{name} {points[len(points) // 2][1] // KIB} then {points[-1][1] // KIB} KiB, {grown[name]:+.1f} bytes a job"
        for name, points in samples.items()
    )
    tell(f"{done} jobs at {done / took:.0f}/s: {told}")
    assert all(per_job < PER_JOB for per_job in grown.values()), grown
