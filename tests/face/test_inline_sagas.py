"""Sagas in inline mode: their steps run at once, and a wait that would never end is an error."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from daybreak import Context, Daybreak, Saga
from daybreak.core.errors import Refused, SagaTimeout
from daybreak.testing import HandClock, inline

UNDONE: list[str] = []


@pytest.fixture
def app():
    UNDONE.clear()
    with Daybreak("memory://", by="ann") as app:
        yield app


@pytest.fixture
def run(app):
    with inline(app, clock=HandClock(datetime(2026, 5, 1, tzinfo=UTC))) as run:
        yield run


@pytest.fixture
def allocate(app):
    @app.task
    def allocate(context: dict) -> dict:
        return {"slot": 3}

    return allocate


@pytest.fixture
def release(app):
    @app.task
    def release(context: dict) -> None:
        UNDONE.append(f"slot {context['slot']}")

    return release


@pytest.fixture
def broken(app):
    @app.task(retry=1)
    def broken(context: dict) -> None:
        raise ValueError("no pod")

    return broken


def test_the_steps_of_a_saga_run_one_after_the_other(run, allocate, release):
    saga = Saga("s").step(allocate, undo=release).step(release.using(queue="other"))
    assert saga.start({"user": "ann"}).result() == {"user": "ann", "slot": 3}
    assert UNDONE == ["slot 3"]


def test_the_completed_steps_of_a_saga_that_fails_are_undone(run, allocate, release, broken):
    started = Saga("s").step(allocate, undo=release).step(broken).start()
    assert started.wait().state == "compensated"
    assert UNDONE == ["slot 3"]


def test_an_undo_that_fails_is_tried_again_when_the_clock_moves(run, allocate, broken):
    started = Saga("s", undo_tries=2).step(allocate.using(queue="other"), undo=broken).step(broken, name="last").start()
    assert started.state == "compensating"
    with pytest.raises(Refused, match=r"is compensating: in inline mode this wait would never end: .*run\.advance"):
        started.wait()
    with pytest.raises(SagaTimeout):
        started.wait("1h")
    run.advance("10s")
    assert started.wait().state == "stuck"


def test_a_saga_waits_for_work_that_goes_on_elsewhere(run, app, allocate, release):
    @app.task(retry=1)
    def pod(ctx: Context, context: dict) -> dict:
        return ctx.detach("1h")

    saga = Saga("s").step(allocate, undo=release).step(pod)
    started = saga.start()
    app.finish(started.info().current.job, {"pod": "p"}, fence=1)
    assert started.result() == {"slot": 3, "pod": "p"}
    late = saga.start()
    run.advance("2h")
    assert (late.wait().state, UNDONE) == ("compensated", ["slot 3"])


async def test_a_saga_that_async_code_starts_runs_in_its_loop(app, allocate):
    async with inline(app):
        started = await Saga("s").step(allocate).astart()
        assert await started.aresult() == {"slot": 3}
