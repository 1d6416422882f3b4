"""While a store cannot be reached, the worker retries, and no job runs twice because of it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time

import msgspec
import pytest
from worker_processes import read_lines, until
from worker_stores import meddled
from worker_tasks import anap, app, nap, noop

from daybreak import State, StoreUnavailable
from daybreak.core.errors import OutcomeUnknown, StoreFull

LOCK = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)  # the worker may be writing at this instant
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@pytest.fixture
def locked(stage):
    """Hold the write lock of the file from another process, as a stuck tool does; the returned function releases it."""
    path = str(stage.folder / "jobs.db")
    process = subprocess.Popen([sys.executable, "-c", LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"locked\n"

    def let_go():
        if process.poll() is None:
            process.communicate(timeout=10)

    yield let_go
    let_go()


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown, StoreFull], ids=lambda kind: kind.__name__)
def test_outcomes_are_reported_again_until_the_store_answers(stage, began, caplog, error):
    caplog.set_level(logging.WARNING)
    failing = False

    async def before(name, *_):
        if failing and name in {"exchange", "extend", "reap", "advance", "put"}:
            raise error("the store is away")

    async def after(name, answer):
        # The worst case: the store has done it, and the reply is lost.
        if failing_after and name == "exchange":
            raise error("the connection broke")

    failing_after = False
    with meddled(app, stage.folder / "jobs.db") as store:
        store.before, store.after = before, after
        with app.worker(processes=2, lease_for="1s"):
            jobs = [nap.submit(0.4), anap.submit(0.4), noop.submit(3)]
            for job in jobs[:2]:
                began(job)
            failing = True
            for job in jobs[:2]:
                began(job, word="ended")
            until(lambda: caplog.text.count("trying again in") >= 3, "it says that it tries again")
            failing, failing_after = False, True
            until(lambda: caplog.text.count("the connection broke") >= 2, "the answer was lost, too")
            failing_after = False
            for job in jobs:
                job.wait(timeout="30s")
        assert {job.state() for job in jobs} == {State.COMPLETED}
        for job in jobs[:2]:
            assert job.info().attempt == 1
            assert len(read_lines(job=job.id, word="began")) == 1


def test_leases_whose_reply_was_lost_are_not_lost(stage):
    """What a claim took before its line broke is taken up by the same worker, as the same attempt, long before the
    lease could run out."""
    broken = []

    async def after(name, answer):
        if name == "exchange" and answer.leases and len(broken) < 3:
            broken.extend(lease.job for lease in answer.leases)
            raise OutcomeUnknown("the connection broke")

    with meddled(app, stage.folder / "jobs.db") as store:
        store.after = after
        with app.worker(processes=2, lease_for="1h"):
            jobs = [noop.submit(n) for n in range(6)]
            for job in jobs:
                job.wait(timeout="20s")
        assert broken, "no answer was lost: the test shows nothing"
        assert {(job.state(), job.info().attempt) for job in jobs} == {(State.COMPLETED, 1)}


def test_jobs_claimed_by_a_delayed_request_go_back_uncharged(stage, caplog):
    """A claim was given up and asked again; then the first one reaches the store after all, and takes leases that no
    one knows of."""
    caplog.set_level(logging.WARNING)
    late, waits = [], False

    async def before(name, *request):
        if name == "exchange" and request[0].claim is not None:
            if not late:
                late.append(request[0])
                raise OutcomeUnknown("the connection broke")
            while waits:  # noqa: ASYNC110 - set from another thread
                await asyncio.sleep(0.01)

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        with app.worker(processes=1, lease_for="3s"):
            first = noop.submit(1)
            first.wait(timeout="30s")  # claimed by the repeated request
            waits = True
            jobs = [first, *noop.submit_many([{"n": n} for n in range(5)])]
            taken = app.portal.run(store.meddled_with.exchange(msgspec.structs.replace(late[0], settle=[])))
            waits = False
            for job in jobs:
                job.wait(timeout="30s")
        assert taken.leases, "the late claim found nothing: the test shows nothing"
        assert "claimed by a request whose reply was lost" in caplog.text
        assert {(job.state(), job.info().attempt) for job in jobs} == {(State.COMPLETED, 1)}


def test_a_worker_stopped_while_the_store_is_away_ends_and_logs_what_it_did_not_report(stage, began, caplog):
    caplog.set_level(logging.INFO)
    failing = False

    async def before(name, *_):
        if failing:
            raise StoreUnavailable("the store is away")

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        with app.worker(processes=1, lease_for="1s", grace="100ms"):
            job = nap.submit(0.2)
            began(job)
            failing = True
            began(job, word="ended")
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < 20
        assert "1 outcome is not reported; the job runs again once its lease expires" in caplog.text
        failing = False
    with app.worker(processes=1, lease_for="1s"):
        assert job.result(timeout="30s") == 0.2, "another worker runs it again"


def test_a_store_that_is_locked_for_longer_than_a_lease_costs_no_attempt(stage, began, request):
    with app.worker(processes=2, lease_for="1s"):
        jobs = [nap.submit(0.3), anap.submit(0.3)]
        for job in jobs:
            began(job)
        let_go = request.getfixturevalue("locked")
        locked_at = time.monotonic()
        until(lambda: time.monotonic() - locked_at > 4, "four leases have passed")
        let_go()
        for job in jobs:
            job.wait(timeout="30s")
            assert job.state() is State.COMPLETED
            assert job.info().attempt == 1
            assert len(read_lines(job=job.id, word="began")) == 1
        assert noop.submit(5).result(timeout="30s") == 5
