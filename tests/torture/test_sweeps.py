"""A sweep whose submitter, worker or store is killed at a random point, and then the same command again: each point has
its effect once, and nothing is left over."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from player_processes import count
from private_servers import PrivateServer, private_server
from sweep_load import POINTS, app, grid, point
from worker_processes import LINES, WorkerProcess, ask, nobody_left, read_lines, until

from daybreak import Client, State
from daybreak.runs.record import KIND, read_run
from daybreak.testing.contract.builders import assert_sound

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("sweep_load.py")
VICTIMS = ("submitter", "worker", "store")
TRIALS = {"sqlite": count(2, 40), "postgresql": count(2, 30), "redis": count(2, 30)}
MODEL = "2.0"
STARTS = 20  # of one command; it ends with an error if the store is away for longer than its patience


@dataclass
class Scene:
    """A store, two workers on it, and the command."""

    url: str
    folder: Path
    server: PrivateServer | None
    chance: random.Random
    workers: list[WorkerProcess] = field(default_factory=list)
    commands: list[subprocess.Popen[str]] = field(default_factory=list)
    starts: Counter[str] = field(default_factory=Counter)

    @property
    def model(self) -> Path:
        """The file that every point reads."""
        return self.folder / "model.txt"

    def start_workers(self) -> None:
        self.workers = [worker for worker in self.workers if worker.returned is None]
        while len(self.workers) < 2:
            words = ("--lease", "1s", "--processes", "2")
            self.workers.append(WorkerProcess(TARGET, self.url, self.folder, *words))

    def start_command(self, name: str) -> subprocess.Popen[str]:
        self.starts[name] += 1
        around = {**os.environ, "DAYBREAK_URL": self.url, "PYTHONPATH": str(TARGET.parent)}
        words = [sys.executable, str(TARGET), name, str(self.model)]
        with (self.folder / "commands.log").open("a") as log:
            started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=around, text=True)
        self.commands.append(started)
        return started

    def finish_command(self, name: str) -> str:
        """Run the command until it ends well; what it said last."""
        for _ in range(STARTS):
            command = self.start_command(name)
            said, _ = command.communicate(timeout=300)
            if command.returncode == 0:
                return said.splitlines()[-1]
        raise AssertionError(f"{name} failed {STARTS} times: {(self.folder / 'commands.log').read_text()[-3000:]}")

    def kill(self, victim: str, command: subprocess.Popen[str]) -> None:
        if victim == "submitter":
            command.kill()
        elif victim == "worker":
            self.chance.choice(self.workers).kill()
        elif self.server is not None:
            self.server.kill()
            self.server.start()
        else:  # a file has no server: everyone who has it open is killed at once
            for one in (command, *self.workers):
                one.kill()

    def close(self) -> None:
        for one in (*self.commands, *self.workers):
            one.kill()
        for command in self.commands:
            command.wait()
            assert command.stdout is not None
            command.stdout.close()


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def scene(request, tmp_path, monkeypatch) -> Iterator[Scene]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    monkeypatch.setenv("DAYBREAK_FILES_CACHE", str(tmp_path / "cache"))
    with contextlib.ExitStack() as around:
        around.enter_context(nobody_left())
        url, server = f"sqlite:///{tmp_path}/jobs.db", None
        if request.param != "sqlite":
            server = around.enter_context(private_server(request.param, tmp_path))
            url = server.url
        app.use(url)
        around.callback(app.close)
        (tmp_path / "model.txt").write_text(MODEL)
        made = Scene(url, tmp_path, server, random.Random(20))
        around.callback(made.close)
        yield made


def effects(name: str) -> list[dict[str, Any]]:
    return read_lines(word="effect", run=name)


def await_moment(scene: Scene, victim: str, name: str, command: subprocess.Popen[str]) -> None:
    """Until a random point of the sweep: while it is submitted, or after a random number of effects."""
    assert command.stdout is not None
    assert command.stdout.readline() == "ready\n"
    if scene.chance.random() < (0.6 if victim == "submitter" else 0.2):
        time.sleep(scene.chance.uniform(0, 0.5))
    else:
        after = scene.chance.randrange(POINTS)
        until(lambda: len(effects(name)) >= after, f"{after} effects of {name}")
        time.sleep(scene.chance.uniform(0, 0.02))


def test_each_point_has_its_effect_once_whatever_is_killed(scene, request, tell):
    kind = request.node.callspec.params["scene"]
    killed: Counter[str] = Counter()
    seconds = []
    for trial in range(TRIALS[kind]):
        name = f"trial {trial}"
        victim = VICTIMS[(trial + list(TRIALS).index(kind)) % 3]
        began = time.monotonic()
        scene.start_workers()
        command = scene.start_command(name)
        await_moment(scene, victim, name, command)
        scene.kill(victim, command)
        killed[victim] += 1
        scene.start_workers()
        assert scene.finish_command(name) == f"finished {POINTS} of {POINTS}"
        assert_once(name, scene.model)
        command.kill()
        killed["submission"] += victim == "submitter" and "submitted" not in command.communicate()[0]
        seconds.append(time.monotonic() - began)
    assert_nothing_left(TRIALS[kind])
    for worker in scene.workers:
        assert worker.wait_ready(app).stop() == 0, worker.said
    tell(
        f"{TRIALS[kind]} trials on {kind}, killed: {', '.join(f'{one} {killed[one]}' for one in VICTIMS)}, of the "
        f"submitters {killed['submission']} during the submission; effects of refused outcomes: "
        f"{len(read_lines(word='effect')) - POINTS * TRIALS[kind]}; commands started: {sum(scene.starts.values())}; "
        f"{sum(seconds) / len(seconds):.1f} s a trial"
    )


def assert_once(name: str, model: Path) -> None:
    """One job and one accepted outcome for each point, and one effect under the fence of that outcome."""
    run = app.find_run(name)
    rows = list(run.rows())
    assert sorted(row["x"] for row in rows) == list(range(POINTS))
    assert all(row["state"] == "completed" and row["y"] == row["x"] * 2.0 for row in rows)
    info = run.info()
    assert (info.state, info.total, info.done, info.jobs[State.COMPLETED]) == ("finished", POINTS, POINTS, POINTS)

    async def look(client: Client) -> dict[str, int]:
        found = await client.store.get([row["job"] for row in rows])
        histories = [await client.store.history(row["job"]) for row in rows]
        assert all([event.kind for event in history].count("completed") == 1 for history in histories)
        record, _ = await read_run(client.store, name)
        assert record is not None
        assert (record.submitted, record.orphans, record.orphaned, record.epoch) == (True, False, 0, 1)
        return {job.id: job.fence for job in found if job is not None}

    fences = ask(app, look)
    assert len(fences) == POINTS
    accepted = Counter(line["x"] for line in effects(name) if line["fence"] == fences[line["job"]])
    assert accepted == Counter(range(POINTS))
    plan = app.plan_sweep(point, grid(str(model)), name=name)
    assert (plan.done, plan.to_run, plan.changes) == (POINTS, 0, ())


def assert_nothing_left(runs: int) -> None:
    """No job beyond the points, no lease, no slot, no second copy of the file, and one record for each run."""

    async def look(client: Client) -> None:
        counts = await client.count()
        assert counts == {**dict.fromkeys(counts, 0), State.COMPLETED: runs * POINTS}
        assert [one for one in await client.store.usage() if one.used or one.waiting] == []
        assert len(await client.store.records(KIND)) == runs
        await assert_sound(client.store)

        files = await app._sessions.files.store()
        assert [info.size for info in await files.infos()] == [len(MODEL)], "stored once, whatever was killed"

    ask(app, look)
