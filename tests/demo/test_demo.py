"""The demo, as `make demo` tells it, with fewer jobs; and that it would say so if a promise were broken."""

from __future__ import annotations

import asyncio
import io
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import Done, Failed, Failure, Lost
from daybreak.core.units import moment
from daybreak.demo import buck, licence, story
from daybreak.demo.measure import measure
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Reap
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.clock import HandClock

DEADLINE = 120
SECOND = timedelta(seconds=1)


def test_the_demo_ends_by_itself_and_reports_that_nothing_was_lost(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "daybreak.cli", "demo", "--quick"],
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
    thief = threading.Thread(target=_steal_from, args=(tmp_path / "demo.db",), daemon=True)
    thief.start()
    code = story.run(quick=True, folder=tmp_path, console=Console(file=told, width=200))
    thief.join(DEADLINE)
    assert code == 1
    assert re.search(r"lost +1 ", told.getvalue())
    assert "Problem: 1 of 73 jobs accepted and then lost" in told.getvalue()
    assert str(tmp_path) in told.getvalue()


def _steal_from(path):
    _until(path.exists)
    asyncio.run(_steal(path))


def test_a_folder_that_holds_another_demo_is_refused(tmp_path):
    (tmp_path / "demo.db").touch()
    with pytest.raises(BadInput, match="another folder"):
        story.run(quick=True, folder=tmp_path, console=Console(file=io.StringIO()))


async def _steal(path):
    deadline = time.monotonic() + DEADLINE
    async with SqliteStore(path) as store:
        client = Client(store, by="thief")
        while time.monotonic() < deadline:
            for job in (await client.find(state="queued")).jobs[-1:]:
                if (await client.cancel(job.id)).verdict == "done":
                    await client.remove(job.id)
                    return
            await asyncio.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
def test_ctrl_c_ends_the_demo_and_its_workers_and_leaves_nothing(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "daybreak.cli", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = _read_until(demo.stdout, "Two workers start")
        [folder] = tmp_path.glob("daybreak-demo-*")  # workers that have begun have folders of their own
        workers = _until(lambda: _processes_with(str(folder)))
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=DEADLINE)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 130
    assert "Stopped" in first + rest
    assert list(tmp_path.iterdir()) == []
    _until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def _read_until(stream, word):
    told = ""
    while word not in told:
        line = stream.readline()
        assert line, f"it ended before it said {word!r}: {told}"
        told += line
    return told


def _processes_with(word):
    """The processes of this machine whose command line holds a word; none where /proc is not to be had."""
    found = []
    for about in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(about.parent.name)] if word.encode() in about.read_bytes() else []
        except OSError:
            continue
    return found or sys.platform != "linux"


