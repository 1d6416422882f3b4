"""Tasks that cannot be imported again run in threads: the same promises, except that a thread cannot be killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

import pytest
from worker_processes import until

from daybreak import Context, Daybreak, JobFailed, State
from daybreak.core.errors import NotImportable


@pytest.fixture
def here(stage):
    """An app as in a notebook cell: its tasks are in no file that could be imported."""
    app = Daybreak(stage.url)
    yield app
    app.close()


def test_nested_tasks_run_in_threads_and_the_log_says_why(here, caplog):
    @here.task
    def where() -> int:
        return os.getpid()

    @here.task
    async def awhere() -> int:
        return os.getpid()

    with here.worker(processes=2):
        assert where.submit().result(timeout="20s") == os.getpid()
        assert awhere.submit().result(timeout="20s") == os.getpid()
    assert "they run in threads of this process, so a time limit cannot stop them" in caplog.text


def test_a_nested_task_cannot_run_in_a_process(here):
    @here.task
    def where() -> int:
        return os.getpid()

    with pytest.raises(NotImportable, match="inside a function"), here.worker(isolation="process"):
        pytest.fail("it started")


def test_a_thread_over_its_limit_occupies_its_slot_and_that_is_logged(here, caplog):
    gate = []

    @here.task(timeout="300ms", retry=1)
    def stuck() -> None:
        while not gate:
            time.sleep(0.01)

    @here.task
    def quick() -> str:
        return "done"

    with here.worker(processes=2, isolation="thread", grace="100ms"):
        job = stuck.submit()
        with pytest.raises(JobFailed, match="timeout"):
            job.result(timeout="20s")
        assert "runs in a thread, which cannot be killed: its slot stays occupied until it returns" in caplog.text
        assert quick.submit().result(timeout="20s") == "done", "the other slot works on"
        gate.append(True)
        assert [quick.submit().result(timeout="20s") for _ in range(4)] == ["done"] * 4


def test_a_slot_comes_back_when_its_thread_returns(here, caplog):
    gate = []

    @here.task(timeout="300ms", retry=1)
    def stuck() -> None:
        while not gate:
            time.sleep(0.01)

    @here.task
    def quick() -> str:
        return "done"

    with here.worker(processes=1, isolation="thread", grace="100ms"):
        job = stuck.submit()
        with pytest.raises(JobFailed, match="timeout"):
            job.result(timeout="20s")
        waiting = quick.submit()
        watched_until = time.monotonic() + 0.7
        until(lambda: time.monotonic() > watched_until, "it had time to")
        assert waiting.state() is State.QUEUED, "its only slot is lost"
        gate.append(True)
        assert waiting.result(timeout="20s") == "done"


def test_checkpoints_progress_and_retries_work_in_threads(here):
    @here.task(retry=3)
    def count(ctx: Context) -> list[int]:
        ctx.progress(0.5, "half")
        so_far = ctx.state or []
        ctx.checkpoint([*so_far, ctx.attempt])
        if ctx.attempt < 2:
            raise ConnectionError("again")
        return ctx.state

    with here.worker(processes=1):
        assert count.submit().result(timeout="20s") == [1, 2]


def test_a_memory_store_works_within_one_process(caplog):
    caplog.set_level(logging.INFO)
    app = Daybreak("memory://")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    try:
        with app.worker(processes=2):
            assert double.map(range(50), timeout="20s") == [2 * n for n in range(50)]
    finally:
        app.close()


def test_an_async_task_that_ignores_its_cancel_occupies_one_slot_and_no_more(here):
    gate = []

    @here.task(timeout="300ms", retry=1)
    async def stuck() -> None:
        while not gate:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @here.task
    async def quick() -> str:
        return "done"

    with here.worker(isolation="thread", grace="100ms"):
        with pytest.raises(JobFailed, match="ran longer than its limit"):
            stuck.submit().result(timeout="20s")
        assert quick.submit().result(timeout="20s") == "done"
        gate.append(1)
