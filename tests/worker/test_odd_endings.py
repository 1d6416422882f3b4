"""However a job ends, its outcome is reported, and other jobs are not affected."""

from __future__ import annotations

import os

import pytest
import worker_odd as odd
from worker_processes import is_alive, until
from worker_stores import meddled

from daybreak import JobFailed, State
from daybreak.core.errors import StoreTooNew


@pytest.fixture
def place(tmp_path):
    odd.app.use(f"sqlite:///{tmp_path}/odd.db")
    yield tmp_path
    odd.app.close()


@pytest.fixture
def worker(place):
    with odd.app.worker(processes=1, lease_for="1s") as worker:
        yield worker


@pytest.mark.parametrize("task", [odd.rude, odd.arude], ids=["sync", "async"])
def test_an_error_that_cannot_be_inspected_is_still_reported(worker, task):
    with pytest.raises(JobFailed, match="Rude: rude"):
        task.submit().result(timeout="20s")


@pytest.mark.parametrize("task", [odd.suspend_oddly, odd.asuspend_oddly], ids=["sync", "async"])
def test_a_note_that_cannot_be_encoded_is_escaped(worker, task):
    job = task.submit()
    until(lambda: job.state() is State.SUSPENDED, "it is suspended")
    assert job.info().note == r"half \udcff a pair"
    assert odd.plain.submit(3).result(timeout="10s") == 3


@pytest.mark.parametrize("task", [odd.speak_oddly, odd.aspeak_oddly], ids=["sync", "async"])
def test_a_log_line_that_cannot_be_sent_does_not_fail_the_job(worker, task, capfd):
    assert task.submit().result(timeout="20s") == 1


def test_a_reply_that_nobody_waits_for_does_not_end_the_listener(worker):
    assert odd.late_checkpoint.submit().result(timeout="20s") == 1
    assert odd.plain.map(range(5), timeout="20s") == list(range(5))


def test_a_job_that_breaks_the_connection_of_its_child_does_not_run_for_ever(worker):
    with pytest.raises(JobFailed, match="lost"):
        odd.lose_its_voice.submit().result(timeout="60s")
    assert odd.plain.submit(1).result(timeout="20s") == 1


def test_processes_started_by_a_dead_child_do_not_outlive_it(worker, place):
    file = place / "pids"
    with pytest.raises(JobFailed):
        odd.die_with_a_subprocess.submit(str(file)).result(timeout="60s")
    pids = [int(line) for line in file.read_text().split()]
    assert len(pids) == 3
    try:
        until(lambda: not any(is_alive(pid) for pid in pids), "they are gone")
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, 9)


def test_a_worker_whose_loop_cannot_go_on_ends_and_says_why(place):
    async def refuse(name, *_):
        if name == "exchange":
            raise StoreTooNew("written by a newer Daybreak")

    with meddled(odd.app, place / "odd.db") as store, pytest.raises(StoreTooNew):
        _work_until_it_stops(store, refuse)


def _work_until_it_stops(store, refuse):
    with odd.app.worker(processes=1) as worker:
        store.before = refuse
        odd.plain.submit(1)
        until(lambda: worker.is_stopping, "it stops by itself")
