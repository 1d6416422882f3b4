"""The night of the PyPLECS article, on the stand-in: its five failures in one sweep, and failures at random.

The short form has 40 points, the long form the article's 1,000; the failures happen at the same share of the night."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from player_processes import LONG, count
from worker_processes import until

from daybreak import Breaker, Daybreak, File, JobInfo, State
from daybreak.adapters.plecs.stand_in.buck import read_model
from daybreak.adapters.plecs.stand_in.buck import simulate as simulate_buck
from daybreak.core.errors import RunNotFound

pytestmark = pytest.mark.torture

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation_sweep"
POINTS = count(40, 1000)
NAME = f"overnight-{POINTS}"
SLOW = count(30, 20) / 1000  # seconds per simulation
PLECS_LIMIT = count(1, 5)  # seconds until a call without an answer is given up
NIGHT = count(120, 900)  # seconds


def at(number: int) -> int:
    """What is number 247 of 1000, of the points of this night."""
    return max(1, number * POINTS // 1000)


class Simulator:
    """The stand-in as a process on one port, which can be started again there."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/RPC2"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: object) -> None:
        self.stop()
        command = [sys.executable, "-m", "daybreak.adapters.plecs.stand_in", "--port", str(self.port), "--cores", "1"]
        self.process = subprocess.Popen([*command, *map(str, options)], stdout=subprocess.PIPE, text=True)
        assert self.address in self.process.stdout.readline()

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


