"""The clock of a real server is set while it runs: nothing is expired, purged or held up by that."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from private_servers import private_server
from worker_load import aeffect, app, effect
from worker_processes import LINES, WorkerProcess, ask, nobody_left, read_lines, until

from daybreak import Client, JobHandle, State
from daybreak.store.protocol import Purge

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("worker_load.py")
PRELOAD = Path(__file__).with_name("server_clock_preload.c")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
JOBS = 12


class ServerClock:
    """The wall clock of a private server, as `server_clock_preload.c` shows it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock.so"
        self._file.write_bytes(bytes(8))
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self._library, PRELOAD], check=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "SERVER_CLOCK_FILE": str(self._file)}

    def set(self, off_by: timedelta) -> None:
        with self._file.open("r+b") as file:  # in place: the server has it mapped
            file.write(struct.pack("=q", int(off_by.total_seconds())))


@pytest.fixture(params=["postgres", "redis"])
def clock(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerClock]:
    """The clock of a server of the test's own, which `app` uses."""
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip("LOUD: without Linux and a C compiler (cc) the clock of a server cannot be set")
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as around:
        clock = ServerClock(Path(around.enter_context(tempfile.TemporaryDirectory(prefix="daybreak-clock-"))))
        with mock.patch.dict(os.environ, clock.env):
            server = around.enter_context(private_server(request.param, tmp_path))
        around.enter_context(nobody_left())
        app.use(server.url)
        around.callback(app.close)
        yield clock


def server_is_off_by() -> timedelta:
    """By how much, as an event shows it: in whole hours."""
    [event, *_] = effect.using(queue="nobody").submit(0.0).history()
    return HOUR * round((event.at - datetime.now(UTC)) / HOUR)


def do_what_time_decides() -> int:
    """What the services of each worker do now and then. How many jobs ended, or were deleted, by it."""

    async def look(client: Client) -> int:
        advanced = await client.store.advance()
        purged = await client.store.purge(Purge())
        return advanced.expired + purged.jobs

    return ask(app, look)


def states(jobs: list[JobHandle[int]]) -> set[State]:
    return {job.info().state for job in jobs}


def test_a_server_whose_clock_is_set_expires_and_purges_nothing_and_delays_go_on(clock, tmp_path, tell) -> None:
    with WorkerProcess(TARGET, app.settings.url, tmp_path, "--processes", "1", "--lease", "2s") as worker:
        worker.wait_ready(app)
        done = [task.submit(0.0) for task in (effect, aeffect) for _ in range(JOBS)]
        for job in done:
            job.result(timeout="60s")
        waiting = [effect.using(queue="nobody", expires_in="2h").submit(0.0) for _ in range(JOBS)]
        ended = 0
        for off_by in (DAY, 31 * DAY, 31 * DAY - HOUR):
            delayed = [aeffect.using(delay="1s").submit(0.0) for _ in range(JOBS)]
            clock.set(off_by)
            ended += do_what_time_decides()
            assert server_is_off_by() == off_by, "its clock was not set: the test showed nothing"
            for job in delayed:
                job.result(timeout="60s")
            ended += do_what_time_decides()
            assert states(waiting) == {State.QUEUED}
            assert states(done) == {State.COMPLETED}
        tell(
            f"clock set by +1 d, +30 d and -1 h: {ended} of {JOBS} jobs that may wait 2 h expired or {len(done)} "
            f"completed ones purged; {3 * JOBS} delays of 1 s went on"
        )
        assert ended == 0
        soon = effect.using(queue="nobody", expires_in="1s").submit(0.0)
        until(lambda: soon.info().state is State.FAILED, "a job that may wait a second expires after all", within=60)
        assert worker.stop() == 0
    assert all(len(read_lines(job=job.id, word="began")) == 1 for job in done)
