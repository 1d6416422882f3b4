"""Command lines as jobs: their output is stored, and the processes that they started end with them."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from worker_commands import QUICK, all_gone, submit, submit_family
from worker_processes import is_alive, until
from worker_tasks import app

from daybreak import JobCancelled, JobFailed

DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def worker(shared_stage):
    with shared_stage.process("--processes", "2", "--allow-commands", **QUICK) as worker:
        yield worker.wait_ready(app)


def test_output_and_exit_code_are_kept(worker, shared_stage):
    job = submit("sh", "-c", "echo out; echo err >&2; pwd", cwd=str(shared_stage.folder))
    assert job.result(timeout="30s") == {"exit_code": 0, "stdout": f"out\n{shared_stage.folder}\n", "stderr": "err\n"}


def test_a_command_knows_its_job_and_its_environment(worker):
    job = submit("sh", "-c", "echo $DAYBREAK_JOB $COLOUR", env={"COLOUR": "red"})
    assert job.result(timeout="30s")["stdout"] == f"{job.id} red\n"


def test_only_the_end_of_long_output_is_kept(worker):
    code = "import sys; sys.stdout.write('x' * 1_000_000 + 'the end')"
    out = submit(sys.executable, "-c", code).result(timeout="30s")["stdout"]
    assert out.endswith("the end")
    assert "bytes before" in out
    assert len(out) < 70_000


def test_output_that_is_not_text_is_escaped(worker):
    out = submit(sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\x00ok')").result(timeout="30s")
    assert "ok" in out["stdout"]


def test_the_error_of_a_command_has_its_exit_code_and_the_end_of_its_output(worker):
    with pytest.raises(JobFailed, match=r"(?s)exit code 3.*it is broken"):
        submit("sh", "-c", "echo it is broken >&2; exit 3").result(timeout="30s")
    with pytest.raises(JobFailed, match="SIGTERM"):
        submit("sh", "-c", "kill $$").result(timeout="30s")


def test_a_command_that_fails_keeps_the_ends_of_both_streams(worker):
    job = submit("sh", "-c", "echo half done; echo it is broken >&2; exit 3")
    with pytest.raises(JobFailed, match=r"exit code 3: it is broken\nstdout: half done"):
        job.result(timeout="30s")
    job = submit("sh", "-c", "echo only this; exit 3")
    with pytest.raises(JobFailed, match="exit code 3: only this"):
        job.result(timeout="30s")


def test_long_output_of_a_failed_command_is_short_in_the_error_and_longer_in_the_traceback(worker):
    job = submit("sh", "-c", "seq 1 20000; seq 20001 40000 >&2; exit 3")
    with pytest.raises(JobFailed):
        job.result(timeout="30s")
    failure = job.info().failure
    assert "19900\n" in failure.message
    assert "39900\n" in failure.message
    assert not failure.message.endswith(" ..."), "nothing of it was cut off"
    for last in (20000, 40000):
        assert all(f"\n{n}\n" in failure.traceback for n in range(last - 1200, last + 1))


def test_a_command_that_does_not_exist_is_not_retried(worker):
    job = submit("no-such-program-here", attempts=3)
    with pytest.raises(JobFailed, match="no-such-program-here"):
        job.result(timeout="30s")
    assert job.info().attempt == 1


def test_a_command_that_ends_with_ex_tempfail_is_retried(worker, shared_stage):
    flag = shared_stage.file("tried")
    job = submit("sh", "-c", f"test -e {flag} || {{ touch {flag}; exit 75; }}", attempts=2)
    assert job.result(timeout="30s")["exit_code"] == 0
    assert job.info().attempt == 2


def test_a_time_limit_ends_the_command_and_what_it_started(worker, shared_stage):
    job, pids = submit_family(shared_stage, timeout="1s")
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="30s")
    all_gone(pids)


def test_cancelling_a_command_ends_the_processes_that_it_started(worker, shared_stage):
    job, pids = submit_family(shared_stage)
    job.cancel()
    try:
        with pytest.raises(JobCancelled):
            job.result(timeout="30s")
        all_gone(pids)
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_cancelled_command_that_ignores_sigterm_is_killed(worker, shared_stage):
    place = shared_stage.file("deaf")
    job = submit(sys.executable, "-c", DEAF, str(place))
    until(place.exists, "it runs")
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout="30s")
