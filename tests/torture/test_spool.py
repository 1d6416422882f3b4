"""The offline spool: jobs submitted while the store is away arrive once, in order inside their priority, whatever
happens to the power, the wire and the server meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuttable_wire import Wire
from player_processes import count
from powercut import Disk, Recorder, interesting, recording
from private_servers import private_server

from daybreak import Daybreak
from daybreak.client.client import Client
from daybreak.core.model import Job, JobSpec
from daybreak.spool import SpoolFile
from daybreak.stores import store_for
from daybreak.system.ports import Ids, RealWorld
from daybreak.values import encode

pytestmark = pytest.mark.torture

HERE = Path(__file__).parent
LIMIT = 240  # seconds; generous, ends as soon as all is there


# -- the power ---------------------------------------------------------------------------------------------------------


def spool_and_record(folder: Path, url: str, each: int, recorder: Recorder) -> list[tuple[int, dict]]:
    """Two submitters fill one spool while the store is away. Returns what was acknowledged, and where in the trace."""
    world, chance = RealWorld(), random.Random(11)
    new_id = Ids(world)
    acked = []
    with contextlib.ExitStack() as files:
        submitters = []
        for name in ("a", "b"):
            file = SpoolFile(folder / "jobs.spool", url, world, vfs=recorder.name)
            files.callback(file.close)
            submitters.append((name, file))
        for number in range(each):
            for name, file in submitters:
                priority = chance.choice([1, 5, 5, 9])
                args = encode({"name": name, "number": number}, "args")
                spec = JobSpec(id=new_id(), task="upload", args=args, priority=priority)
                recorder.mark(("asked", spec.id))
                file.put([spec])
                line = {"id": spec.id, "name": name, "n": number, "priority": priority}
                acked.append((recorder.mark(("acked", spec.id)), line))
    return acked


def rebuild(files: dict[str, bytes], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_no_power_cut_loses_a_job_of_the_spool(tmp_path, tell):
    (tmp_path / "disk").mkdir()
    url, each = "redis://127.0.0.1:1", count(60, 500)
    with recording("spool-cuts") as recorder:
        acked = spool_and_record(tmp_path / "disk", url, each, recorder)
    disk, chance = Disk(), random.Random(5)
    lost, cuts = [], interesting(recorder.trace, "jobs.spool", count(60, 1500), random.Random(1))
    for at, cut in enumerate(cuts):
        disk.play(recorder.trace, cut)
        rebuild(disk.after_cut(("synced", "subset", "all", "subset")[at % 4], chance), tmp_path / "after")
        file = SpoolFile(tmp_path / "after" / "jobs.spool", url, RealWorld())
        found = [job.spec.id for job in file.first(10_000)]
        file.close()
        promised = [line["id"] for where, line in acked if where < cut]
        if found[: len(promised)] != promised:
            lost.append(f"cut {cut}: {len(promised)} promised, {len(found)} found")
    tell(f"{len(cuts)} cuts over {2 * each} submits: {len(lost)} lost a job or the order")
    assert not lost, lost[:5]


# -- the wire and the server -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def start(wire: Wire, spool: Path, name: str, each: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [wire.url, str(spool), name, str(each), str(each), str(log)]
    with subprocess.Popen([sys.executable, str(HERE / "spool_client.py"), *words]) as process:
        try:
            yield process
        finally:
            process.kill()


def flap(wire: Wire, chance: random.Random, *, loses_answers: bool) -> None:
    """The wire is down for a moment, or an answer is lost on it."""
    if loses_answers:
        before, until = wire.cut, time.monotonic() + 2
        wire.cut_replies.set()
        while wire.cut == before and time.monotonic() < until:
            time.sleep(0.005)
        wire.cut_replies.clear()
    else:
        wire.down.set()
        time.sleep(chance.uniform(0.02, 0.2))
        wire.down.clear()
    time.sleep(chance.uniform(0.02, 0.2))


async def jobs_in(url: str) -> list[Job]:
    async with store_for(url) as store:
        return [job async for job in Client(store).find_all()]


def wait_until_drained(url: str, spool: Path) -> None:
    """As the next process would: it finds jobs in the spool and forwards them."""
    until = time.monotonic() + LIMIT
    with Daybreak(url, spool=spool) as app:
        app.count()
        while app.spool_status().waiting:
            assert time.monotonic() < until, app.spool_status()
            time.sleep(0.05)
        assert app.spool_status().set_aside == 0


@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_all_arrive_once_and_in_order_after_a_power_cut_and_flaps(kind, tmp_path, tell):
    each, flaps, chance = count(60, 500), count(6, 20), random.Random(kind)
    log, spool = tmp_path / "log", tmp_path / "after" / "jobs.spool"
    for folder in ("disk", "server"):
        (tmp_path / folder).mkdir()
    with (
        private_server(kind, tmp_path / "server") as server,
        Wire(server.url) as wire,
        contextlib.ExitStack() as stack,
    ):
        wire.down.set()
        with recording(f"spool-{kind}") as recorder:
            acked = spool_and_record(tmp_path / "disk", wire.url, each, recorder)
        disk = Disk()
        cut = acked[-1][0] + 1  # right behind the last acknowledgement
        disk.play(recorder.trace, cut)
        rebuild(disk.after_cut("synced", chance), spool.parent)
        expected = [line for _, line in acked]
        submitters = [stack.enter_context(start(wire, spool, name, each, log)) for name in ("a", "b")]
        until = time.monotonic() + LIMIT
        while not log.exists() or len(log.read_text().splitlines()) < each // 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        for number in range(flaps):
            wire.down.clear()
            flap(wire, chance, loses_answers=number % 2 == 0)
            # A killed PostgreSQL recovers for long on a busy disk, so the short form leaves it alone.
            if number == flaps // 2 and (kind == "redis" or count(0, 1)):
                server.kill()
                server.start()
        for process in submitters:
            assert process.wait(LIMIT) == 0
        wait_until_drained(wire.url, spool)
        after = [json.loads(line) for line in log.read_text().splitlines()]
        expected += after
        jobs = asyncio.run(jobs_in(server.url))
    took = sorted(line["took"] for line in after)
    tell(
        f"{len(expected)} submits, {flaps} flaps, answers cut {wire.cut}: {len(jobs)} jobs; a submit took "
        f"{took[len(took) // 2] * 1e3:.1f} ms in the middle, {took[int(len(took) * 0.99)] * 1e3:.1f} ms at 99 %, "
        f"{took[-1] * 1e3:.0f} ms at most"
    )
    assert sorted(job.id for job in jobs) == sorted(line["id"] for line in expected)
    assert_in_order(jobs, expected)


def assert_in_order(jobs: list[Job], expected: list[dict]) -> None:
    """Inside a priority, the jobs of each submitter are in the order of its submits."""
    arrived = {job.id: job for job in jobs}
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in sorted(expected, key=lambda line: arrived[line["id"]].seq):
        assert arrived[line["id"]].priority == line["priority"]
        numbers[line["name"], line["priority"]].append(line["n"])
    assert len(numbers) == 6
    for place, found in numbers.items():
        assert found == sorted(found), place
