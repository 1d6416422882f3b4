"""A shift in ten seconds: stations drop reports, a worker uploads them, and the server goes away in the midst.

python run.py                  against a stand-in of WATS, in a folder of its own, which is deleted at the end
python run.py --reports 200    more of each station
python run.py --keep shift     keep the folder: its reports, its store, the log of the worker
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from daybreak import Breaker, Daybreak, JobInfo, Priority, State
from daybreak.adapters.wats.stand_in import Faults, StandIn

HERE = Path(__file__).parent
STATIONS = 3
OUTAGE = 2.0  # seconds
PATIENCE = 120.0  # seconds until this gives up


def main() -> int:
    options = argparse.ArgumentParser(description="Stations that drop reports, and a server that goes away.")
    options.add_argument("--reports", type=int, default=30, help="how many of each station (30)")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for all of it, which is kept")
    given = options.parse_args()
    with contextlib.ExitStack() as around:
        if given.keep is not None and given.keep.exists():
            sys.exit(f"{given.keep} exists: name a folder that does not, or delete it")
        folder = given.keep or Path(around.enter_context(tempfile.TemporaryDirectory(prefix="report-upload-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return run(folder.absolute(), given.reports)
        except KeyboardInterrupt:
            return 130


def run(folder: Path, reports: int) -> int:
    # The first submissions meet every kind of trouble, and after a third of them the server goes away.
    faults = Faults(errors=1, busy=1, lose=2, drop=1, slow=0.1, down_at=STATIONS * reports // 3, down_for=OUTAGE)
    with StandIn(faults) as server, open_store(folder) as app, worker(folder, server):
        wait_until(lambda: "Worker for" in log_of(folder), folder, "the worker has started")
        print(f"{STATIONS} stations drop {reports} reports each; the server will go away for {OUTAGE:g} s", flush=True)
        began = time.monotonic()
        dropped = run_stations(folder, reports)
        print(f"all reports are dropped, {len(server.archive.reports)} of them are on the server", flush=True)
        wait_until(lambda: is_done(app, folder, len(dropped)), folder, "all reports are uploaded")
        return summary(dropped, list(app.find(task="upload_report")), server, time.monotonic() - began)


@contextlib.contextmanager
def open_store(folder: Path) -> Iterator[Daybreak]:
    """The store of the worker, seen from this process. In a factory the breaker waits for a minute; here, half a
    second."""
    with Daybreak(str(folder / "upload.db")) as app:
        app.resource("wats").set(slots=5, breaker=Breaker(failures=5, open_for=timedelta(seconds=0.5)))
        yield app


@contextlib.contextmanager
def worker(folder: Path, server: StandIn) -> Iterator[None]:
    """`daybreak worker upload.py`, as a factory runs it."""
    environment = {
        **os.environ,
        "REPORTS": str(folder / "drop"),
        "STORE": str(folder / "upload.db"),
        "WATS": server.url,
        "WATS_TOKEN": server.token,
        "RETRY_DELAY": "200ms",  # in a factory: minutes
        "RETRY_CAP": "1s",
    }
    (folder / "drop").mkdir(exist_ok=True)
    words = [sys.executable, "-m", "daybreak.cli", "worker", str(HERE / "upload.py"), "--processes", "1"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)  # noqa: S603
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def run_stations(folder: Path, reports: int) -> list[dict[str, Any]]:
    """What the stations dropped, when all of them have ended."""
    words = [sys.executable, str(HERE / "stations.py"), str(folder / "drop")]
    words += ["--stations", str(STATIONS), "--reports", str(reports)]
    ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return [json.loads(line) for line in ran.stdout.splitlines()]


def wait_until(condition: Callable[[], object], folder: Path, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {PATIENCE:g} s: {what}. The worker said:\n{log_of(folder)[-2000:]}")
        time.sleep(0.05)


def log_of(folder: Path) -> str:
    return (folder / "worker.log").read_text(encoding="utf-8")


def is_done(app: Daybreak, folder: Path, number: int) -> bool:
    """Whether every report has a job that ended, and its file has moved."""
    ended = app.count(task="upload_report", state=[State.COMPLETED, State.FAILED, State.CANCELLED])
    return ended >= number and not list((folder / "drop").glob("*.wsjf"))


def summary(dropped: list[dict[str, Any]], jobs: list[JobInfo], server: StandIn, seconds: float) -> int:
    counts = server.counts()
    stored, wanted = set(server.archive.reports), {report["id"] for report in dropped}
    urgent = [job for job in jobs if job.priority == Priority.CRITICAL]
    others = [job for job in jobs if job.priority != Priority.CRITICAL]
    print(
        f"dropped         {len(dropped)} reports, {sum(report['urgent'] for report in dropped)} of them urgent\n"
        f"on the server   {len(stored & wanted)} exactly once, {len(wanted - stored)} missing, "
        f"{len(stored - wanted)} unknown\n"
        f"trouble         {words_of(counts)}\n"
        f"retries         {sum(job.attempt - 1 for job in jobs)}; {counts['uploaded_again']} reports were sent again "
        "although the server had them, and replaced\n"
        f"urgent first    they waited {mean_wait(urgent):.1f} s on average, the others {mean_wait(others):.1f} s; "
        f"{overtaken(urgent, others)} urgent ones were overtaken\n"
        f"at once         {counts['most_at_once']} uploads at most\n"
        f"time            {seconds:.1f} s"
    )
    is_good = stored == wanted and len(jobs) == len(dropped) and all(job.state is State.COMPLETED for job in jobs)
    print("every report is on the server exactly once" if is_good else "SOMETHING IS WRONG")
    return 0 if is_good else 1


def words_of(counts: dict[str, Any]) -> str:
    names = {"errors": "HTTP 500", "busy": "HTTP 429", "lose": "answers lost", "drop": "connections closed"}
    faults = [f"{number} x {names[kind]}" for kind, number in counts["faults"].items() if kind in names]
    return ", ".join([*faults, f"away for {OUTAGE:g} s"])


def mean_wait(jobs: list[JobInfo]) -> float:
    """Seconds from the drop to the start of the upload that succeeded."""
    waits = [(job.started_at - job.created_at).total_seconds() for job in jobs if job.started_at is not None]
    return sum(waits) / max(len(waits), 1)


def overtaken(urgent: list[JobInfo], others: list[JobInfo]) -> int:
    """How many urgent reports waited while another one was started, retries aside."""
    starts = [job.started_at for job in others if job.attempt == 1 and job.started_at is not None]
    waited = [(job.created_at, job.started_at) for job in urgent if job.attempt == 1 and job.started_at is not None]
    return sum(any(dropped < start < started for start in starts) for dropped, started in waited)


if __name__ == "__main__":
    sys.exit(main())
