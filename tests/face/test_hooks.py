"""Hooks that are called at once: in this process, in a thread of their own, harming nothing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from datetime import timedelta

import pytest

from daybreak import BadInput, Context, Daybreak, Event, LeaseLost, Permanent, State, Suspend
from daybreak.api.hooks import Hooks
from daybreak.api.hooks.registry import IMMEDIATE_KINDS
from daybreak.core.errors import WrongState
from daybreak.core.model import Done, JobSpec, Lease
from daybreak.policy.settle import settle
from daybreak.system.ports import RealWorld
from daybreak.testing import inline
from daybreak.testing.clock import NOON
from daybreak.worker.supervisor.lease_source import Settled

LIMIT = "20s"


@pytest.fixture
def told(app):
    """Every event that was told, in order."""
    events: list[Event] = []
    app.on("*")(events.append)
    return events


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_the_life_of_a_job_is_told_in_order(app, told):
    tries = itertools.count(1)

    @app.task(retry=2)
    def flaky() -> int:
        if next(tries) == 1:
            raise ConnectionError("gone")
        return 1

    # Submitted before anyone works: in one process, a worker may be quicker than the thread that submits.
    job = flaky.submit()
    with app.worker(processes=1):
        assert job.result(LIMIT) == 1
    assert app.hooks.flush()
    assert kinds(told) == ["submitted", "started", "retrying", "started", "completed"]
    assert {(event.job, event.task, event.queue) for event in told} == {(job.id, "flaky", "default")}
    assert (told[0].n, told[0].by, told[0].state) == (1, "ann", State.QUEUED)
    assert (told[2].error, told[2].state) == ("ConnectionError: gone", State.SCHEDULED)
    assert told[2].run_at > told[2].at
    assert (told[3].attempt, told[3].fence, told[3].state) == (2, 2, State.RUNNING)
    assert told[4].by.startswith("worker-")


def test_every_way_an_attempt_ends_is_told(app, told, until):
    @app.task(retry=1)
    def fail() -> None:
        raise Permanent("no")

    @app.task
    def hold() -> None:
        raise Suspend("wait")

    @app.task
    async def forever() -> None:
        await asyncio.Event().wait()

    with app.worker(processes=1, grace="0s"):
        fail.submit().wait(LIMIT)
        held = hold.submit()
        until(lambda: held.state() is State.SUSPENDED)
        running = forever.submit()
        until(lambda: running.state() is State.RUNNING)
        running.cancel()
        running.wait(LIMIT)
        left = forever.submit()
        until(lambda: left.state() is State.RUNNING)
    app.hooks.flush()
    ends = [(event.kind, event.task) for event in told if event.kind not in ("submitted", "started")]
    assert ends == [("failed", "fail"), ("suspended", "hold"), ("cancelled", "forever"), ("released", "forever")]
    assert [event.reason for event in told if event.kind == "failed"] == ["error"]
    by_hand = {"resumed", "reprioritised", "retried", "removed"}
    assert set(kinds(told)) == IMMEDIATE_KINDS - {"completed", "retrying", "progress"} - by_hand


def test_what_this_process_changes_by_hand_is_told_at_once(app, told):
    @app.task
    def idle() -> None: ...

    job = idle.using(queue="q").submit()
    job.reprioritise("high")
    job.suspend("later")
    job.resume()
    job.cancel("no")
    job.retry()
    job.remove()  # refused: it is queued
    job.cancel()
    job.remove()
    app.hooks.flush()
    assert kinds(told) == [
        "submitted", "reprioritised", "suspended", "resumed", "cancelled", "retried", "cancelled", "removed"
    ]  # fmt: skip
    assert {(event.job, event.task, event.queue) for event in told} == {(job.id, "idle", "q")}
    assert [event.priority for event in told if event.kind == "reprioritised"] == [2]
    assert [event.note for event in told if event.kind == "suspended"] == ["later"]
    assert [event.state for event in told if event.kind == "cancelled"] == [State.CANCELLED] * 2


def test_progress_is_told_at_once_by_the_worker_that_runs_the_job(app, told, until):
    may_end = threading.Event()

    @app.task
    def sweep(ctx: Context) -> None:
        ctx.progress(0.675, "27 of 40")
        may_end.wait(20)

    job = sweep.submit()
    with app.worker(processes=1):
        heard = until(lambda: [event for event in told if event.kind == "progress"])
        assert job.state() is State.RUNNING
        may_end.set()
        job.wait(LIMIT)
    [event] = heard
    assert (event.progress, event.note, event.job, event.task, event.queue) == (
        0.675, "27 of 40", job.id, "sweep", "default",
    )  # fmt: skip
    assert event.by.startswith("worker-")


def test_progress_of_an_item_in_hand_is_stored_and_told(app, told):
    queue = app.queue("sims")
    item = queue.add("a")
    [lease] = queue.take()
    lease.progress(0.25, "loading")
    assert (app.job(item.id).info().progress, app.job(item.id).info().message) == (0.25, "loading")
    for wrong in (67.5, -0.1, True, float("nan"), "1"):
        with pytest.raises(BadInput, match="progress"):
            lease.progress(wrong)
    lease.complete()
    with pytest.raises(WrongState):
        lease.progress(0.5)
    app.hooks.flush()
    assert [(event.kind, event.progress) for event in told] == [
        ("submitted", None), ("started", None), ("progress", 0.25), ("completed", None),
    ]  # fmt: skip


def test_progress_of_a_lost_lease_is_told_to_nobody(app, told):
    queue = app.queue("sims")
    queue.add("a")
    [lease] = queue.take()
    lease.release()
    [again] = queue.take()
    lease._ended = None  # as a holder that has not heard of it yet
    with pytest.raises(LeaseLost):
        lease.progress(0.5)
    again.complete()
    app.hooks.flush()
    assert "progress" not in kinds(told)


def test_inline_progress_is_told_too(app, told):
    @app.task
    def sweep(ctx: Context) -> None:
        ctx.progress(0.5)

    with inline(app):
        sweep.submit()
    assert [event.progress for event in told if event.kind == "progress"] == [0.5]


def test_a_hook_hears_only_of_what_it_asked_for(app):
    one, two = [], []
    app.on("submitted")(one.append)
    app.on("completed", "failed")(two.append)

    @app.task
    def nothing() -> None: ...

    with app.worker(processes=1):
        nothing.submit().result(LIMIT)
    app.hooks.flush()
    assert (kinds(one), kinds(two)) == (["submitted"], ["completed"])


def test_a_function_under_two_decorators_hears_of_both_once_each(app):
    heard = []

    @app.on("cancelled", "failed")
    @app.on("submitted", "failed")
    def hook(event: Event) -> None:
        heard.append(event.kind)

    app.queue("q").add(1)
    app.hooks.flush()
    assert heard == ["submitted"]


def test_an_outcome_that_was_refused_is_not_told(app, told):
    lease = Lease(
        seq=1, spec=JobSpec(id="j", task="t"), fence=1, attempt=1, priority=5, worker="w", until=NOON,
        lease_for=timedelta(seconds=1), started_at=NOON, created_at=NOON,
    )  # fmt: skip
    settlement = settle(lease, Done(), chance=0.5, by="w")
    app.hooks.settled(Settled(lease, settlement, accepted=False))
    app.hooks.settled(Settled(lease, settlement, accepted=True))
    app.hooks.flush()
    assert kinds(told) == ["completed"]


def test_a_delayed_job_is_told_as_scheduled(app, told):
    @app.task
    def later() -> None: ...

    later.using(delay="1h").submit()
    app.hooks.flush()
    assert (told[0].state, told[0].run_at > told[0].at) == (State.SCHEDULED, True)


def test_a_job_that_was_there_before_is_not_told_again(app, told):
    @app.task
    def nothing() -> None: ...

    for _ in range(2):
        nothing.using(key="k").submit()
        app.queue("q").add(1, id="one")
    app.hooks.flush()
    assert kinds(told) == ["submitted", "submitted"]


def test_many_are_told_in_the_order_of_their_rows(app, told):
    @app.task
    def nothing(n: int) -> None: ...

    jobs = nothing.submit_many([{"n": n} for n in range(30)])
    app.hooks.flush()
    assert [event.job for event in told] == [job.id for job in jobs]


def test_a_hook_that_raises_is_logged_and_harms_nothing(app, told, caplog):
    @app.on("submitted")
    def broken(event: Event) -> None:
        raise SystemExit(f"no {event.kind}")

    @app.on("submitted")
    async def broken_too(event: Event) -> None:
        raise RuntimeError("worse")

    app.on("submitted")(after := [].append)

    @app.task
    def nothing() -> None: ...

    job = nothing.submit()
    with app.worker(processes=1):
        job.result(LIMIT)
    app.hooks.flush()
    assert kinds(told) == ["submitted", "started", "completed"]
    assert len(after.__self__) == 1
    errors = [record for record in caplog.records if record.name == "daybreak.hooks"]
    assert [record.exc_info[0] for record in errors] == [SystemExit, RuntimeError]
    assert "hook broken failed for event submitted of job" in errors[0].getMessage()


def test_an_async_hook_has_a_loop_of_its_own(app):
    heard = []

    @app.on("submitted")
    async def hook(event: Event) -> None:
        await asyncio.sleep(0)
        heard.append((threading.current_thread().name, asyncio.get_running_loop()))

    app.queue("q").add(1)
    app.queue("q").add(2)
    app.hooks.flush()
    assert [name for name, _ in heard] == ["daybreak-hooks"] * 2
    assert heard[0][1] is heard[1][1]


def test_nothing_waits_for_a_hook_and_what_is_too_much_is_dropped_and_said_once(caplog):
    hooks = Hooks(RealWorld(), max_waiting=3)
    go_on, heard = threading.Event(), []

    @hooks.on("submitted")
    def slow(event: Event) -> None:
        go_on.wait(20)
        heard.append(event.job)

    began = threading.Event()
    hooks.on("submitted", name="first")(lambda _: began.set())
    hooks._hooks.reverse()
    for n in range(20):
        hooks.submitted(JobSpec(id=str(n), task="t"), str(n))
        assert began.wait(20)
    go_on.set()
    assert hooks.flush()
    assert heard == sorted(heard, key=int)
    assert hooks.dropped >= 30
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    hooks.close()


def test_a_hook_may_submit(app, until):
    @app.task
    def first() -> None: ...

    @app.task
    def second() -> None: ...

    @app.on("completed")
    def follow(event: Event) -> None:
        if event.task == "first":
            second.submit()

    with app.worker(processes=1):
        first.submit().result(LIMIT)
        until(lambda: app.queue("default").stats().by_state["completed"] == 2)


def test_a_hook_defined_again_takes_the_place_of_the_first(app):
    heard = []
    code = "@app.on('submitted')\ndef hook(event):\n    heard.append(version)"
    for version in (1, 2):
        exec(code, {"app": app, "heard": heard, "version": version, "__name__": "notebook"})  # noqa: S102
    app.queue("q").add(1)
    app.hooks.flush()
    assert heard == [2]


@pytest.mark.parametrize(
    ("words", "durable", "told"),
    [
        (("complted",), False, "did you mean 'completed'"),
        (("nonsense",), True, "the events are submitted"),
        ((), False, "needs the kinds of events"),
        ((lambda event: None,), False, "needs the kinds of events"),
        (("expired",), False, "durable=True"),
        (("folded",), True, "no event named 'folded'"),
    ],
)
def test_a_kind_that_is_never_told_is_refused(app, words, durable, told):
    with pytest.raises(BadInput, match=told):
        app.on(*words, durable=durable)(print)


def test_two_durable_hooks_of_one_name_are_refused(app):
    app.on("completed", durable=True, name="mail")(lambda _: None)
    with pytest.raises(BadInput, match="two durable hooks are named 'mail'"):
        app.on("failed", durable=True, name="mail")(lambda _: None)


def test_a_forked_child_tells_its_own_and_not_the_parent_s(script):
    printed = script(
        """
        import os, sys, time
        from daybreak import Daybreak

        app = Daybreak()

        @app.on("submitted")
        def told(event):
            if event.queue == "slow":
                time.sleep(0.5)
            print(os.getpid() == parent, event.queue, flush=True)

        parent = os.getpid()
        app.queue("slow").add(1)
        app.queue("behind").add(1)
        if (pid := os.fork()) == 0:
            app.queue("child").add(1)
            sys.exit(0)
        os.waitpid(pid, 0)
        app.close()
        """
    ).printed()
    assert sorted(printed.splitlines()) == ["False child", "True behind", "True slow"]


def test_closing_tells_what_is_left(tmp_path):
    heard = []
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.on("submitted")
    def slow(event: Event) -> None:
        time.sleep(0.02)
        heard.append(app.queue("q").get(event.job).data)

    for n in range(5):
        app.queue("q").add(n)
    app.close()
    assert heard == [0, 1, 2, 3, 4]


async def test_async_closing_tells_what_is_left(tmp_path):
    heard = []
    async with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.on("submitted")
        async def slow(event: Event) -> None:
            await asyncio.sleep(0.05)
            heard.append(event)

        await app.queue("q").aadd(1)
    assert kinds(heard) == ["submitted"]
    app.close()