class Night:
    """The example in a folder of its own, as a process, and this process looking on."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self.folder = folder
        self.model = folder / "buck.plecs"
        self.variables = read_model(self.model.read_text(encoding="utf-8"))
        own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
        self.environment = {
            **own,
            "PLECS": simulator.address,
            "PLECS_TIMEOUT": f"{PLECS_LIMIT}s",
            "TMPDIR": str(folder),
        }
        self.app = Daybreak(str(folder / "overnight.db"), by="test")
        self.script: subprocess.Popen[str] | None = None
        self.looks: list[int] = []

    def start(self) -> None:
        words = [sys.executable, "overnight.py", "--points", str(POINTS)]
        with (self.folder / "night.log").open("a", encoding="utf-8") as log:
            self.script = subprocess.Popen(
                words, cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True, start_new_session=True
            )

    def stop(self) -> None:
        if self.script is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.script.pid, signal.SIGKILL)
            self.script.wait()
        self.app.close()

    def done(self) -> int:
        """How far it is, which can be seen at any time: every look is kept."""
        time.sleep(0.05)
        try:
            info = self.app.find_run(NAME).info()
        except RunNotFound:
            return 0
        if sum(info.jobs.values()) < POINTS:
            return 0  # not all points are submitted yet
        self.looks.append(info.done)
        assert info.total == POINTS
        return info.done

    def wait_for(self, number: int) -> None:
        until(lambda: self.done() >= number or self.script.poll() is not None, f"{number} points", NIGHT)

    def finish(self) -> None:
        until(lambda: self.done() >= 0 and self.script.poll() is not None, "the end of the night", NIGHT)
        assert self.script.returncode == 0, (self.folder / "night.log").read_text(encoding="utf-8")[-3000:]

    def check_results(self) -> list[JobInfo]:
        """All points are there once, completed, and from the model as it was when it was submitted."""
        jobs = self.jobs()
        assert len(jobs) == len({(job.args["vin"], job.args["duty"]) for job in jobs}) == POINTS
        assert {job.state for job in jobs} == {State.COMPLETED}
        for job in jobs:
            assert job.result == self.expected(job.args["vin"], job.args["duty"])
        return jobs

    def jobs(self) -> list[JobInfo]:
        return list(self.app.find(run=self.app.find_run(NAME).info().label))

    def expected(self, vin: float, duty: float) -> dict[str, float]:
        volts = simulate_buck(self.variables, {"ModelVars": {"Vi": vin, "duty": duty}})["Values"][0]
        last = volts[-10:]
        return {"vout": sum(last) / 10, "ripple": max(last) - min(last), "peak": max(volts)}


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    simulator = Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture
def night(tmp_path, simulator) -> Iterator[Night]:
    shutil.copytree(EXAMPLE, tmp_path / "night", ignore=shutil.ignore_patterns("*.db*", "*.csv", "__pycache__"))
    night = Night(tmp_path / "night", simulator)
    yield night
    night.stop()


def submit_urgent(night: Night, monkeypatch: pytest.MonkeyPatch, simulator: Simulator):
    """One point from another process, before all others."""
    monkeypatch.setenv("PLECS", simulator.address)
    spec = importlib.util.spec_from_file_location("overnight", night.folder / "overnight.py")
    overnight = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "overnight", overnight)
    spec.loader.exec_module(overnight)
    overnight.app.use(str(night.folder / "overnight.db"))
    return overnight.app, overnight.simulate.using(priority="critical").submit(File(night.model), 24.0, 0.5)


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Another content, in the same size and with the same time."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_the_five_failures_of_the_article_in_one_night(night, simulator, monkeypatch, tell):
    began = time.monotonic()
    simulator.start("--slow", SLOW, "--die-after", at(247))
    if not LONG:
        plecs = night.app.resource(f"plecs 127.0.0.1:{simulator.port}")
        plecs.set(slots=1, breaker=Breaker(failures=5, open_for=timedelta(milliseconds=500)))
    night.start()

    night.wait_for(at(102))  # the model file is changed, and nobody could tell by its size or time
    overwrite(night.model, b"R = 1;", b"R = 2;")
    app, urgent = submit_urgent(night, monkeypatch, simulator)  # and something urgent comes
    night.model.unlink()

    until(lambda: night.done() >= 0 and simulator.is_dead, "the death of the simulator", NIGHT)
    kept = night.done()
    time.sleep(0.2)  # nothing runs, and nothing is lost
    assert at(102) <= kept <= night.done() <= at(247)
    simulator.start("--slow", SLOW, "--hang-at", max(at(583) - at(247), 2))
    if LONG:  # and the sweep itself is killed, with its worker and children, and started again
        night.wait_for(at(700))
        os.killpg(night.script.pid, signal.SIGKILL)
        night.script.wait()
        shutil.copy(EXAMPLE / "buck.plecs", night.model)
        night.start()
    night.finish()

    jobs = night.check_results()
    with app:
        volts = urgent.result("1m")["vout"]
        assert volts != night.expected(24.0, 0.5)["vout"]  # of the new content
        info = urgent.info()
        overtook = [job for job in jobs if info.created_at < job.started_at < info.started_at]
    assert len(overtook) <= 3  # what was started when it came
    assert night.looks == sorted(night.looks)  # every look saw how far it was
    assert night.looks[-1] == POINTS
    attempts = [job.attempt for job in jobs]
    assert max(attempts) > 1
    tell(
        f"{POINTS} points, 0 failed, in {time.monotonic() - began:.0f} s; {kept} results kept at the death; "
        f"{sum(attempts) - POINTS} retries; the urgent one waited for {len(overtook)} others; {len(night.looks)} looks"
    )


def test_transient_failures_of_5_2_percent_fail_no_point_and_lose_none(night, simulator, tell):
    if not LONG:
        pytest.skip("the long form has 1,000 points of this; the short form is in tests/demo/test_simulation_sweep.py")
    began = time.monotonic()
    simulator.start("--fail-share", "0.052", "--seed", "52")
    night.start()
    night.finish()
    attempts = [job.attempt for job in night.check_results()]
    retried = sum(attempt > 1 for attempt in attempts)
    assert retried >= POINTS * 0.01  # the failures did happen
    tell(
        f"{POINTS} points, 0 failed, 0 lost, in {time.monotonic() - began:.0f} s; {retried} needed a retry, "
        f"{sum(attempts) - POINTS} retries, at most {max(attempts)} attempts"
    )
