"""Reports that are uploaded to a server that fails, is busy, loses answers and goes away: it has each exactly once.

The short form has 100 reports, the long form 1,000, and a worker that is killed among them. Only the long form measures
how much faster five uploads at a time are than one."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from player_processes import LONG, count
from upload_load import TOKEN, WATS, app, upload_report
from worker_processes import WorkerProcess, nobody_left, until

from daybreak import File, JobInfo, State
from daybreak.adapters.wats.stand_in import Faults, StandIn
from daybreak.adapters.wats.stand_in.server import Reply

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("upload_load.py")
REPORTS = count(100, 1000)
WITHIN = count(120, 900)  # seconds


class GatedServer(StandIn):
    """A server that takes submissions, and answers once `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def _decide(self, fault: Any, report_id: str, report: Any) -> Reply:
        assert self.gate.wait(WITHIN)
        return super()._decide(fault, report_id, report)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "reports").mkdir()
    with nobody_left():
        app.use(f"sqlite:///{tmp_path}/jobs.db")
        yield tmp_path
        app.close()


def a_worker(folder: Path, server: StandIn) -> WorkerProcess:
    around = {WATS: server.url, TOKEN: server.token, "DAYBREAK_WORKER_LEASE": "2s"}
    words = ("--processes", "1", "--async-jobs", "8")
    return WorkerProcess(TARGET, app.settings.url, folder, *words, env=around)


def write_reports(folder: Path, number: int) -> dict[str, dict[str, Any]]:
    """Reports as files, by their ids."""
    reports = {}
    for n in range(number):
        report = {
            "type": "T", "id": str(uuid.uuid4()), "pn": "PSU-24", "sn": f"SN-{n:05}", "rev": "A", "processCode": 10,
            "result": "P", "machineName": "Station 1", "location": "Line 2", "purpose": "Production",
            "start": "2026-01-01T10:00:00+01:00", "uut": {"user": "ann", "execTime": 5.0},
            "root": {"id": 1, "group": "M", "stepType": "SequenceCall", "name": "Main", "status": "P", "steps": []},
        }  # fmt: skip
        (folder / "reports" / f"{report['id']}.wsjf").write_text(json.dumps(report), encoding="utf-8")
        reports[report["id"]] = report
    return reports


def submit_all(folder: Path) -> None:
    upload_report.submit_many([{"report": File(path)} for path in sorted((folder / "reports").iterdir())])


def jobs() -> list[JobInfo]:
    return list(app.find(task="upload_report"))


def done() -> int:
    time.sleep(0.02)
    return app.count(task="upload_report", state=[State.COMPLETED, State.FAILED])


def test_a_server_that_fails_is_busy_loses_answers_and_goes_away_has_each_report_exactly_once(folder, tell) -> None:
    reports, began = write_reports(folder, REPORTS), time.monotonic()
    faults = Faults(
        errors=1, busy=2, lose=2, drop=1, fail_share=count(3, 20) / 100, seed=22, slow=0.01,
        down_at=REPORTS * 4 // 5, down_for=count(600, 5000) / 1000,
    )  # fmt: skip
    with StandIn(faults) as server:
        submit_all(folder)
        with a_worker(folder, server) as worker:
            if LONG:  # a worker dies in the midst of its uploads
                until(lambda: len(server.archive.reports) > REPORTS // 2, "half of the reports", WITHIN)
                worker.kill()
            with a_worker(folder, server) as other:
                until(lambda: done() == REPORTS, "the end of all jobs", WITHIN)
                assert other.stop() == 0
            if not LONG:
                assert worker.stop() == 0
        counts = server.counts()
    found = jobs()
    retries = sum(job.attempt - 1 for job in found)
    tell(
        f"{REPORTS} reports in {time.monotonic() - began:.0f} s, {retries} retries; the server: {counts}; "
        f"at most {max(job.attempt for job in found)} attempts"
    )
    assert {job.state for job in found} == {State.COMPLETED}
    assert server.archive.reports == reports  # each of them, with its content, and nothing else
    assert sorted(job.result for job in found) == sorted(reports)
    assert counts["too_early"] == 0  # no report came before its Retry-After
    assert counts["outages"] == 1
    assert set(counts["faults"]) == {"errors", "busy", "lose", "drop", "down"}  # all of it did happen
    assert retries > 0


def test_five_reports_are_uploaded_at_a_time_and_never_six(folder) -> None:
    write_reports(folder, 20)
    with GatedServer() as server:
        submit_all(folder)
        with a_worker(folder, server) as worker, a_worker(folder, server) as other:
            until(lambda: server.archive.most_at_once == 5, "five uploads at a time")
            server.gate.set()
            until(lambda: done() == 20, "the end of all jobs")
            assert (worker.stop(), other.stop()) == (0, 0)
        assert server.archive.most_at_once == 5
        assert set(server.archive.uploads.values()) == {1}


def test_five_uploads_at_a_time_are_at_least_4_5_times_as_fast_as_one(folder, tell) -> None:
    if not LONG:
        pytest.skip("only the long form measures time")
    # Other programs only make a round slower, so the best one counts. One wave of five in twenty is lost by a delay of
    # 0.2 s, one upload in a hundred at one at a time: five needs more rounds to meet a quiet moment.
    ones = [seconds_of(folder, slots=1) for _ in range(2)]
    fives = [seconds_of(folder, slots=5) for _ in range(6)]
    one, five = min(ones), min(fives)
    rounds = ", ".join(f"{seconds:.2f}" for seconds in (*ones, *fives))
    tell(f"100 reports of 200 ms: one at a time {one:.2f} s, five {five:.2f} s: {one / five:.2f} x; rounds: {rounds}")
    assert one / five >= 4.5


def seconds_of(folder: Path, slots: int) -> float:
    """How long 100 uploads of 200 ms take, from the submit of the first until the last job has completed."""
    with StandIn(Faults(slow=0.2)) as server, a_worker(folder, server) as worker:
        app.resource("wats").set(slots=slots)
        upload_one_first(folder, worker)
        write_reports(folder, 100)
        before, began = done(), time.monotonic()
        submit_all(folder)
        until(lambda: len(server.archive.reports) == 101, "100 uploads", WITHIN)
        until(lambda: done() == before + 100, "the end of all jobs", WITHIN)
        took = time.monotonic() - began
        assert server.archive.most_at_once == slots
        assert worker.stop() == 0
        return took


def upload_one_first(folder: Path, worker: WorkerProcess) -> None:
    """So that the worker's start is not measured."""
    worker.wait_ready(app)
    for path in (folder / "reports").iterdir():
        path.unlink()
    write_reports(folder, 1)
    [path] = (folder / "reports").iterdir()
    upload_report.submit(File(path)).result("60s")
    path.unlink()
