"""A step that detaches is a running job like any other: the saga goes on when it is finished, and undoes what came
before when it fails, is cancelled or exceeds its deadline; its slot is held until then."""

from __future__ import annotations

import time

import pytest

from daybreak import Context, Daybreak, Resource, Saga

PODS = Resource("pods", slots=1)


def until(is_so):
    deadline = time.monotonic() + 60
    while not (found := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.fixture
def running(tmp_path):
    """An app with a worker, and a saga whose second step detaches for as long as its context says."""
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")
    seen: list[str] = []

    @app.task
    def allocate(context: dict) -> dict:
        return {"slot": 3}

    @app.task
    def release(context: dict) -> None:
        seen.append(f"released {context['slot']}")

    @app.task(retry=1, resource=PODS)
    def create_pod(ctx: Context, context: dict) -> dict:
        return ctx.detach(context["for"])

    @app.task
    def announce(context: dict) -> None:
        seen.append(f"announced {context['pod']}")

    saga = Saga("execute").step(allocate, undo=release).step(create_pod).step(announce)

    def detached(deadline: str):
        """A saga whose second step is detached now, and the job of that step."""
        run = saga.start({"for": deadline})
        job = app.job(until(lambda: run.info().steps[1].job))
        until(lambda: job.info().detached or run.state != "forward")
        return run, job

    with app, app.worker(isolation="thread", lease_for="2s"):
        yield app, detached, seen


def held(app) -> int:
    return app.resource("pods").info().used


def test_a_finished_step_lets_the_saga_go_on(running):
    app, detached, seen = running
    run, job = detached("1h")
    assert (run.state, held(app)) == ("forward", 1)
    app.finish(job.id, {"pod": "p-3"}, fence=job.info().fence)
    assert run.result("60s") == {"for": "1h", "slot": 3, "pod": "p-3"}
    assert (seen, held(app)) == (["announced p-3"], 0)


@pytest.mark.parametrize(
    ("how", "error"),
    [("fails", "create_pod: "), ("cancelled", "cancelled"), ("cancelled by its job", "create_pod: cancelled"),
     ("deadline", "create_pod: timeout")],
)  # fmt: skip
def test_a_detached_step_that_does_not_complete_is_compensated(running, how, error):
    app, detached, seen = running
    run, job = detached("500ms" if how == "deadline" else "1h")
    if how == "fails":
        app.finish(job.id, error="evicted", fence=job.info().fence)
    elif how == "cancelled":
        run.cancel()
    elif how == "cancelled by its job":
        job.cancel()
    found = run.wait("60s")
    assert found.state == "compensated"
    assert found.error.startswith(error), found.error
    assert (seen, held(app)) == (["released 3"], 0)
