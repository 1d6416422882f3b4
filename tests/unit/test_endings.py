"""How a job ends that was asked to: for that reason, unless it rules otherwise itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest

from daybreak import Daybreak
from daybreak.core.errors import Permanent
from daybreak.core.model import Cancelled, Failed, Failure, HandedBack, Lease, Lost, Suspended, TimedOut
from daybreak.system import platform
from daybreak.tasks.context import Context
from daybreak.testing.contract.builders import NOON, spec
from daybreak.worker.child.async_loop import AsyncChild
from daybreak.worker.child.runner import Runner, ended_by_error
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.supervisor.child import HeldLease
from daybreak.worker.supervisor.outcomes import outcome_after_stop
from daybreak.worker.wire import Work

STUMBLED = Failed(Failure(message="the door was shut", kinds=("ValueError",), traceback="line 7"), 1.0)
RULED_OUT = Failed(Failure(message="never again", kinds=("Permanent",), verdict="permanent"), 1.0)
WORK = Work(1, "job", "task", 1, b"{}", "default", 5, 1, 3, 1)


def held(asked):
    second = timedelta(seconds=1)
    lease = Lease(
        seq=1, spec=spec(), fence=1, attempt=1, priority=5, worker="w", until=NOON + second, lease_for=second,
        started_at=NOON, created_at=NOON,
    )  # fmt: skip
    return HeldLease(lease, 0.5, stop_reason=asked)


@pytest.mark.parametrize(
    ("asked", "outcome", "ends"),
    [
        ("cancel", Lost(), Cancelled()),
        ("suspend", HandedBack(), Suspended()),
        ("suspend", STUMBLED, Suspended("ValueError: the door was shut")),
        ("timeout", STUMBLED, TimedOut(timedelta(seconds=0.5), "", "line 7")),
        ("suspend", RULED_OUT, RULED_OUT),
        ("timeout", RULED_OUT, RULED_OUT),
    ],
)
def test_one_that_woutcome_after_stop_to_end_ends_for_that_reason(asked, outcome, ends):
    assert outcome_after_stop(held(asked), outcome, 100.0) == ends


@pytest.mark.parametrize(
    ("trouble", "what"),
    [(asyncio.CancelledError(), "handed back"), (ValueError("shut"), "handed back"), (Permanent("no"), "failed")],
)
def test_at_a_workers_stop_a_job_goes_back_unless_it_rules_that_out(trouble, what):
    ctx = Context(job="job")
    ctx.ask_to_stop("shutdown")
    assert ended_by_error(WORK, ctx, trouble, 0.0).status == what


FORKS = """
    import os
    from daybreak import Daybreak
    from daybreak.testing import inline

    app = Daybreak("memory://")

    @app.task
    def answer() -> int:
        return 42

    with inline(app):
        if (pid := os.fork()) == 0:
            os._exit(answer.submit().result())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_forked_beside_its_jobs_may_run_them_inline():
    command = [sys.executable, "-c", textwrap.dedent(FORKS)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "42\n"


def test_the_family_of_a_number_that_may_be_anothers_is_left_alone(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    child.wait()
    monkeypatch.setattr(platform.ProcessScan, "family", lambda *_, **__: pytest.fail("it was looked for"))
    platform.end_family(child)


def test_a_loop_that_ends_before_its_child_has_begun_is_no_trouble_of_its_own():
    AsyncChild(None, SlotTable(1), Runner(Daybreak("memory://").program), 1).on_loop_stopped()
