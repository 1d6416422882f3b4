"""Stores on servers, with workers, clients, connections and the servers themselves killed, cut and stopped."""

# ruff: noqa: ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from herd import LONG, count
from postgres_proxy import Proxy
from server_client import DELAY
from server_clock import shifted
from server_judge import assert_in_order, histories, look_back, name_of, story_of
from server_places import place_on
from server_rooms import room, wire_to
from worker_hand import LINES, WorkerProcess, ask, nobody_left, read_lines, thaw, until
from worker_load import aeffect, app, effect

from daybreak import Client
from daybreak.events import Event
from daybreak.model import UNFINISHED, State
from daybreak.store import Store
from daybreak.stores import store_for
from daybreak.testing.contract.builders import jobs_of
from daybreak.worker import record

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(not LONG, reason="torture of servers takes minutes: DAYBREAK_TORTURE=long, or make torture"),
]

TARGET = Path(__file__).with_name("worker_load.py")
CLIENT = Path(__file__).with_name("server_client.py")
LEASE = count(1, 2)  # seconds
LONGER = ("--lease", f"{2 * LEASE}s")  # where many processes start beside those who must not be late
MARGIN = 4.0  # seconds beyond two leases: two processors for all of these processes
DRAIN = 120.0
WORDS = ("--lease", f"{LEASE}s", "--processes", "1", "--async-jobs", "6")


