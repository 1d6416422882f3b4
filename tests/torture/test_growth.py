"""Nothing grows with the number of jobs that have passed: files, memory, descriptors, threads."""

# ruff: noqa: ASYNC240, ASYNC251 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from player_processes import LONG, PlayerProcesses, count, told

from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

JOBS = count(200_000, 1_000_000)
MIB = 2**20
WAL_BOUND = 64 * MIB  # what the store keeps of a log that has once grown
PER_JOB = 16  # bytes of memory that a job may leave behind, by measurement noise


def slope(points: list[tuple[int, int]]) -> float:
    """The least-squares slope of y over x."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


async def test_files_and_memory_stay_flat_while_jobs_pass_through(tmp_path: Path, tell):
    db = tmp_path / "growth.db"
    with PlayerProcesses(db, tmp_path) as processes:
        began = time.monotonic()
        grower = processes.start("grow", "grower", jobs=JOBS)
        grower.wait_ready()
        code = await asyncio.to_thread(grower.wait, count(240, 1800))
        took = time.monotonic() - began
        assert code == 0, grower.complaint()
        sizes = told(processes.lines(), "size")
    first, second = sizes[len(sizes) // 4 : len(sizes) // 2], sizes[len(sizes) // 2 :]
    per_job = slope([(line["jobs"], line["rss"]) for line in second])
    wal = max(line["wal"] for line in sizes)
    before, after = (max(line["db"] for line in half) for half in (first, second))
    tell(
        f"{JOBS} jobs through their life at {JOBS / took:.0f}/s; write-ahead log at most {wal / MIB:.1f} MiB; main "
        f"file {before / MIB:.1f} then {after / MIB:.1f} MiB; memory {second[0]['rss'] / MIB:.1f} then "
        f"{second[-1]['rss'] / MIB:.1f} MiB, {per_job:+.2f} bytes a job; descriptors {sizes[0]['fds']} then "
        f"{sizes[-1]['fds']}"
    )
    assert wal < WAL_BOUND
    assert after < 1.25 * before + MIB
    assert per_job < PER_JOB
    assert sizes[-1]["fds"] == sizes[0]["fds"]


async def test_a_long_reader_stops_no_writer_and_the_log_shrinks_after_it(tmp_path: Path, tell):
    db = tmp_path / "reader.db"
    seconds = count(6, 60)
    async with SqliteStore(db) as store:
        await Client(store).submit("noop", queue="wide")
    with PlayerProcesses(db, tmp_path) as processes:
        writer = processes.start("churn", "writer", pad=8000).wait_ready()
        time.sleep(1)
        reader = processes.start("read", "reader").wait_ready()
        opened = time.monotonic()
        time.sleep(seconds)
        wait_for_log(processes, lambda wal: wal > WAL_BOUND + MIB)
        assert reader.finish() == 0, reader.complaint()
        closed = time.monotonic()
        time.sleep(max(3, seconds / 4))
        wait_for_log(processes, lambda wal: wal <= WAL_BOUND)
        assert writer.finish() == 0, writer.complaint()
        lines = processes.lines()
    sizes = told(lines, "size")
    while_reading = [line for line in sizes if opened < line["t"] < closed]
    before = [line for line in sizes if line["t"] < opened]
    peak = max(line["wal"] for line in while_reading)
    end = sizes[-1]["wal"]
    rate, rate_before = len(while_reading) / (closed - opened), len(before) / max(0.1, opened - before[0]["t"])
    tell(
        f"writer did {rate_before:.0f} rounds/s before and {rate:.0f}/s beside a reader of {seconds} s; log grew to "
        f"{peak / MIB:.1f} MiB and was {end / MIB:.1f} MiB after it"
    )
    assert not told(lines, "error")
    assert rate > rate_before / 4 or not LONG, "the reader held the writer up"
    assert peak > WAL_BOUND + MIB, "the log never grew beyond what is kept of it: the test showed nothing"
    assert end <= WAL_BOUND, "the log did not shrink"


def wait_for_log(processes: PlayerProcesses, condition: Callable[[int], bool], patience: float = 120.0) -> None:
    """Until the write-ahead log is so large, or so small, however slow this machine is; the test judges it then."""
    until = time.monotonic() + patience
    while time.monotonic() < until and not condition(told(processes.lines(), "size")[-1]["wal"]):
        time.sleep(0.2)


async def test_opening_and_closing_leaves_nothing_behind(tmp_path: Path, tell):
    db = tmp_path / "open.db"

    async def once(n: int) -> None:
        async with SqliteStore(db) as store:
            watch = store.watch(["work:default"])
            await Client(store).submit("noop", {"n": n})
            await store.count()
            watch.close()

    await once(0)
    fds = descriptors()
    began = time.monotonic()
    for n in range(200):
        await once(n)
    took = time.monotonic() - began
    tell(
        f"200 times open, submit, close in {took:.1f} s: descriptors {len(fds)} then {len(descriptors())}, "
        f"threads of ours left: {our_threads()}"
    )
    assert our_threads() == []
    assert len(descriptors()) <= len(fds), sorted(set(descriptors()) - set(fds))
    assert not list(tmp_path.glob("open.db-locks/wake/*"))


def descriptors() -> list[str]:
    found: list[str] = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(fd.readlink()))
    return found


def our_threads() -> list[str]:
    """Those of the loop's own pool are not the store's."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("daybreak")]


async def test_closing_answers_everyone_who_asked(tmp_path: Path, tell):
    """Whoever asks while the store closes gets an answer or an error, and never waits for ever."""
    answers: Counter[str] = Counter()

    async def ask(store: SqliteStore, client: Client, after: float) -> str:
        await asyncio.sleep(after)
        try:
            await asyncio.wait_for(store.insert([client.spec("noop")]), 1)
        except StoreError:
            return "refused"
        except TimeoutError:
            return "left waiting"
        return "accepted"

    for n in range(20):
        store = await SqliteStore(tmp_path / f"{n}.db").open()
        asking = [asyncio.create_task(ask(store, Client(store), i * 0.0005)) for i in range(20)]
        await asyncio.sleep(0.002 + n * 0.0003)
        await store.close()
        answers.update(await asyncio.gather(*asking))
    tell(f"400 calls around a close: {dict(answers)}")
    assert answers["left waiting"] == 0


async def test_a_store_that_failed_to_open_leaves_nothing_behind(tmp_path: Path, tell):
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"this is no database " * 1000)
    fds = descriptors()
    trouble: Any = None
    for _ in range(20):
        try:
            async with SqliteStore(bad):
                pytest.fail("a text file was opened as a store")
        except Exception as raised:  # noqa: BLE001 - what it is, is judged in test_bad_disks
            trouble = raised
    tell(f"20 failed opens ({type(trouble).__name__}): descriptors {len(fds)} then {len(descriptors())}")
    assert len(descriptors()) <= len(fds)
    assert our_threads() == []
