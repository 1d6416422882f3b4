"""Five programs drop files into two folders, one of them without inotify, while watchers and workers are killed: every
complete file is one job, none is truncated, and an urgent file is the first of those that wait."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from drop_load import content_of
from player_processes import LONG

from daybreak import Client
from daybreak.core.model import State
from daybreak.stores import store_for

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify instances are limited on Linux"),
]

TARGET = Path(__file__).with_name("drop_load.py")
FILES = int(os.environ.get("DROP_FILES", "20000")) if LONG else 60
KILLS = 50 if LONG else 3
WRITERS = 5
SEED = 7
LIMIT = 3600 if LONG else 180
MEMORY = 300 * 1024  # KiB
NO_INOTIFY = "echo 0 > /proc/sys/user/max_inotify_instances && exec "


def can_exhaust_inotify() -> bool:
    """Whether a user namespace of its own can be given no inotify instances at all."""
    words = ["unshare", "-Ur", "sh", "-c", NO_INOTIFY + "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0
    )


class Scene:
    """The folders, the processes, and what they used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}/jobs.db"
        self.plain, self.marked = path / "plain", path / "marked"
        self.plain.mkdir()
        self.marked.mkdir()
        self.ledger = path / "ledger"
        self.ledger.touch()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.memory = 0
        self.kills: Counter[str] = Counter()
        self._around = {
            **os.environ, "DAYBREAK_URL": self.url, "DROP_LEDGER": str(self.ledger), "DROP_FOLDER": str(self.plain),
            "DROP_SETTLE": "3s" if LONG else "500ms", "PYTHONPATH": str(TARGET.parent),
            "DAYBREAK_FILES_CACHE": str(path / "cache"),
        }  # fmt: skip

    def _words(self, name: str) -> list[str]:
        daybreak = [sys.executable, "-m", "daybreak.cli"]
        if name != "watch":
            return [*daybreak, "worker", str(TARGET), "--lease", "2s", "--processes", "2"]
        watch = [
            *daybreak, "watch", str(self.marked), "--app", str(TARGET), "--task", "upload", "--done-marker", ".done",
        ]  # fmt: skip
        if not can_exhaust_inotify():
            return [*watch, "--polling"]
        return ["unshare", "-Ur", "sh", "-c", NO_INOTIFY + '"$@"', "sh", *watch]

    def start(self, name: str) -> None:
        with (self.path / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._words(name), stdout=log, stderr=log, env=self._around, start_new_session=True
            )  # fmt: skip

    def writer(self, number: int) -> subprocess.Popen[bytes]:
        """Three programs write to the plain folder, two to the one with markers."""
        modes = ["slow", "rename", "reopen"] if LONG else ["slow", "rename"]
        folder, modes = (self.plain, modes) if number < 3 else (self.marked, ["marked"])
        words = [str(folder), f"w{number}", str(FILES // WRITERS), str(SEED), *modes]
        return subprocess.Popen([sys.executable, str(TARGET), *words], env={**self._around, "DROP_FOLDER": ""})

    def kill(self, name: str) -> None:
        process = self.processes[name]
        self.measure()
        process.kill()
        process.wait()
        self.kills[name] += 1

    def measure(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                line = next(line for line in lines if line.startswith("VmHWM"))
                self.memory = max(self.memory, int(line.split()[1]))

    def left(self) -> list[str]:
        """The files that have not left their folder."""
        return [path.name for folder in (self.plain, self.marked) for path in folder.glob("[!.]*.json")]

    def arrived(self) -> int:
        return sum(1 for folder in (self.plain, self.marked) for _ in (folder / "done").glob("*.json"))


def until(condition, what: str, scene: Scene) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"{what}: {scene.arrived()} of {FILES} arrived, {scene.left()[:5]} are left"
        time.sleep(0.1)


async def with_client(scene: Scene, do):
    store = store_for(scene.url)
    await store.open()
    try:
        return await do(Client(store))
    finally:
        await store.close()


async def all_jobs(client: Client):
    return [job async for job in client.find_all()]


def expected() -> dict[str, str]:
    names = [f"w{writer}-{number:05}.json" for writer in range(WRITERS) for number in range(FILES // WRITERS)]
    return {name: hashlib.sha256(content_of(name, SEED)).hexdigest() for name in names}


def test_every_complete_file_is_one_job_whatever_is_killed(tmp_path, tell):
    scene, chance = Scene(tmp_path), random.Random(SEED)
    began = time.monotonic()
    for name in ("worker1", "worker2", "watch"):
        scene.start(name)
    writers = [scene.writer(number) for number in range(WRITERS)]
    try:
        for number in range(KILLS):  # spread over the arrivals
            until(lambda: scene.arrived() >= number * FILES * 0.9 // KILLS, "between two kills", scene)  # noqa: B023
            victim = chance.choice(sorted(scene.processes))
            scene.kill(victim)
            time.sleep(chance.random() * 0.2)
            scene.start(victim)
        for writer in writers:
            assert writer.wait(LIMIT) == 0
        until(lambda: scene.arrived() >= FILES, "at the end", scene)
        took = time.monotonic() - began
        urgent_at = position_of_urgent(scene)
        scene.measure()
        check(scene)
        if can_exhaust_inotify():
            assert "is polled: " in (scene.path / "watch.log").read_text()
        tell(
            f"{FILES} files, {sum(scene.kills.values())} kills {dict(scene.kills)}, {took:.0f} s, "
            f"{scene.memory / 1024:.0f} MB at most, urgent file was number {urgent_at} of 51 to start"
        )
        assert urgent_at == 1
        assert scene.memory < MEMORY
    finally:
        for process in [*scene.processes.values(), *writers]:
            process.kill()
            process.wait()


def check(scene: Scene) -> None:
    found = expected()
    jobs = [job for job in asyncio.run(with_client(scene, all_jobs)) if job.spec.meta["file"] in found]
    assert Counter(job.spec.meta["file"] for job in jobs) == dict.fromkeys(found, 1)
    assert {job.state for job in jobs} == {State.COMPLETED}
    assert not [job.id for job in jobs if found[job.spec.meta["file"]].encode() not in job.spec.args]
    for folder in (scene.plain, scene.marked):
        for path in (folder / "done").glob("w*.json"):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == found.pop(path.name)
        assert not (folder / "failed").exists()
        assert list((folder / ".daybreak").iterdir()) == []
    assert found == {}


def position_of_urgent(scene: Scene) -> int:
    """Let a backlog wait in a paused queue, drop an urgent file, and see how many start before it."""
    asyncio.run(with_client(scene, lambda client: client.pause("upload")))
    names = [f"backlog-{number:03}.json" for number in range(50)]
    for name in names:
        (scene.plain / name).write_bytes(content_of(name, SEED))
    until(lambda: waiting(scene) == 50, "the backlog", scene)
    (scene.plain / "late.p1.json").write_bytes(content_of("late.p1.json", SEED))
    until(lambda: waiting(scene) == 51, "the urgent one", scene)
    asyncio.run(with_client(scene, lambda client: client.unpause("upload")))
    until(lambda: waiting(scene) == 0 and not scene.left(), "the end of the backlog", scene)
    jobs = {job.spec.meta["file"]: job for job in asyncio.run(with_client(scene, all_jobs))}
    others = [jobs[name].started_at for name in names]
    return sum(started < jobs["late.p1.json"].started_at for started in others) + 1


def waiting(scene: Scene) -> int:
    counts = asyncio.run(with_client(scene, lambda client: client.count(queue="upload")))
    return counts[State.QUEUED] + counts[State.RUNNING] + counts[State.SCHEDULED] + counts[State.BLOCKED]
