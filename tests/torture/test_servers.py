"""Stores on servers, with workers, clients, connections and the servers themselves killed, cut and stopped.

No verdict hangs on how fast the machine is: what a test has not shown yet, it tries on; and only the long form judges
how long things took."""

# ruff: noqa: ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from player_processes import LONG, count
from postgres_proxy import Proxy
from private_servers import PrivateServer, private_server, wire_to
from server_checks import Seen, assert_in_order, histories, look_back, opened, story_of
from server_client import DELAY
from server_clock import shifted
from server_processes import (
    CALM,
    DRAIN,
    LEASE,
    LEASES,
    TRIES,
    ServerProcesses,
    drain,
    name_in,
    running,
    submit_all,
    submit_lasting,
    submit_until_all_work,
    used,
)
from server_stores import place_on
from worker_load import app
from worker_processes import LINES, ask, nobody_left, read_lines, thaw, until

from daybreak import Client
from daybreak.core.events import Event
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import jobs_of
from daybreak.worker.supervisor import worker_record

pytestmark = pytest.mark.torture

MARGIN = 4.0  # seconds beyond two leases: two processors for all of these processes
Tell = Callable[[str], None]


@pytest.fixture(params=["postgres", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with nobody_left():
        yield tmp_path


@pytest.fixture
def url(kind: str, folder: Path) -> Iterator[str]:
    """A store of its own on the server that is there for all tests."""
    with place_on(kind) as url, used(url):
        yield url


@pytest.fixture
def server(kind: str, folder: Path) -> Iterator[PrivateServer]:
    """A server of its own."""
    with private_server(kind, folder) as server, used(server.url):
        yield server


@pytest.fixture
def processes(folder: Path) -> Iterator[ServerProcesses]:
    with contextlib.ExitStack() as ending:
        processes = ServerProcesses(folder)
        ending.callback(processes.kill_all)
        yield processes


def assert_in_time(seen: Seen, deaths: dict[str, datetime], lease: int) -> None:
    """What the dead held ran again within two leases."""
    late = [story_of(seen.events[job]) for job, wait in seen.waits(deaths).items() if wait > 2 * lease + MARGIN]
    assert not (late and LONG), f"deaths: {deaths}; {late[:3]}"


# -- workers -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_lost_and_nothing_counts_twice_while_workers_are_killed(
    url: str, processes: ServerProcesses, tell: Tell
) -> None:
    """Some are only stopped, until others have their jobs: then they go on, and what they did must not count.

    The first is left alone: someone must live long enough to see that another is gone."""
    kills, stops, wanted, lease = count(3, 150), count(1, 15), count(60, 2400), count(1, 4)
    chance = random.Random(41)
    jobs: list[str] = []
    processes.start_all("w0", "w1", "w2", lease=lease)
    for n in range(kills + TRIES):
        if n > 0:
            processes.start(f"w{n + 2}", lease)
        seconds = [chance.random() * 0.4 for _ in range(max(5, wanted * (n + 1) // kills - len(jobs)))]
        is_stop = n % (kills // stops) == 0
        jobs += submit_all(seconds)
        time.sleep(chance.random() * count(1, 2))
        processes.kill(victim(chance, list(processes.workers)[1:], lease if chance.random() < 0.8 else 0))
        if is_stop:
            jobs += submit_lasting([0.4] * 8)
            processes.oversleep(victim(chance, list(processes.workers)[1:], lease))
        if n + 1 >= kills:
            drained_in = drain()
            seen = await look_back(url, jobs)
            if (waits := seen.waits(processes.deaths)) and (vain := in_vain(seen)):
                break
    else:
        pytest.fail("no one who was killed, or no one who was stopped, held a job: the test showed nothing")
    for worker in processes.workers.values():
        worker.wait_ready(app)
    processes.stop()
    tell(
        f"{len(processes.deaths)} workers killed and some stopped over {len(jobs)} jobs, 0 lost, 0 counted twice; "
        f"{seen.begun.total() - len(jobs)} runs were repeats, {vain} ended when their lease was lost; {len(waits)} "
        f"orphans ran again within {max(waits.values()):.1f} s at leases of {lease} s; drained in {drained_in:.1f} s"
    )
    assert_in_time(seen, processes.deaths, lease)


def victim(chance: random.Random, names: list[str], patience: float) -> str:
    """One that holds a job, if there is any soon; else any one, which may just be starting."""
    ends_at = time.monotonic() + patience
    while time.monotonic() < ends_at:
        if holders := sorted({name_in(job.worker) for job in running()} & set(names)):
            return chance.choice(holders)
    return chance.choice(names)


def in_vain(seen: Seen) -> int:
    """How many runs came to their end, and another run of the same job counted."""
    return sum(line["fence"] != seen.jobs[line["job"]].fence for line in read_lines(word="did"))


async def test_many_workers_do_each_job_once(url: str, processes: ServerProcesses, tell: Tell) -> None:
    each, lease = count(900, 5000), count(CALM, LEASE)
    jobs: list[str] = []
    took: dict[int, float] = {}
    for workers in (1, 2, 4) if LONG else (3,):
        processes.start_all(*(f"w{n}" for n in range(len(processes.workers), workers)), lease=lease)
        jobs += submit_all([0.0] * each)
        took[workers] = drain()
    for _ in range(TRIES):
        seen = await look_back(url, jobs)
        if set(seen.holders) == set(processes.workers):
            break
        jobs += submit_all([0.02] * each)
        drain()
    else:
        pytest.fail(f"of {set(processes.workers)}, someone had nothing to do: the test showed nothing")
    processes.stop()
    seen.assert_uncharged()
    tell(f"{each} jobs each by {', '.join(f'{n} workers in {t:.1f} s' for n, t in took.items())}; {dict(seen.holders)}")


# -- servers -----------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_killed_and_restarted_loses_nothing_it_acknowledged(
    server: PrivateServer, processes: ServerProcesses, tell: Tell
) -> None:
    """Every other time it is shut down in order. In the long form leases are short enough to run out meanwhile."""
    chance = random.Random(43)
    outages = count(2, 40)
    processes.start_all("w0", "w1", lease=count(CALM, 2 * LEASE))
    for role, name in (("patient", "ann"), ("bare", "bob")):
        processes.client(role, name)
    processes.ready()
    jobs = submit_all([chance.random() * 0.3 for _ in range(outages * 25)])
    for n in range(outages + TRIES):
        time.sleep(0.4 + chance.random())
        (server.shut_down if n % 2 else server.kill)()
        time.sleep(chance.random() * 1.2)
        server.start()
        if n + 1 >= outages and acknowledged()[1]:
            break
    time.sleep(0.3)
    processes.dismiss_clients()
    drained_in = drain()
    processes.stop()
    told, tries = acknowledged()
    seen = await look_back(server.url, [*jobs, *told.values()])
    assert all(seen.jobs[job].spec.key == key for key, job in told.items())
    tell(
        f"{n + 1} outages, every other one a kill, over {len(seen.jobs)} jobs, 0 lost, 0 twice; {tries} submits were "
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


async def test_an_outage_of_several_leases_charges_nobody(
    kind: str, server: PrivateServer, processes: ServerProcesses, tell: Tell
) -> None:
    """The server stops answering for a while, then it is shut down for a while; jobs end before, meanwhile and after,
    some of them more than a lease after. One worker comes back a little later than the other, who must wait for it.

    The long form is silent for longer than a client waits for an answer: what was asked then is carried out late, after
    whoever asked has given up."""
    jobs: list[str] = []
    rounds = count(1, 6)
    for lease in LEASES:
        outage = count(2 * lease, 15)
        new, said = outages_of(outage, rounds, lease, kind, server, processes)
        jobs += new
        seen = (await look_back(server.url, jobs)).only(new)
        if "heartbeat:" in said and not seen.taken_over:
            break
    tell(
        f"{2 * rounds} outages of {outage} s at leases of {lease} s over {len(new)} jobs, {len(seen.charged)} "
        f"charged; workers asked again {said.count('trying again')} times"
    )
    assert "heartbeat:" in said, "no heartbeat was missed: the test showed nothing"
    seen.assert_uncharged()


def outages_of(
    outage: int, rounds: int, lease: int, kind: str, server: PrivateServer, processes: ServerProcesses
) -> tuple[list[str], str]:
    """What was submitted meanwhile, all of it ended; and what the workers said."""
    chance = random.Random(47)
    jobs: list[str] = []
    with contextlib.ExitStack() as ending:
        wires = {name: ending.enter_context(wire_to(server.url)) for name in ("w0", "w1")}
        for name, (_, far) in wires.items():
            processes.start(name, lease, url=f"{far}?answer_within=10s" if kind == "postgres" else far)
        for worker in processes.workers.values():
            worker.wait_ready(app)
        for n in range(rounds):
            lasting = [chance.random() * 2 * outage for _ in range(8)] + [2.0 * outage + 5 * lease] * 4
            jobs += submit_lasting(lasting) + submit_all([0.05] * 20)
            time.sleep(0.5 * lease)
            late, _ = wires[f"w{n % 2}"]
            late.flowing.clear()
            stopped = server.freeze()
            time.sleep(outage)
            thaw(stopped)
            time.sleep(0.3 * lease)
            late.flowing.set()
            jobs += submit_all([chance.random() * 0.2 for _ in range(20)])
            time.sleep(1.5 * lease)
            server.shut_down()
            time.sleep(outage)
            server.start()
            jobs += submit_all([chance.random() * 0.2 for _ in range(20)])
        drain()
        return jobs, processes.stop()


# -- connections -------------------------------------------------------------------------------------------------------


async def test_answers_that_are_lost_after_the_commit_lose_nothing(
    url: str, processes: ServerProcesses, tell: Tell
) -> None:
    """Leases are longer than one question can go unanswered here: nobody can keep a lease that he does not know of. One
    that stayed unknown would be charged all the same, only later.

    Who asks again is told what he was given before. What he is not told of is found later, and goes back: that is for
    questions that overtake one another, which here they do seldom, if ever."""
    jobs: list[str] = []
    for _ in range(3):
        new, said, cut = cut_answers(count(30, 1500), url, processes)
        told, tries = acknowledged()
        jobs += new
        seen = await look_back(url, [*jobs, *told.values()])
        if STRAY not in said:
            break
    tell(
        f"{cut} answers cut over {len(seen.jobs)} jobs, 0 lost, 0 twice, {len(seen.charged)} charged; {tries} submits "
        f"said again, {said.count(UNKNOWN)} questions of workers asked again"
    )
    assert tries, "no submit was hit: the test showed nothing"
    assert UNKNOWN in said, "no worker was hit: the test showed nothing"
    assert STRAY not in said, "who asked again was not told what he had been given"
    seen.assert_uncharged()


def cut_answers(cuts: int, url: str, processes: ServerProcesses) -> tuple[list[str], str, int]:
    """What was submitted meanwhile, all of it ended; what the workers said; and how many answers were lost."""
    chance = random.Random(53)
    with wire_to(url) as (wire, far):
        processes.start_all("w0", "w1", lease=count(CALM, 10), url=far)
        for role, name in (("patient", "ann"), ("bare", "bob")):
            processes.client(role, name, url=far)
        processes.ready()
        jobs = submit_all([chance.random() * 0.15 for _ in range(cuts * 4)])
        for n in range(cuts * TRIES):
            if n >= cuts and acknowledged()[1] and UNKNOWN in processes.said:
                break
            time.sleep(chance.random() * 0.15)
            cut_an_answer(wire)
        processes.dismiss_clients()
        drain()
        return jobs, processes.stop(), wire.cut


# What a worker says who does not know whether what it asked for was done; and who finds what it did not know of.
UNKNOWN = "may or may not have"
STRAY = "claimed by a request whose reply was lost"


def cut_an_answer(wire: Proxy) -> None:
    """The next one that comes is lost with its connection, and what follows at its heels."""
    before = wire.cut
    wire.cut_replies.set()
    until(lambda: wire.cut > before, "an answer was cut")
    wire.cut_replies.clear()


# -- clocks ------------------------------------------------------------------------------------------------------------


async def test_workers_whose_clocks_are_days_apart(url: str, processes: ServerProcesses, tell: Tell) -> None:
    """One is a day ahead of the server, one a day behind; so are two who submit what is to wait. As long as they live
    they keep what they have; when one is killed, the other takes it over."""
    clocks = {"ahead": shifted(processes.folder, DAY), "behind": shifted(processes.folder, -DAY)}
    jobs: list[str] = []
    for lease in LEASES:
        for name, env in clocks.items():
            processes.start(name, lease, env=env)
            processes.client("delayed", name, env={**os.environ, **env})
        for name in clocks:
            wait_ready(processes, name)
        new = submit_until_all_work(set(clocks), 3.0 * lease)
        processes.ready()
        processes.dismiss_clients()
        drain()
        delayed = [line["job"] for line in read_lines(word="delayed") if line["job"] not in jobs]
        new, jobs = new + delayed, jobs + new + delayed
        quiet = (await look_back(url, jobs)).only(new)
        if not quiet.taken_over:
            break
        processes.stop()
    quiet.assert_uncharged()
    assert set(quiet.holders) == set(clocks)
    early = [job for job in delayed if min(waited(job, quiet.events[job])) < DELAY]
    assert not early, [(waited(job, quiet.events[job]), story_of(quiet.events[job])) for job in early]

    alive = {clock: clock for clock in clocks}
    for n in range(TRIES):
        for clock in clocks:
            for other, name in alive.items():
                if name not in processes.workers:
                    processes.start(name, lease, env=clocks[other])
                    wait_ready(processes, name)
            jobs += submit_until_all_work(set(alive.values()), 0.5 * lease)
            processes.kill(alive[clock])
            alive[clock] = f"{clock}{n}"
        drain()
        seen = await look_back(url, jobs)
        if {clock_of(name) for name, died_at in processes.deaths.items() if seen.waits({name: died_at})} == set(clocks):
            break
    else:
        pytest.fail("of each clock, nobody died with a job: the test showed nothing")
    processes.stop()
    waits = seen.waits(processes.deaths)
    tell(
        f"clocks two days apart: {len(quiet.jobs)} jobs, {len(delayed)} of them delayed by {DELAY} s, none early, none "
        f"taken over; {len(waits)} jobs of killed workers ran again within {max(waits.values()):.1f} s at leases of "
        f"{lease} s"
    )
    assert_in_time(seen, processes.deaths, lease)


DAY = timedelta(days=1)


def clock_of(name: str) -> str:
    return name.rstrip("0123456789")


def wait_ready(processes: ServerProcesses, name: str) -> None:
    """Until it takes work; its clock is off by a day, as its name says."""
    worker = processes.workers[name]

    async def look(client: Client) -> list[datetime]:
        found = [worker_record.read(one) for one in await client.store.records(worker_record.KIND)]
        return [about.seen_at for about in found if about.pid == worker.pid]

    [says] = until(lambda: ask(app, look), "the worker is ready")
    off = says - datetime.now(UTC)
    assert abs(off - (DAY if clock_of(name) == "ahead" else -DAY)) < timedelta(hours=1)


def waited(job: str, events: list[Event]) -> tuple[float, float]:
    """From the submit until it was queued, by the server's clock; and until its work began, by this machine's."""
    at = {event.kind: event.at for event in events}
    [asked] = read_lines(word="delayed", job=job)
    [began] = read_lines(word="began", job=job)
    return (at["due"] - at["submitted"]).total_seconds(), began["t"] - asked["asked_at"]


# -- events ------------------------------------------------------------------------------------------------------------


async def test_a_follower_sees_every_event_once_and_in_order_while_many_write(
    url: str, processes: ServerProcesses, tell: Tell
) -> None:
    ended = asyncio.Event()
    async with opened(url) as store:
        followers = [asyncio.create_task(follow(store, limit, ended)) for limit in (1000, 7)]
        for n in range(4):
            processes.client("writer", f"writer{n}")
        began_at = time.monotonic()
        while any(client.poll() is None for client in processes.clients):
            await asyncio.sleep(0.05)
            assert time.monotonic() < began_at + DRAIN
        processes.ready()
        processes.dismiss_clients()
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
