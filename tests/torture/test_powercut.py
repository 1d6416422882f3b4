"""The power goes: what was acknowledged before is there after. kill -9 cannot show this; the page cache survives it."""

# ruff: noqa: ASYNC240 - nobody else is on these loops, so a test may block its own

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from player_processes import PlayerProcesses, count, missing, read_lines, told
from powercut import Disk, Recorder, interesting, recording

from daybreak.client.client import Client
from daybreak.core.errors import OutcomeUnknown, StoreError
from daybreak.core.events import fold
from daybreak.core.model import Done, Job, Lease, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.stores.sqlite import SqliteStore, engine

pytestmark = pytest.mark.torture

Known = tuple[State, int, int, bytes | None, bytes | None]  # state, fence, attempt, result, checkpoint


@dataclass
class Promise:
    """One change of one job: asked at one point of the trace, acknowledged at a later one, or never."""

    asked: int
    known: Known
    acked: int | None = None


@dataclass
class Work:
    """A seeded stream of submits, claims, beats, settlements and cancels, with everything that was promised."""

    recorder: Recorder
    chance: random.Random
    promises: dict[str, list[Promise]] = field(default_factory=dict)
    held: list[Lease] = field(default_factory=list)
    results: int = 0

    async def go(self, store: SqliteStore, rounds: int) -> None:
        client = Client(store, by="torture")
        for _ in range(rounds):
            step = self.chance.choice([self.submit, self.submit, self.claim, self.beat, self.settle, self.cancel])
            await step(client)

    def ask(self, job: str, known: Known) -> Promise:
        promise = Promise(self.recorder.mark(("asked", job)), known)
        self.promises.setdefault(job, []).append(promise)
        return promise

    def ack(self, promises: list[Promise]) -> None:
        at = self.recorder.mark(("acked", len(promises)))
        for promise in promises:
            promise.acked = at

    async def submit(self, client: Client) -> None:
        async def one() -> None:
            pad = {"pad": "x" * self.chance.randint(0, 3000)}
            spec = client.spec("noop", pad, priority=self.chance.randint(0, 10))
            promise = self.ask(spec.id, (State.QUEUED, 0, 0, None, None))
            await client.submit(spec)
            self.ack([promise])

        await asyncio.gather(*(one() for _ in range(self.chance.choice([1, 1, 4]))))

    async def claim(self, client: Client) -> None:
        # Which jobs come is known only afterwards; whoever is still queued may be one of them.
        asked = self.recorder.mark("claim")
        claim = Claim(worker="w", limit=self.chance.randint(1, 4), lease_for=timedelta(hours=1))
        leases = (await client.store.exchange(Exchange(claim=claim))).leases
        promises = []
        for lease in leases:
            known = (State.RUNNING, lease.fence, lease.attempt, None, lease.checkpoint)
            promises.append(Promise(asked, known))
            self.promises[lease.job].append(promises[-1])
        self.ack(promises)
        self.held += leases

    async def beat(self, client: Client) -> None:
        if self.held:
            lease = self.chance.choice(self.held)
            note = os.urandom(40).hex().encode()
            promise = self.ask(lease.job, (State.RUNNING, lease.fence, lease.attempt, None, note))
            [held] = await client.store.extend(
                [Beat(seq=lease.seq, fence=lease.fence, lease_for=timedelta(hours=1), checkpoint=note)]
            )
            assert held.held
            self.ack([promise])

    async def settle(self, client: Client) -> None:
        if self.held:
            lease = self.held.pop(self.chance.randrange(len(self.held)))
            self.results += 1
            result = json.dumps(self.results).encode()
            promise = self.ask(lease.job, (State.COMPLETED, lease.fence, lease.attempt, result, None))
            done = settle(lease, Done(result), chance=0.5, by="w")
            assert (await client.store.exchange(Exchange(settle=[done]))).settled == [True]
            self.ack([promise])

    async def cancel(self, client: Client) -> None:
        job = self.chance.choice(list(self.promises)) if self.promises else None
        if job and self.promises[job][-1].known[0] is State.QUEUED and self.chance.random() < 0.3:
            promise = self.ask(job, (State.CANCELLED, 0, 0, None, None))
            assert (await client.cancel(job)).verdict == "done"
            self.ack([promise])


