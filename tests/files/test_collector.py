"""Contents that nothing refers to are deleted after a day, all others stay. On every store, by a clock of the test."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import files_tasks as tasks
import pytest

from daybreak import Daybreak, File
from daybreak.core.model import Done, Put
from daybreak.files import FileStore
from daybreak.files.folder import FolderBlobs
from daybreak.policy.settle import settle
from daybreak.services import file_collector
from daybreak.services.file_collector import FileCollector
from daybreak.store.protocol import Claim, Exchange, Purge, Uncache
from daybreak.testing import HandClock
from daybreak.testing.contract.flights import flying
from daybreak.values.file import Content

DAY = timedelta(days=1)


def content_of(data: bytes) -> Content:
    return Content(hashlib.sha256(data).hexdigest(), len(data), data)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(datetime.now(UTC))


async def files_of(app: Daybreak, clock: HandClock) -> FileStore:
    client = await app.client()
    return FileStore(await app._sessions.files.blobs(), client.store, clock)


async def collect(app: Daybreak, clock: HandClock, name: str = "worker") -> int:
    """Let one collector do a whole cycle; how many steps that took."""
    files = await files_of(app, clock)
    collector = FileCollector(files, (await app.client()).store, clock, name=name)
    await collector.tick()  # says how long to wait for the first cycle
    steps = 1
    while (await collector.tick()) == file_collector.STEP_INTERVAL:
        steps += 1
    return steps


async def digests(app: Daybreak, clock: HandClock) -> set[str]:
    return {info.digest for info in await (await files_of(app, clock)).infos()}


async def scenario(app, tmp_path, clock):
    for name in ("pinned", "checkpointed", "in a run"):
        (tmp_path / name).write_text(name)
    job = await tasks.read.asubmit(File(tmp_path / "pinned"))
    done = await tasks.write.asubmit("output", "out.csv")
    large = await tasks.large.asubmit(100_000)
    await app.awork(until="idle")
    client = await app.client()
    files = await files_of(app, clock)
    of_run = content_of(b"in a run")
    unneeded = [content_of(b"%d" % n) for n in range(3)]
    for content in (of_run, *unneeded):
        await files.put(content)
    refers = b'{"fixed":{"model":{"$":["file",{"sha256":"%s","size":1,"name":"x"}]}}}' % of_run.digest.encode()
    await client.store.put([Put(kind="run", name="overnight", value=refers)])
    everything = await digests(app, clock)
    assert len(everything) == 7
    assert {content.digest for content in unneeded} < everything

    await collect(app, clock)
    assert await digests(app, clock) == everything  # all were touched a moment ago

    clock.advance(DAY + timedelta(minutes=1))
    reused = unneeded.pop()
    await (await files_of(app, clock)).put(reused)  # by a submit that has not inserted its job yet
    await collect(app, clock)
    left = everything - {content.digest for content in unneeded}
    assert await digests(app, clock) == left
    assert (await job)["text"] == "pinned"
    assert (await done)["waves"].size == len("output")
    assert len(await large) == 100_000

    for handle in (job, done, large):
        await handle.aremove()
    await client.store.put([Put(kind="run", name="overnight", value=None)])
    clock.advance(2 * DAY)
    await collect(app, clock)
    assert await digests(app, clock) == set()


def test_only_what_nothing_refers_to_is_deleted(app, tmp_path, clock, monkeypatch):
    touch = FolderBlobs.touch

    def touched(self, digest):
        """The times of a folder are those of the system: set them by the clock."""
        found = touch(self, digest)
        if found:
            at = clock.wall() / 1e6
            os.utime(self._folder(digest) / "touched", (at, at))
        return found

    monkeypatch.setattr(FolderBlobs, "touch", touched)
    app.portal.run(scenario(app, tmp_path, clock))


async def test_a_known_result_keeps_its_content_when_its_job_is_gone(local, clock):
    files, store = await files_of(local, clock), (await local.client()).store
    kept = content_of(b"a large result")
    await files.put(kept)
    result = b'{"$":["file",{"sha256":"%s","size":14,"name":"x"}]}' % kept.digest.encode()
    await store.insert([flying(keep_completed=timedelta(0))])
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(result), chance=0.5, by="w")]))
    assert (await store.purge(Purge())).jobs == 1
    clock.advance(DAY * 2)
    await collect(local, clock)
    assert await digests(local, clock) == {kept.digest}
    await store.uncache(Uncache())
    clock.advance(DAY * 2)
    await collect(local, clock)
    assert await digests(local, clock) == set()
    await local.aclose()


async def fill(app, clock, files):
    for n in range(30):
        await files.put(content_of(b"unneeded %d" % n))


async def test_the_work_of_a_step_is_bounded(local, clock, monkeypatch):
    monkeypatch.setattr(file_collector, "PAGE", 2)
    monkeypatch.setattr(file_collector, "PAGES_PER_STEP", 2)
    monkeypatch.setattr(file_collector, "DELETED_PER_STEP", 10)
    for size in range(10):
        await tasks.large.asubmit(size)
    files = await files_of(local, clock)
    await fill(local, clock, files)
    clock.advance(DAY * 2)
    assert await collect(local, clock) >= 3 + 3  # 10 jobs by 4, then 30 contents by 10
    assert await digests(local, clock) == set()
    await local.aclose()


async def test_one_worker_at_a_time_collects_and_not_too_often(local, clock):
    files = await files_of(local, clock)
    await fill(local, clock, files)
    clock.advance(DAY * 2)
    store = (await local.client()).store
    first, second = (FileCollector(files, store, clock, name=name) for name in ("one", "two"))
    for collector in (first, second):
        await collector.tick()
    assert await first.tick() == file_collector.STEP_INTERVAL
    assert await second.tick() == file_collector.HELD_FOR
    clock.advance(file_collector.HELD_FOR * 2)  # the first was suspended
    assert await second.tick() == file_collector.STEP_INTERVAL
    assert await first.tick() == file_collector.CYCLE_INTERVAL
    while await second.tick() == file_collector.STEP_INTERVAL:
        pass
    assert await digests(local, clock) == set()
    await local.aclose()


async def test_without_old_contents_no_job_is_read(local, clock, monkeypatch):
    files = await files_of(local, clock)
    await fill(local, clock, files)
    store = (await local.client()).store
    monkeypatch.setattr(store, "find", None)
    assert await collect(local, clock) == 1
    await local.aclose()


KILLED = """
import os, signal, sys
from daybreak import File
from files_tasks import app, read
from daybreak.client.client import Client

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

Client.submit = Client.submit_now = die
app.use(sys.argv[1])
read.submit(File(sys.argv[2]))
"""


def test_a_kill_between_content_and_insert_leaves_only_what_is_collected(local, tmp_path, clock):
    (tmp_path / "m.txt").write_text("never submitted")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, local.settings.url, "m.txt"],
        env={**os.environ, "PYTHONPATH": os.path.dirname(tasks.__file__)},  # noqa: PTH120
        check=False,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL
    assert local.count() == 0
    assert asyncio.run(_digests(local, clock)) == {File("m.txt").digest}
    clock.advance(2 * DAY)
    asyncio.run(_collect(local, clock))
    assert asyncio.run(_digests(local, clock)) == set()


async def _digests(app, clock):
    try:
        return await digests(app, clock)
    finally:
        await app.aclose()


async def _collect(app, clock):
    try:
        return await collect(app, clock)
    finally:
        await app.aclose()