@pytest.fixture(params=["postgres", "redis"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with nobody_left():
        yield tmp_path


@pytest.fixture
def url(kind, folder) -> Iterator[str]:
    """A store of its own on the server that is there for all tests."""
    with place_on(kind) as url, used(url):
        yield url


@pytest.fixture
def server(kind, folder):
    """A server of its own."""
    with room(kind, folder) as server, used(server.url):
        yield server


@contextlib.contextmanager
def used(url: str) -> Iterator[None]:
    app.close()
    app.use(url)
    try:
        yield
    finally:
        app.close()


@pytest.fixture
def crew(folder) -> Iterator[Crew]:
    with contextlib.ExitStack() as ending:
        crew = Crew(folder)
        ending.callback(crew.kill_all)
        yield crew


@dataclass
class Crew:
    """Workers and clients; none outlives the test."""

    folder: Path
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    clients: list[subprocess.Popen[str]] = field(default_factory=list)
    deaths: dict[str, datetime] = field(default_factory=dict)

    def start(self, name: str, *words: str, url: str | None = None, env: dict[str, str] | None = None) -> None:
        self.workers[name] = WorkerProcess(
            TARGET, url or app.settings.url, self.folder, *WORDS, *words, "--name", name, env=env
        )

    def start_all(self, *names: str, words: Sequence[str] = (), url: str | None = None) -> None:
        for name in names:
            self.start(name, *words, url=url)
        for name in names:
            self.workers[name].wait_ready(app)

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        assert worker.returned is None, f"{name} had ended by itself: {worker.said}"
        self.deaths[name] = datetime.now(UTC)
        worker.kill()

    def client(self, role: str, name: str, url: str | None = None, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(CLIENT), role, url or app.settings.url, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more,
        )  # fmt: skip
        self.clients.append(process)
        return process

    def ready(self) -> None:
        for client in self.clients:
            assert client.stdout.readline() == "ready\n"

    def dismiss_clients(self) -> None:
        """They end what they are at."""
        for client in self.clients:
            client.stdin.close()
        for client in self.clients:
            assert client.wait(DRAIN) == 0
            client.stdout.close()
        self.clients = []

    def stop(self) -> str:
        """What the workers said in their lives, which go on to a good end."""
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)
        for worker in self.workers.values():
            assert worker.wait(60) == 0, worker.said
        said = "".join(worker.said for worker in self.workers.values())
        self.workers = {}
        assert "Traceback" not in said, said
        return said

    def kill_all(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        for client in self.clients:
            client.kill()
            client.wait()
            for pipe in (client.stdin, client.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def drain() -> float:
    """Until every job has ended."""
    began_at = time.monotonic()
    while left := sum(ask(app, lambda client: client.count())[state] for state in UNFINISHED):
        assert time.monotonic() < began_at + DRAIN, f"{left} jobs have not ended"
        time.sleep(0.05)
    return time.monotonic() - began_at


def submit_all(seconds: list[float]) -> list[str]:
    """Jobs that take so long, sync and async ones in turn; their ids."""
    rows = [{"seconds": each} for each in seconds]
    return [job.id for job in effect.submit_many(rows[::2]) + aeffect.submit_many(rows[1::2])]


def submit_lasting(seconds: list[float]) -> list[str]:
    """Jobs that all run at once, as far as two workers can: one sync job for each of them, the rest async."""
    rows = [{"seconds": each} for each in seconds]
    return [job.id for job in effect.submit_many(rows[:2]) + aeffect.submit_many(rows[2:])]


# -- workers -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_lost_and_nothing_counts_twice_while_workers_are_killed(url, crew, tell):
    """The first is left alone: someone must live long enough to see that another is gone."""
    kills, jobs, wanted = count(6, 150), [], count(200, 2400)
    chance = random.Random(41)
    crew.start_all("w0", "w1", "w2", words=LONGER)
    for round_ in range(kills):
        jobs += submit_all([chance.random() * 0.4 for _ in range(wanted * (round_ + 1) // kills - len(jobs))])
        time.sleep(chance.random() * count(1, 2))
        crew.kill(victim(chance, list(crew.workers)[1:]))
        crew.start(f"w{round_ + 3}", *LONGER)
    drained_in = drain()
    for worker in crew.workers.values():
        worker.wait_ready(app)
    crew.stop()
    seen = await look_back(url, jobs)
    waits = seen.waits(crew.deaths)
    slowest = max(waits.values(), default=0.0)
    tell(
        f"{len(crew.deaths)} workers killed over {len(jobs)} jobs, 0 lost, 0 counted twice; "
        f"{seen.begun.total() - len(jobs)} runs were repeats; {len(waits)} orphans ran again within {slowest:.1f} s at "
        f"leases of {2 * LEASE} s; drained in {drained_in:.1f} s"
    )
    assert waits, "no killed worker held a lease: the test showed nothing"
    late = [story_of(seen.events[job]) for job, wait in waits.items() if wait > 4 * LEASE + MARGIN]
    assert not late, f"deaths: {crew.deaths}; {late[:3]}"


def victim(chance: random.Random, names: list[str]) -> str:
    """Mostly one that holds a job, sometimes one that just starts."""

    async def look(client: Client) -> list[str]:
        found = {job.worker.partition("-")[0] async for job in client.find_all(state=State.RUNNING) if job.worker}
        return sorted(found & set(names))

    ends_at = time.monotonic() + (2 * LEASE if chance.random() < 0.8 else 0)
    while time.monotonic() < ends_at:
        if holders := ask(app, look):
            return chance.choice(holders)
    return chance.choice(names)


async def test_many_workers_do_each_job_once(url, crew, tell):
    each, jobs, took = count(1000, 5000), [], {}
    for workers in (1, 2, 4):
        crew.start_all(*(f"w{n}" for n in range(len(crew.workers), workers)))
        jobs += submit_all([0.0] * each)
        took[workers] = drain()
    crew.stop()
    seen = await look_back(url, jobs)
    seen.assert_uncharged()
    shares = Counter(name_of(event) for told in seen.events.values() for event in told if event.kind == "completed")
    tell(f"{each} jobs each by {', '.join(f'{n} workers in {t:.1f} s' for n, t in took.items())}; {dict(shares)}")
    assert len(shares) == 4, "someone had nothing to do: the test showed nothing"


# -- servers -----------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_killed_and_restarted_loses_nothing_it_acknowledged(server, crew, tell):
    chance = random.Random(43)
    outages = count(3, 40)
    crew.start_all("w0", "w1", words=LONGER)
    for role, name in (("patient", "ann"), ("bare", "bob")):
        crew.client(role, name)
    crew.ready()
    jobs = submit_all([chance.random() * 0.3 for _ in range(outages * 25)])
    for n in range(outages):
        time.sleep(0.4 + chance.random())
        (server.shut_down if n % 2 else server.kill)()
        time.sleep(chance.random() * 1.2)
        server.start()
    time.sleep(0.3)
    crew.dismiss_clients()
    drained_in = drain()
    crew.stop()
    told, tries = acknowledged()
    seen = await look_back(server.url, [*jobs, *told.values()])
    assert all(seen.jobs[job].spec.key == key for key, job in told.items())
    tell(
        f"{outages} outages, every other one a kill, over {len(seen.jobs)} jobs, 0 lost, 0 twice; {tries} submits were "
        f"told of trouble and said again; drained in {drained_in:.1f} s"
    )
    assert tries, "nobody was told of any trouble: the test showed nothing"
    seen.assert_uncharged()


def acknowledged() -> tuple[dict[str, str], int]:
    """The one job of each key, and how many tries there were beyond the first."""
    found: dict[str, set[str]] = defaultdict(set)
    lines = read_lines(word="acknowledged")
    for line in lines:
        found[line["key"]].add(line["job"])
    twice = {key: jobs for key, jobs in found.items() if len(jobs) > 1}
    assert not twice, f"keys that stand for more than one job: {twice}"
    return {key: jobs.pop() for key, jobs in found.items()}, sum(line["tries"] - 1 for line in lines)


async def test_an_outage_of_several_leases_charges_nobody(kind, server, crew, tell):
    """The server stops answering for a while, then it is shut down for a while; jobs end before, meanwhile and after.
    One worker comes back a little later than the other, who must wait for it.

    The long form is silent for longer than a client waits for an answer: what was asked then is carried out late, after
    whoever asked has given up."""
    chance = random.Random(47)
    jobs, rounds, outage = [], count(1, 6), count(3, 15)
    with contextlib.ExitStack() as ending:
        wires = {name: ending.enter_context(wire_to(server.url)) for name in ("w0", "w1")}
        for name, (_, far) in wires.items():
            crew.start(name, url=f"{far}?answer_within=10s" if kind == "postgres" else far)
        for worker in crew.workers.values():
            worker.wait_ready(app)
        for n in range(rounds):
            jobs += submit_lasting([chance.random() * 2 * outage for _ in range(12)]) + submit_all([0.05] * 20)
            time.sleep(0.5 * LEASE)
            late, _ = wires[f"w{n % 2}"]
            late.flowing.clear()
            stopped = server.freeze()
            time.sleep(outage)
            thaw(stopped)
            time.sleep(0.3 * LEASE)
            late.flowing.set()
            jobs += submit_all([chance.random() * 0.2 for _ in range(20)])
            time.sleep(0.5 * LEASE)
            server.shut_down()
            time.sleep(outage)
            server.start()
            jobs += submit_all([chance.random() * 0.2 for _ in range(20)])
        drained_in = drain()
        said = crew.stop()
    seen = await look_back(server.url, jobs)
    tell(
        f"{2 * rounds} outages of {outage} s at leases of {LEASE} s over {len(jobs)} jobs, {len(seen.charged)} "
        f"charged; workers asked again {said.count('trying again')} times; drained in {drained_in:.1f} s"
    )
    assert "heartbeat:" in said, "no heartbeat was missed: the test showed nothing"
    seen.assert_uncharged()


# -- connections -------------------------------------------------------------------------------------------------------


async def test_answers_that_are_lost_after_the_commit_lose_nothing(url, crew, tell):
    """Leases are longer than one question can go unanswered here: nobody can keep a lease that he does not know of. One
    that stayed unknown would be charged all the same, only later."""
    chance = random.Random(53)
    cuts = count(40, 1500)
    with wire_to(url) as (wire, far):
        crew.start_all("w0", "w1", words=("--lease", "10s"), url=far)
        for role, name in (("patient", "ann"), ("bare", "bob")):
            crew.client(role, name, url=far)
        crew.ready()
        jobs = submit_all([chance.random() * 0.15 for _ in range(cuts * 4)])
        for _ in range(cuts):
            time.sleep(chance.random() * 0.15)
            cut_an_answer(wire)
        crew.dismiss_clients()
        drained_in = drain()
        said = crew.stop()
    told, tries = acknowledged()
    seen = await look_back(url, [*jobs, *told.values()])
    unknown = said.count("may or may not have")
    tell(
        f"{wire.cut} answers cut over {len(seen.jobs)} jobs, 0 lost, 0 twice, {len(seen.charged)} charged; {tries} "
        f"submits said again, {unknown} questions of workers asked again; drained in {drained_in:.1f} s"
    )
    assert tries, "no submit was hit: the test showed nothing"
    assert unknown, "no worker was hit: the test showed nothing"
    seen.assert_uncharged()


def cut_an_answer(wire: Proxy) -> None:
    """The next one that comes is lost with its connection, and what follows at its heels."""
    before = wire.cut
    wire.cut_replies.set()
    until(lambda: wire.cut > before, "an answer was cut")
    wire.cut_replies.clear()


# -- clocks ------------------------------------------------------------------------------------------------------------


async def test_workers_whose_clocks_are_days_apart(url, crew, tell):
    """One is a day ahead of the server, one a day behind; so are two who submit what is to wait."""
    day = timedelta(days=1)
    env = {name: shifted(crew.folder, by) for name, by in (("ahead", day), ("behind", -day))}
    for name, clock in env.items():
        crew.start(name, env=clock)
        crew.client("delayed", name, env={**os.environ, **clock})
    for name, worker in crew.workers.items():
        off = ready_with_clock(worker) - datetime.now(UTC)
        assert abs(off - (day if name == "ahead" else -day)) < timedelta(minutes=1)
    jobs = submit_lasting([3.0 * LEASE] * 8)
    crew.ready()
    drain()
    crew.dismiss_clients()
    delayed = [line["job"] for line in read_lines(word="delayed")]
    quiet = await look_back(url, jobs + delayed)
    quiet.assert_uncharged()
    holders = {name_of(event) for told in quiet.events.values() for event in told if event.kind == "started"}
    assert holders == set(env), "one of them had nothing to do: the test showed nothing"
    early = [job for job in delayed if min(waited(job, quiet.events[job])) < DELAY]
    assert not early, [(waited(job, quiet.events[job]), story_of(quiet.events[job])) for job in early]

    for victim, heir in (("ahead", "behind"), ("behind", "ahead2")):
        if heir not in crew.workers:
            crew.start(heir, env=env["ahead"])
            ready_with_clock(crew.workers[heir])
        jobs += submit_until_all_work({victim, heir})
        crew.kill(victim)
    drain()
    crew.stop()
    seen = await look_back(url, jobs + delayed)
    waits = seen.waits(crew.deaths)
    slowest = max(waits.values(), default=0.0)
    tell(
        f"clocks two days apart: {len(quiet.jobs)} jobs, {len(delayed)} of them delayed by {DELAY} s, none early, none "
        f"taken over; {len(waits)} jobs of killed workers ran again within {slowest:.1f} s at leases of {LEASE} s"
    )
    assert len(waits) >= 2
    late = [story_of(seen.events[job]) for job, wait in waits.items() if wait > 2 * LEASE + MARGIN]
    assert not late, f"deaths: {crew.deaths}; {late[:3]}"


def ready_with_clock(worker: WorkerProcess) -> datetime:
    """Until it takes work; what time it says it is."""

    async def look(client: Client) -> list[datetime]:
        found = [record.read(one) for one in await client.store.records(record.KIND)]
        return [about.seen_at for about in found if about.pid == worker.pid]

    return until(lambda: ask(app, look), "the worker is ready")[0]


def submit_until_all_work(names: set[str]) -> list[str]:
    """Until each of these workers holds a job; one that is quick may take them all, then there are more."""
    jobs: list[str] = []

    async def look(client: Client) -> set[str]:
        found = await client.store.get(jobs)
        return {job.worker.partition("-")[0] for job in found if job is not None and job.worker}

    for _ in range(20):
        jobs += submit_lasting([0.5 * LEASE] * 6)
        ends_at = time.monotonic() + LEASE
        while time.monotonic() < ends_at:
            if ask(app, look) >= names:
                return jobs
    raise AssertionError(f"not all of {names} take work")


def waited(job: str, events: list[Event]) -> tuple[float, float]:
    """From the submit until it was queued, by the server's clock; and until its work began, by this machine's."""
    at = {event.kind: event.at for event in events}
    [asked] = read_lines(word="delayed", job=job)
    [began] = read_lines(word="began", job=job)
    return (at["due"] - at["submitted"]).total_seconds(), began["t"] - asked["asked_at"]


# -- events ------------------------------------------------------------------------------------------------------------


async def test_a_follower_sees_every_event_once_and_in_order_while_many_write(url, crew, tell):
    ended = asyncio.Event()
    async with store_for(url) as store:
        followers = [asyncio.create_task(follow(store, limit, ended)) for limit in (1000, 7)]
        for n in range(4):
            crew.client("writer", f"writer{n}")
        began_at = time.monotonic()
        while any(client.poll() is None for client in crew.clients):
            await asyncio.sleep(0.05)
            assert time.monotonic() < began_at + DRAIN
        crew.ready()
        crew.dismiss_clients()
        jobs = [job.id for job in await jobs_of(store, 500)]
        kept = [event for told in (await histories(store, jobs)).values() for event in told]
        ended.set()
        async with asyncio.timeout(DRAIN):
            seen = await asyncio.gather(*followers)
    wanted = Counter((event.job, event.n) for event in kept)
    assert len(wanted) == len(kept)
    for events in seen:
        assert Counter((event.job, event.n) for event in events) == wanted
        by_job: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_job[event.job].append(event)
        for told in by_job.values():
            assert_in_order(told)
    tell(
        f"{len(kept)} events of {len(by_job)} jobs, written by 4 processes, each seen once and in order by 2 followers"
    )


async def follow(store: Store, limit: int, ended: asyncio.Event) -> list[Event]:
    """All events from the first on, until nothing more can come."""
    seen: list[Event] = []
    cursor = None
    while True:
        is_last = ended.is_set()
        feed = await store.events(cursor, limit=limit)
        seen += feed.events
        cursor = feed.cursor
        if not feed.events:
            if is_last:
                return seen
            await asyncio.sleep(0.01)