def facts(job: Job) -> Known:
    return job.state, job.fence, job.attempt, job.result, job.checkpoint


def allowed(promises: list[Promise], cut: int) -> list[Known | None]:
    """What may be found after a cut: the last that was acknowledged, or anything asked for since."""
    asked = [p for p in promises if p.asked < cut]
    acked = [n for n, p in enumerate(asked) if p.acked is not None and p.acked < cut]
    if not acked:
        return [None, *(p.known for p in asked)]
    return [p.known for p in asked[acked[-1] :]]


async def work_and_record(folder: Path, rounds: int, recorder: Recorder) -> Work:
    """Several lives of one store: each reopening deletes and makes anew the write-ahead log."""
    work = Work(recorder, random.Random(3))
    for _ in range(3):
        async with SqliteStore(folder / "cut.db", vfs=recorder.name) as store:
            await work.go(store, rounds // 3)
    return work


async def lost_after(files: dict[str, bytes], folder: Path, work: Work, cut: int) -> list[str]:
    """Write the files as the cut left them, open the store, and compare it with what was promised."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        async with SqliteStore(folder / "cut.db") as store:
            lost = await broken_promises(store, work, cut)
            await Client(store).submit("noop", {"after": "cut"})
    except StoreError as trouble:
        return [f"the store does not open: {trouble}"]
    with contextlib.closing(apsw.Connection(str(folder / "cut.db"))) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
    return lost if verdict == [("ok",)] else [*lost, f"integrity: {verdict[:3]}"]


async def broken_promises(store: SqliteStore, work: Work, cut: int) -> list[str]:
    ids = list(work.promises)
    broken = []
    for job, found in zip(ids, await store.get(ids), strict=True):
        may_be = allowed(work.promises[job], cut)
        is_now = facts(found) if found is not None else None
        if is_now not in may_be:
            broken.append(f"{job} is {is_now}, promised was {may_be}")
    for job in work.chance.sample(ids, min(5, len(ids))):
        [found] = await store.get([job])
        if found is not None:
            folded = fold(await store.history(job))
            if (folded.state, folded.fence, folded.n) != (found.state, found.fence, found.revision):
                broken.append(f"{job}: its events fold to {folded}")
    return broken


async def cut_many(tmp_path: Path, work: Work, cuts: list[int]) -> tuple[list[str], Counter[str], int]:
    trace, disk, chance = work.recorder.trace, Disk(), random.Random(5)
    lost: list[str] = []
    seen: Counter[str] = Counter()
    losing = 0
    for n, cut in enumerate(cuts):
        disk.play(trace, cut)
        mode = ("synced", "subset", "all", "subset")[n % 4]
        broken = await lost_after(disk.after_cut(mode, chance), tmp_path / "after", work, cut)
        losing += bool(broken)
        seen[mode] += 1
        lost += [f"cut {cut} ({mode}): {sentence}" for sentence in broken]
    return lost, seen, losing


async def test_no_cut_loses_what_was_acknowledged(tmp_path, tell):
    folder = tmp_path / "disk"
    folder.mkdir()
    with recording("recorder") as recorder:
        work = await work_and_record(folder, count(900, 2400), recorder)
    cuts = interesting(recorder.trace, "cut.db", count(200, 5000), random.Random(1))
    began = time.monotonic()
    lost, seen, _ = await cut_many(tmp_path, work, cuts)
    kinds = Counter(type(op).__name__ for op in recorder.trace)
    checkpoints = sum(getattr(op, "file", "") == "cut.db" and type(op).__name__ == "Sync" for op in recorder.trace)
    tell(
        f"{len(cuts)} cuts {dict(seen)} over {len(work.promises)} jobs, {kinds['Write']} writes, "
        f"{kinds['Sync']} syncs, {checkpoints} syncs of the main file; {len(lost)} promises broken; "
        f"{(time.monotonic() - began) / len(cuts) * 1000:.0f} ms a cut"
    )
    assert checkpoints > 2, "no checkpoint happened: the test showed too little"
    assert not lost, "\n".join(lost[:10])


async def test_the_test_can_fail_synchronous_normal_loses_jobs(tmp_path, tell, monkeypatch):
    """Planted: without a sync at each commit, an acknowledged job is gone after a cut, and this test must see it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(engine, "SYNCHRONOUS", "normal")
    with recording("recorder") as recorder:
        work = await work_and_record(folder, count(300, 900), recorder)
    cuts = interesting(recorder.trace, "cut.db", count(40, 500), random.Random(1))
    lost, seen, losing = await cut_many(tmp_path, work, cuts)
    tell(f"synchronous=NORMAL: {losing} of {len(cuts)} cuts {dict(seen)} broke a promise, {len(lost)} in all")
    assert losing > len(cuts) // 4


@pytest.mark.parametrize("reads", [True, False])
async def test_a_sync_that_failed_once_is_not_trusted_later(tmp_path, tell, reads):
    """The pages of a failed sync are never written again (fsyncgate), yet every reader sees them: an acknowledgement
    that leans on them is lost with the power."""
    folder = tmp_path / "disk"
    folder.mkdir()
    chance = random.Random(9)
    unknown = 0
    with recording("recorder") as recorder:
        work = Work(recorder, random.Random(4))
        async with SqliteStore(folder / "cut.db", vfs=recorder.name) as store:
            if reads:
                await store.count()  # the reader then holds the file open, as it does in any worker
            await work.go(store, 30)
            for _ in range(count(6, 60)):
                recorder.fail_sync("cut.db-wal")
                try:
                    await store.insert([Client(store).spec("noop", id=f"unlucky-{unknown}")])
                except OutcomeUnknown:
                    unknown += 1
                await work.submit(Client(store))
                await work.go(store, chance.randint(5, 30))
    cuts = interesting(recorder.trace, "cut.db", count(60, 1000), random.Random(1))
    lost, seen, losing = await cut_many(tmp_path, work, cuts)
    tell(f"{unknown} failed syncs, {len(cuts)} cuts {dict(seen)}: {losing} broke a promise, {len(lost)} in all")
    assert unknown > 0
    assert not lost, "\n".join(lost[:5])


# -- a real file system ------------------------------------------------------------------------------------------------


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    run("mount", "-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(at)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            run("umount", "-l", str(at))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        missing("not root, so no loop mount: the power cut on a real file system was NOT tested")
    path = tmp_path / "disk.img"
    with path.open("wb") as blank:
        blank.truncate(192 * 2**20)
    try:
        run("mkfs.ext4", "-q", "-F", str(path))
        with mounted(path, tmp_path / "probe"):
            pass
    except OSError as trouble:
        missing(f"no loop mount here ({trouble}): the power cut on a real file system was NOT tested")
    return path


@pytest.mark.root
async def test_a_cut_under_ext4_loses_nothing_acknowledged(image, tmp_path, tell):
    """The copy of the backing file is what the disk held: what ext4 had not yet sent to it is not in there."""
    acked_in_all = 0
    cuts = count(4, 40)
    chance = random.Random(2)
    with mounted(image, tmp_path / "live") as live, PlayerProcesses(live / "cut.db", tmp_path) as processes:
        writers = processes.start_all("submit", ["a", "b"], pad=300, pause=0.1)
        for n in range(cuts):
            await asyncio.sleep(0.2 + chance.random() * 0.5)
            for writer in writers:
                writer.freeze()
            # Only what stood in the list before the copy began was acknowledged before the cut.
            acked = {job for line in told(list(read_lines(tmp_path / "lines")), "ack") for job in line["jobs"]}
            shutil.copyfile(image, tmp_path / "copy.img")
            for writer in writers:
                writer.thaw()
            lost = await lost_on(tmp_path / "copy.img", tmp_path / "copy", acked)
            assert not lost, f"cut {n}: {len(lost)} of {len(acked)} acknowledged jobs are gone"
            assert all(writer.returned is None for writer in writers), [writer.complaint() for writer in writers]
            acked_in_all = len(acked)
        for writer in writers:
            assert writer.finish() == 0, writer.complaint()
    tell(f"{cuts} cuts, {acked_in_all} acknowledged by two writers, 0 lost")
    assert acked_in_all > 50


async def lost_on(copy: Path, at: Path, acked: set[str]) -> set[str]:
    with mounted(copy, at) as folder:
        with contextlib.closing(apsw.Connection(str(folder / "cut.db"))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        async with SqliteStore(folder / "cut.db") as store:
            wanted = sorted(acked)
            return {job for job, found in zip(wanted, await store.get(wanted), strict=True) if found is None}