def _until(found):
    deadline = time.monotonic() + DEADLINE
    while not (answer := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer if isinstance(answer, list) else []


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
async def store(clock):
    async with MemoryStore(clock) as store:
        yield store


async def _claim(store, worker, limit=1):
    return (await store.exchange(Exchange(claim=Claim(worker=worker, limit=limit, lease_for=2 * SECOND)))).leases


async def _settle(store, lease, outcome):
    return await store.exchange(Exchange(settle=[settle(lease, outcome, chance=0.5, by=lease.worker)]))


@pytest.fixture
async def night(store, clock):
    """Two jobs and an urgent one. A holds the first when it is killed; B retries the second."""
    client = Client(store, by="demo", world=clock)
    jobs = [await client.submit("simulate", priority="low") for _ in range(2)]
    [held] = await _claim(store, "A-1")
    clock.advance(SECOND)
    urgent = await client.submit("simulate", priority="critical")
    clock.advance(3 * SECOND / 10)
    [lease] = await _claim(store, "B-1")
    assert lease.job == urgent
    await _settle(store, lease, Done())
    killed_at = moment(clock.wall())
    clock.advance(3 * SECOND)
    [reaped] = await store.reap(Reap(worker="B-1", watched_for=3 * SECOND))
    await _settle(store, reaped, Lost())
    for lease in await _claim(store, "B-1", 2):
        hung_up = Failure(message="hung up", kinds=("ConnectionError", "OSError"))
        await _settle(store, lease, Done() if lease.job == held.job else Failed(hung_up))
    clock.advance(2 * SECOND)
    [lease] = await _claim(store, "B-1")
    await _settle(store, lease, Done())
    return [*jobs, urgent], urgent, killed_at


async def test_every_number_of_the_report_is_measured_from_the_events(store, night):
    accepted, urgent, killed_at = night
    found = await measure(store, accepted, urgent=urgent, killed="A", killed_at=killed_at)
    assert (found.accepted, found.completed, found.lost, found.failed, found.twice) == (3, 3, [], [], [])
    assert (found.retries, found.retried, found.errors) == (1, 1, ["ConnectionError: hung up"])
    assert (found.urgent_waited, found.passed) == (timedelta(milliseconds=300), 1)
    assert (found.held, found.recovered_in) == (1, timedelta(seconds=3))
    assert found.others_waited == timedelta(seconds=4.3) / 2
    assert found.problems == []


async def test_a_job_the_store_does_not_know_is_lost(store, night):
    accepted, urgent, killed_at = night
    found = await measure(store, [*accepted, "nobody"], urgent=urgent, killed="A", killed_at=killed_at)
    assert found.lost == ["nobody"]
    assert found.problems == ["1 of 4 jobs accepted and then lost, among them nobody"]


async def test_a_job_that_has_not_ended_is_lost_and_one_that_failed_is_told(store, night, clock):
    accepted, urgent, killed_at = night
    client = Client(store, world=clock)
    waits = await client.submit("simulate")
    stops = await client.submit("simulate", delay="1h")
    await client.cancel(stops)
    found = await measure(store, [*accepted, waits, stops], urgent=urgent, killed="A", killed_at=killed_at)
    assert (found.lost, found.failed) == ([waits], [stops])
    assert len(found.problems) == 2


async def test_an_urgent_job_that_never_started_is_told(store, night, clock):
    accepted, _, killed_at = night
    urgent = await Client(store, world=clock).submit("simulate", delay="1h")
    found = await measure(store, [*accepted, urgent], urgent=urgent, killed="A", killed_at=killed_at)
    assert "the urgent job never started" in found.problems


# -- the work ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("duty", "load"), [(0.1, 0.5), (0.5, 1.0), (0.9, 7.5)])
def test_the_converter_settles_where_the_textbook_says(duty, load):
    found = buck.simulate(duty, load)
    volts = duty * buck.VI * load / (load + buck.RL)
    assert found.vout == pytest.approx(volts, rel=1e-3)
    assert found.ripple == pytest.approx((1 - duty) * duty * buck.VI / (8 * buck.L * buck.C * buck.FS**2), rel=1e-2)
    damping = (buck.RL / buck.L + 1 / (load * buck.C)) / 2
    ringing = math.sqrt((1 + buck.RL / load) / (buck.L * buck.C) - damping**2)
    assert found.overshoot == pytest.approx(math.exp(-damping * math.pi / ringing), rel=1e-2)


@pytest.mark.parametrize(("duty", "load"), [(0, 1), (1, 1), (0.5, 0), (0.5, -1)])
def test_a_converter_that_cannot_be_is_refused(duty, load):
    with pytest.raises(ValueError, match="duty cycle"):
        buck.simulate(duty, load)


async def test_the_licence_server_drops_one_in_so_many_connections():
    answers = []
    async with licence.server(drops_every=3) as port:
        for _ in range(9):
            try:
                await asyncio.to_thread(licence.check_out, port)
            except ConnectionError:
                answers.append("dropped")
            else:
                answers.append("granted")
    assert answers == ["granted", "granted", "dropped"] * 3
