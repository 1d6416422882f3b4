"""Workers that vanish and a ledger that does not: real processes, killed, on a server that speaks SQS."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_servers import private_server
from sqs_load import app, stepwise, transcribe, urgent
from worker_processes import nobody_left

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(os.environ.get("DAYBREAK_TORTURE") != "long", reason="minutes: DAYBREAK_TORTURE=long runs it"),
]

HERE = Path(__file__).parent
PREFIX = "torture"
MAX_KILLS = 150


class Sqs:
    """A moto server, and the dispatchers and workers on it, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self.env = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": self.endpoint, "DAYBREAK_METADATA_URL": "off",
            "SQS_LINES": str(folder / "lines"),
        }  # fmt: skip
        self.start("moto.server", "-H", "127.0.0.1", "-p", str(port), log="moto")
        self.wait_until_up()
        self.run("sqs", "init", "--prefix", PREFIX, "--visibility", "2s")

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()  # noqa: S310 - our own address
            except urllib.error.HTTPError:
                return
            except OSError:
                assert time.monotonic() < deadline, "moto does not start"
                time.sleep(0.1)
            else:
                return

    def start(self, module: str, *words: str, log: str, **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=self.folder,
                env={**self.env, **env},
                stdout=output,
                stderr=output,
            )
        self.started.append(process)
        return process

    def run(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "daybreak.cli", *words], cwd=self.folder, env=self.env, check=True)

    def dispatcher(self, *more: str) -> subprocess.Popen[bytes]:
        words = ("dispatch", str(HERE / "sqs_load.py"), "--to", f"sqs://eu-west-1/{PREFIX}", "--url", app.settings.url)
        return self.start("daybreak.cli", *words, "--depth", "30", *more, log="dispatch")

    def worker(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        address = f"sqs://eu-west-1/{PREFIX}"
        common = ("worker", str(HERE / "sqs_load.py"), "--url", address, "--lease", "2s", "--async-jobs", "8")
        return self.start("daybreak.cli", *common, *words, log="worker", **env)

    def lines(self, word: str) -> list[list[str]]:
        file = self.folder / "lines"
        found = file.read_text().splitlines() if file.exists() else []
        return [line.split() for line in found if line.startswith(word)]

    def close(self) -> None:
        for process in reversed(self.started):
            process.kill()
            process.wait()


@pytest.fixture
def sqs(tmp_path: Path) -> Iterator[Sqs]:
    with nobody_left():
        app.use(f"sqlite:///{tmp_path}/jobs.db")
        with contextlib.closing(Sqs(tmp_path)) as server:
            yield server
        app.close()


def ends_of(jobs) -> Counter[str]:
    return Counter(event.kind for job in jobs for event in job.history() if event.kind in ("completed", "failed"))


def wait_for(jobs, seconds: float, every=lambda: None) -> None:
    deadline = time.monotonic() + seconds
    while any(not job.info().is_final for job in jobs[-1:]) or any(not job.info().is_final for job in jobs):
        assert time.monotonic() < deadline, Counter(job.info().state for job in jobs)
        every()
        time.sleep(0.2)


def test_500_jobs_while_a_worker_is_killed_every_second(sqs: Sqs, tell) -> None:
    """The visibility timeout (1 s) is shorter than the jobs (1.5 s). A worker lives for as many seconds as there are
    workers, its start included, which is too short on a slow machine: after MAX_KILLS the rest may end."""
    sqs.dispatcher("--missed-heartbeats", "9")
    workers = [sqs.worker("--lease", "1s") for _ in range(10)]
    jobs = [transcribe.submit(1.5) for _ in range(500)]
    kills, next_kill = 0, time.monotonic() + 10
    first = None

    def kill_one() -> None:
        nonlocal kills, next_kill, first
        if time.monotonic() < next_kill:
            return
        next_kill = time.monotonic() + 1
        victim = workers.pop(0)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        kills += 1
        workers.append(sqs.worker("--lease", "1s"))
        if first is None:
            first = urgent.using(priority="critical").submit()

    began = time.monotonic()
    deadline = began + 900
    while (left := sum(not job.info().is_final for job in jobs)) and time.monotonic() < deadline:
        if left > 40 and kills < MAX_KILLS:  # then let the rest end
            kill_one()
        time.sleep(0.2)
    took = time.monotonic() - began
    ends = ends_of(jobs)
    lost = sum(job.info().attempt - 1 for job in jobs)
    tell(
        f"{kills} kills in {took:.0f} s: {dict(ends)}, {lost} attempts lost with their workers, "
        f"{len(sqs.lines('began'))} starts, {len(sqs.lines('ended'))} ends of 500 jobs"
    )
    assert ends == {"completed": 500}
    assert kills > 10
    results = [job.result() for job in jobs]
    assert len(set(results)) == 500
    assert all(result.startswith(f"{job.info().fence}-") for job, result in zip(jobs, results, strict=True))
    assert first is not None
    assert first.result(timeout="60s") == "now"


def test_jobs_of_five_times_the_visibility_timeout_run_once(sqs: Sqs, tell) -> None:
    sqs.dispatcher("--missed-heartbeats", "30")
    for _ in range(2):
        sqs.worker("--lease", "1s")
    jobs = [transcribe.submit(5) for _ in range(8)]
    wait_for(jobs, 600)
    tell(f"{len(sqs.lines('began'))} starts of 8 jobs of 5 s, with a visibility timeout of 1 s")
    assert ends_of(jobs) == {"completed": 8}
    assert len(sqs.lines("began")) == 8
    assert all(job.info().attempt == 1 for job in jobs)


def test_a_ledger_in_postgresql_that_is_killed_and_started_again_loses_nothing(tmp_path: Path, tell) -> None:
    with nobody_left(), private_server("postgresql", tmp_path) as server:
        app.use(server.url)
        with contextlib.closing(Sqs(tmp_path)) as sqs:
            sqs.dispatcher()
            for _ in range(2):
                sqs.worker("--lease", "60s")
            jobs = [transcribe.submit(0.3) for _ in range(100)]
            deadline = time.monotonic() + 300
            while len(sqs.lines("ended")) < 20:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            server.kill()
            before = len(sqs.lines("ended"))
            time.sleep(3)
            server.start()
            wait_for(jobs, 600)
            ends = ends_of(jobs)
            tell(f"killed after {before} ends: {dict(ends)}, {len(sqs.lines('ended'))} runs of 100 jobs")
            assert ends == {"completed": 100}
            assert before < 100
        app.close()


def test_20_terminations_with_notice_charge_nothing_and_lose_one_step_at_most(sqs: Sqs, tell) -> None:
    sqs.dispatcher()
    jobs = [stepwise.submit(150) for _ in range(8)]
    worker = sqs.worker("--grace", "0s")
    stops = 0
    while stops < 20 and not all(job.info().is_final for job in jobs):
        before = len(sqs.lines("step"))
        deadline = time.monotonic() + 60
        while len(sqs.lines("step")) < before + 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)  # as the spot notice does: the worker hands its jobs back
        assert worker.wait(60) == 0
        stops += 1
        worker = sqs.worker("--grace", "0s")
    for job in jobs:
        assert job.result(timeout="300s") == 150
    steps = Counter(tuple(line[1:]) for line in sqs.lines("step"))
    again = sum(n - 1 for n in steps.values())
    tell(f"{stops} stops: {again} of {8 * 150} steps done twice, attempts {[job.info().attempt for job in jobs]}")
    assert all(job.info().attempt == 1 for job in jobs)
    assert again <= stops * len(jobs)


def test_a_dispatcher_killed_ten_times_loses_nothing_and_accepts_nothing_twice(sqs: Sqs, tell) -> None:
    dispatcher = sqs.dispatcher()
    for _ in range(3):
        sqs.worker("--lease", "30s")
    jobs = [transcribe.submit(0.2) for _ in range(300)]
    kills = 0
    began = time.monotonic()
    while (left := sum(not job.info().is_final for job in jobs)) and time.monotonic() < began + 900:
        if kills < 10 and left > 20:
            time.sleep(1.5)
            dispatcher.send_signal(signal.SIGKILL)
            dispatcher.wait()
            kills += 1
            dispatcher = sqs.dispatcher()
        time.sleep(0.2)
    ends = ends_of(jobs)
    tell(f"{kills} kills of the dispatcher in {time.monotonic() - began:.0f} s: {dict(ends)}, "
         f"{len(sqs.lines('ended'))} runs of 300 jobs")  # fmt: skip
    assert ends == {"completed": 300}
