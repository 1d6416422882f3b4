"""What waiting for a job gives: its result, or an error that says what happened, where, and why."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import pytest

from daybreak import (
    Context,
    Daybreak,
    JobCancelled,
    JobFailed,
    Permanent,
    ResultTimeout,
    Secret,
    State,
    Suspend,
    context,
)
from daybreak.core.errors import DaybreakError
from daybreak.values import shown

LIMIT = "20s"


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    colour: Colour


@pytest.fixture
def working(app):
    def begin(**settings):
        return app.worker(processes=1, **settings)

    return begin


def test_results_come_back_as_their_annotations_say(app, working):
    @app.task
    def move(at: Point, by: float, when: datetime) -> tuple[Point, datetime]:
        return Point(at.x + by, at.colour), when

    now = datetime.now().astimezone()
    with working():
        assert move.submit(Point(1, Colour.RED), 2, now).result(LIMIT) == (Point(3, Colour.RED), now)
        # Who knows only the id knows the task by its name.
        job = move.submit(Point(1, Colour.RED), 2, now)
        assert app.job(job.id).result(LIMIT) == (Point(3, Colour.RED), now)


async def test_awaiting_a_handle_is_its_result(app):
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app.aworker():
        assert await (await double.asubmit(4)) == 8


def test_none_is_a_result(app, working):
    @app.task
    def nothing() -> None: ...

    with working():
        assert nothing.submit().result(LIMIT) is None


def test_a_failure_carries_reason_error_attempt_and_remote_traceback(app, working):
    @app.task(retry=1)
    def read(path: str) -> str:
        raise FileNotFoundError(path)

    with working(), pytest.raises(JobFailed) as failed:
        read.submit("x.csv").result(LIMIT)
    error = failed.value
    assert (error.reason, error.task, error.attempt) == ("error", "read", 1)
    assert error.error == "FileNotFoundError: x.csv"
    assert "in read\n    raise FileNotFoundError(path)" in error.traceback
    assert error.traceback.rstrip() in str(error)
    assert "daybreak/worker" not in error.traceback


def test_attempts_that_are_used_up_are_a_reason(app, working):
    @app.task(retry=1)
    def fail() -> None:
        raise ConnectionError("gone")

    with working(), pytest.raises(JobFailed, match="gone") as failed:
        fail.submit().result(LIMIT)
    assert failed.value.reason == "exhausted"


def test_permanent_is_said_by_the_task(app, working):
    @app.task(retry=5)
    def refuse() -> None:
        raise Permanent("never")

    with working(), pytest.raises(JobFailed, match="never") as failed:
        refuse.submit().result(LIMIT)
    assert (failed.value.reason, failed.value.attempt) == ("error", 1)


def test_waiting_ends_with_its_time_and_changes_nothing(app):
    @app.task
    def slow() -> None: ...

    job = slow.submit()
    with pytest.raises(ResultTimeout, match=r"is still queued after 0\.05 s"):
        job.result(timeout="50ms")
    with pytest.raises(TimeoutError):
        job.wait(timeout="50ms")
    assert job.state() is State.QUEUED


async def test_async_waiting_ends_with_its_time(app):
    @app.task
    def slow() -> None: ...

    job = await slow.asubmit()
    with pytest.raises(ResultTimeout):
        await job.aresult(timeout="50ms")
    with pytest.raises(ResultTimeout):
        await job.await_(timeout="50ms")


def test_a_bare_number_is_no_time(app):
    with pytest.raises(ValueError, match="write '5s'"):
        app.job("x").result(timeout=5)


def test_a_cancelled_job_has_no_result(app):
    @app.task
    def never() -> None: ...

    job = never.submit()
    job.cancel()
    with pytest.raises(JobCancelled, match="never"):
        job.result()
    assert job.wait().state is State.CANCELLED


def test_a_job_that_was_never_there_is_not_waited_for(app):
    with pytest.raises(LookupError, match="no job nothing"):
        app.job("nothing").result()


def test_wait_answers_however_it_ended(app, working):
    @app.task(retry=1)
    def fail() -> None:
        raise ValueError

    with working():
        assert fail.submit().wait(LIMIT).state is State.FAILED


def test_a_result_that_cannot_be_kept_fails_with_its_repr(app, working):
    class Odd:
        def __repr__(self) -> str:
            return "<odd one>"

    @app.task
    def odd():
        return Odd()

    with working(), pytest.raises(JobFailed, match="<odd one>"):
        odd.submit().result(LIMIT)


def test_the_context_is_reached_from_deeper_code(app, working):
    def deeper() -> tuple[str, int]:
        return context().task, context().attempt

    @app.task
    def outer(ctx: Context) -> tuple[str, int, bool]:
        return (*deeper(), ctx is context())

    with pytest.raises(DaybreakError, match="outside of a job"):
        context()
    with working():
        assert outer.submit().result(LIMIT) == ("outer", 1, True)


def test_progress_and_checkpoint_are_seen_from_outside(app, working, until):
    go_on = []

    @app.task
    def long(ctx: Context) -> str:
        ctx.progress(0.5, "half")
        ctx.checkpoint({"at": 1})
        while not go_on:
            pass
        return str(ctx.state)

    with working(lease_for="1s"):
        job = long.submit()
        until(lambda: job.info().progress == 0.5)
        assert job.info().message == "half"
        go_on.append(True)
        assert job.result(LIMIT) == "{'at': 1}"


def test_a_task_can_hold_itself_until_someone_resumes_it(app, working, until):
    tries = itertools.count()

    @app.task
    def ask() -> str:
        if next(tries) == 0:
            raise Suspend("whom?")
        return "done"

    with working():
        job = ask.submit()
        until(lambda: job.state() is State.SUSPENDED)
        assert (job.info().note, job.info().attempt) == ("whom?", 0)
        job.resume()
        assert job.result(LIMIT) == "done"


def test_cancelling_a_running_job_is_a_request_and_it_ends_cancelled(app, until):
    began = []

    @app.task
    async def forever() -> None:
        began.append(True)
        await asyncio.Event().wait()

    with app.worker():
        job = forever.submit()
        until(lambda: began)
        assert job.cancel().verdict == "requested"
        with pytest.raises(JobCancelled):
            job.result(LIMIT)


def test_a_secret_shows_nowhere_and_reaches_the_task(app, working, caplog):
    seen = []

    @app.task(retry=1)
    def login(password: Secret[str], user: str) -> Secret[str]:
        seen.append(password.reveal())
        if user == "eve":
            raise ValueError(f"no {password} for {user}")
        return password

    caplog.set_level(logging.DEBUG)
    with working():
        job = login.submit("hunter2", "ann")
        assert job.result(LIMIT) == Secret("hunter2")
        failed = login.submit(Secret("hunter2"), user="eve")
        with pytest.raises(JobFailed, match=r"no \*\*\* for eve") as error:
            failed.result(LIMIT)
    assert seen == ["hunter2", "hunter2"]
    info = job.info()
    assert shown(info.spec.args) == {"password": "***", "user": "ann"}
    assert (repr(info.result), info.args) == ("***", {"password": Secret("hunter2"), "user": "ann"})
    told = (str(error.value), repr(job.result()), caplog.text, repr(job.history()), repr(info), repr(failed.info()))
    assert not any("hunter2" in text for text in told)


def test_results_are_there_after_the_app_was_closed(tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app:
        job = add.submit(1, 2)
        app.work(isolation="thread", processes=1)
    with app:
        assert app.job(job.id).result(timeout="1s") == 3
