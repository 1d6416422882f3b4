"""Work that goes on elsewhere: `ctx.detach`, `app.finish` and `app.extend`, in inline mode and by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest

from daybreak import (
    AttemptOver,
    Breaker,
    Context,
    Daybreak,
    JobCancelled,
    JobFailed,
    LeaseLost,
    Permanent,
    Resource,
    Retry,
    State,
)
from daybreak.core.errors import BadArguments, BadInput, DaybreakError, JobNotFound, WrongState
from daybreak.core.model import Done, JobSpec
from daybreak.store.protocol import Beat, Claim, Exchange
from daybreak.testing import HandClock, inline

ONCE = Retry(attempts=1)
SOON = Retry(strategy="fixed", attempts=2, delay=timedelta(seconds=1))
START = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass
class Report:
    day: date
    pages: int


@pytest.fixture
def app(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db", by="ann") as app:
        yield app


@pytest.fixture
def run(app):
    with inline(app, clock=HandClock(START)) as run:
        yield run


class Pods:
    """What runs elsewhere: the fences it was given, by job."""

    def __init__(self) -> None:
        self.fences: dict[str, list[int]] = {}

    def start(self, ctx: Context) -> int:
        self.fences.setdefault(ctx.job, []).append(ctx.fence)
        return ctx.fence

    def fence(self, job: object, attempt: int = 1) -> int:
        return self.fences[job.id][attempt - 1]  # type: ignore[attr-defined]


@pytest.fixture
def pods():
    return Pods()


@pytest.fixture
def pod(app, pods):
    @app.task(retry=SOON)
    def pod(ctx: Context, name: str = "") -> Report:
        pods.start(ctx)
        return ctx.detach(deadline="24h")

    return pod


# -- detach ------------------------------------------------------------------------------------------------------------


def test_a_detached_job_is_running_without_a_worker(run, pod, pods):
    job = pod.submit()
    info = job.info()
    assert (info.state, info.detached, info.attempt) == (State.RUNNING, True, 1)
    assert info.leased_until == START + timedelta(hours=24)
    assert pods.fence(job) == info.fence
    assert [event.kind for event in job.history()] == ["submitted", "started", "detached"]


def test_an_async_task_can_detach(run, app):
    @app.task
    async def pod(ctx: Context) -> int:
        await asyncio.sleep(0)
        return ctx.detach(deadline=timedelta(hours=1))

    job = pod.submit()
    assert job.info().detached
    app.finish(job, 7, fence=job.info().fence)
    assert job.result() == 7


def test_a_task_that_detaches_must_return_nothing(run, app):
    @app.task(retry=3)
    def pod(ctx: Context) -> int:
        ctx.detach("1h")
        return 42

    job = pod.submit()
    with pytest.raises(JobFailed, match=r"called ctx\.detach\(\) and returned a result: 42"):
        job.result()
    assert job.info().attempt == 1  # running it again would start the work once more


def test_an_error_after_detach_is_a_failure_of_the_attempt(run, app):
    @app.task(retry=ONCE)
    def pod(ctx: Context) -> None:
        ctx.detach("1h")
        raise ConnectionError("the cluster is away")

    job = pod.submit()
    assert (job.info().state, job.info().detached) == (State.FAILED, False)


@pytest.mark.parametrize("deadline", ["0s", "-1h", "soon", None, timedelta()])
def test_a_deadline_that_makes_no_sense_is_refused(run, app, deadline):
    @app.task(retry=ONCE)
    def pod(ctx: Context) -> None:
        ctx.detach(deadline)

    with pytest.raises(JobFailed, match="deadline"):
        pod.submit().result()


def test_nothing_is_reported_after_detach(run, app):
    refused = []

    @app.task
    def pod(ctx: Context) -> None:
        ctx.checkpoint({"pod": "p1"})
        ctx.progress(0.1, "created")
        ctx.detach("1h")
        for report in (
            lambda: ctx.progress(0.5), lambda: ctx.checkpoint(1), lambda: ctx.step("a", int),
        ):  # fmt: skip
            with pytest.raises(DaybreakError, match=r"after ctx\.detach\(\)"):
                report()
            refused.append(report)

    job = pod.submit()
    assert len(refused) == 3
    assert (job.info().progress, job.info().message, job.info().detached) == (0.1, "created", True)


def test_a_task_that_is_called_as_a_function_detaches_nothing(app):
    @app.task
    def pod(ctx: Context) -> None:
        return ctx.detach("1h")

    assert pod() is None


# -- finish ------------------------------------------------------------------------------------------------------------


def test_a_result_has_the_type_that_the_task_returns(run, app, pod, pods):
    job = pod.submit()
    done = app.finish(job, Report(date(2026, 5, 2), 3), fence=pods.fence(job))
    assert (done.state, done.attempt, done.repeated) == (State.COMPLETED, 1, False)
    assert job.result() == Report(date(2026, 5, 2), 3)


def test_a_result_may_be_in_its_plain_form(run, app, pod, pods):
    job = pod.submit()
    app.finish(job.id, {"day": "2026-05-02", "pages": 3}, fence=pods.fence(job))
    assert job.result() == Report(date(2026, 5, 2), 3)


def test_a_result_of_another_type_is_refused_and_the_job_goes_on(run, app, pod, pods):
    job = pod.submit()
    with pytest.raises(BadArguments, match="result"):
        app.finish(job, "all well", fence=pods.fence(job))
    assert job.info().detached


def test_a_large_result_is_stored_as_a_content(run, app):
    @app.task
    def pod(ctx: Context) -> str:
        return ctx.detach("1h")

    job = pod.submit()
    app.finish(job, "x" * 200_000, fence=1)
    [stored] = asyncio.run(run.store.get([job.id]))
    assert len(stored.result) < 1000
    assert job.result() == "x" * 200_000


def test_the_same_outcome_again_answers_as_the_first_time(run, app, pod, pods):
    job = pod.submit()
    result = Report(date(2026, 5, 2), 3)
    first = app.finish(job, result, fence=pods.fence(job))
    again = app.finish(job, result, fence=pods.fence(job))
    assert (again.state, again.attempt, again.fence) == (first.state, first.attempt, first.fence)
    assert (first.repeated, again.repeated) == (False, True)
    assert [event.kind for event in job.history()] == ["submitted", "started", "detached", "completed"]


def test_another_outcome_of_an_attempt_that_is_over_is_refused(run, app, pod, pods):
    job = pod.submit()
    app.finish(job, Report(date(2026, 5, 2), 3), fence=pods.fence(job))
    for late in ({"result": Report(date(2026, 5, 2), 4)}, {"error": "no"}, {"cancelled": True}, {"timed_out": True}):
        with pytest.raises(AttemptOver, match=r"it completed at .*nothing was written"):
            app.finish(job, **late, fence=pods.fence(job))
    assert job.result().pages == 3


def test_a_fence_that_no_attempt_has_had_is_refused_as_that(run, app, pod):
    job = pod.submit()
    told = "no attempt has had fence 2: the job runs with fence 1 now, as attempt 1; nothing was written$"
    with pytest.raises(AttemptOver, match=told):
        app.finish(job, cancelled=True, fence=2)
    with pytest.raises(AttemptOver, match=told):
        app.extend(job, "1h", fence=2)
    assert job.info().detached


def test_an_error_is_retried_by_policy_and_the_older_attempt_is_refused(run, app, pod, pods):
    job = pod.submit()
    failed = app.finish(job, error="the pod was evicted", fence=pods.fence(job))
    assert failed.state is State.SCHEDULED
    run.advance("2s")
    info = job.info()
    assert (info.attempt, info.detached, info.error.message) == (2, True, "the pod was evicted")
    with pytest.raises(LeaseLost, match="fence 1 is over: it failed, and is retried"):
        app.finish(job, Report(date(2026, 5, 2), 1), fence=pods.fence(job))
    # The message about the first attempt that comes a second time is still no other outcome.
    assert app.finish(job, error="the pod was evicted", fence=pods.fence(job)).repeated
    app.finish(job, Report(date(2026, 5, 2), 2), fence=pods.fence(job, attempt=2))
    assert job.result().pages == 2


def test_a_permanent_error_is_not_retried(run, app, pod, pods):
    first, second = pod.submit(), pod.submit()
    app.finish(first, error="no such image", permanent=True, fence=pods.fence(first))
    app.finish(second, error=Permanent("no such image"), fence=pods.fence(second))
    for job in (first, second):
        assert (job.info().state, job.info().attempt) == (State.FAILED, 1)
        with pytest.raises(JobFailed, match="no such image"):
            job.result()


def test_work_that_was_cancelled_or_took_too_long_elsewhere(run, app, pod, pods):
    gone, slow = pod.submit(), pod.submit()
    assert app.finish(gone, cancelled=True, fence=pods.fence(gone)).state is State.CANCELLED
    with pytest.raises(JobCancelled):
        gone.result()
    assert app.finish(slow, timed_out=True, note="60 s of CPU", fence=pods.fence(slow)).state is State.SCHEDULED
    assert app.finish(slow, timed_out=True, note="60 s of CPU", fence=pods.fence(slow)).repeated
    assert (slow.info().timeouts, slow.info().lost) == (1, 0)
    assert "60 s of CPU" in str(slow.info().error)


@pytest.mark.parametrize("ways", [
    {"error": "no", "cancelled": True}, {"result": 1, "error": "no"}, {"result": 1, "timed_out": True},
    {"permanent": True}, {"fence": 0}, {"fence": "1"}, {"fence": True},
])  # fmt: skip
def test_an_attempt_ends_in_one_way(run, app, pod, ways):
    job = pod.submit()
    with pytest.raises(BadInput):
        app.finish(job, **{"fence": 1, **ways})
    assert job.info().detached


def test_without_a_fence_only_a_detached_attempt_is_ended(run, app, pod):
    later = pod.using(delay="1h").submit()
    with pytest.raises(WrongState, match="not detached"):
        app.finish(later, {"day": "2026-05-02", "pages": 3})
    job = pod.submit()
    app.finish(job, {"day": "2026-05-02", "pages": 3})
    assert job.result().pages == 3


def test_what_is_no_job_of_a_task_is_refused(run, app):
    with pytest.raises(JobNotFound):
        app.finish("nobody", fence=1)
    with pytest.raises(BadInput, match="is no job"):
        app.finish(7, fence=1)


def test_hooks_of_the_process_that_finishes_hear_of_it(run, app, pod, pods):
    heard = []
    app.on("completed", "retrying")(lambda event: heard.append((event.kind, event.job, event.task)))
    job = pod.submit()
    app.finish(job, error="evicted", fence=pods.fence(job))
    app.finish(job, error="evicted", fence=pods.fence(job))
    run.advance("2s")
    app.finish(job, Report(date(2026, 5, 2), 2), fence=pods.fence(job, attempt=2))
    assert heard == [("retrying", job.id, "pod"), ("completed", job.id, "pod")]


# -- time and people ---------------------------------------------------------------------------------------------------


def test_past_the_deadline_the_attempt_has_timed_out(run, app, pod, pods):
    job = pod.submit()
    run.advance("23h")
    assert job.info().detached
    run.advance("2h")
    info = job.info()
    assert (info.attempt, info.lost, info.timeouts, info.detached) == (2, 0, 1, True)
    assert "deadline" in info.error.message
    with pytest.raises(AttemptOver):
        app.finish(job, Report(date(2026, 5, 2), 1), fence=pods.fence(job))
    run.advance("25h")
    assert (job.info().state, job.info().reason) == (State.FAILED, "timeout")


def test_a_deadline_can_be_moved(run, app, pod, pods):
    job = pod.submit()
    run.advance("20h")
    info = app.extend(job, "24h", fence=pods.fence(job))
    assert (info.detached, info.leased_until) == (True, START + timedelta(hours=44))
    run.advance("23h")
    assert job.info().detached
    event = job.history()[-1]
    assert (event.kind, event.by, event.deadline) == ("detached", "ann", START + timedelta(hours=44))
    app.finish(job, {"day": "2026-05-02", "pages": 3}, fence=pods.fence(job))
    with pytest.raises(AttemptOver, match="it completed"):
        app.extend(job, "1h", fence=pods.fence(job))
    with pytest.raises(BadInput):
        app.extend(job, "0s")


def test_cancel_ends_a_detached_job_at_once_and_what_comes_later_is_refused(run, app, pod, pods):
    job = pod.submit()
    job.cancel()
    assert job.info().state is State.CANCELLED
    with pytest.raises(AttemptOver, match="it was cancelled"):
        app.finish(job, Report(date(2026, 5, 2), 1), fence=pods.fence(job))
    assert app.finish(job, cancelled=True, fence=pods.fence(job)).repeated


def test_a_released_detached_job_runs_again_and_the_first_attempt_is_refused(run, app, pod, pods):
    job = pod.submit()
    job.release()
    assert len(pods.fences[job.id]) == 2
    with pytest.raises(AttemptOver, match="was released"):
        app.finish(job, Report(date(2026, 5, 2), 1), fence=pods.fence(job))
    app.finish(job, Report(date(2026, 5, 2), 2), fence=pods.fence(job, attempt=2))
    assert (job.result().pages, job.info().attempt) == (2, 1)


def test_a_probe_that_detaches_closes_the_breaker_of_its_resource(run, app):
    @app.task(
        resource=Resource("cluster", breaker=Breaker(failures=1, successes=1, open_for=timedelta(minutes=1))),
        retry=SOON,
    )
    def pod(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("the cluster is away")
        return ctx.detach("1h")

    job = pod.submit()
    assert app.resource("cluster").info().breaker == "open"
    run.advance("2m")
    assert job.info().detached
    assert app.resource("cluster").info().breaker == "closed"


# -- the race of a fast pod with its worker ----------------------------------------------------------------------------


async def leased(client):
    await client.store.insert([JobSpec(id="j1", task="pod")])
    [lease] = (await client.store.exchange(Exchange(claim=Claim(worker="w1")))).leases
    return lease


async def test_a_pod_may_be_faster_than_the_worker_that_detaches_its_job(tmp_path):
    async with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        client = await app.client()
        lease = await leased(client)
        with pytest.raises(WrongState, match="its worker extends its lease"):
            await app.aextend("j1", "1h", fence=lease.fence)
        with pytest.raises(WrongState, match="not detached"):
            await app.afinish("j1", 1)
        await app.afinish("j1", 1, fence=lease.fence)
        late = Beat(seq=lease.seq, fence=lease.fence, lease_for=timedelta(hours=24), detach=True)
        assert not (await client.store.extend([late]))[0].held
        assert (await client.get("j1")).state is State.COMPLETED
        assert [event.kind for event in await client.history("j1")] == ["submitted", "started", "completed"]


async def test_a_worker_may_be_faster_than_the_pod(tmp_path):
    async with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        client = await app.client()
        lease = await leased(client)
        beat = Beat(seq=lease.seq, fence=lease.fence, lease_for=timedelta(hours=24), detach=True)
        assert (await client.store.extend([beat]))[0].held
        await app.afinish("j1", 1, fence=lease.fence)
        assert (await client.get("j1")).result == b"1"


async def test_of_two_who_finish_at_once_one_wins_and_the_other_is_told(tmp_path):
    async with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        client = await app.client()
        lease = await leased(client)
        answers = await asyncio.gather(
            *(client.finish("j1", Done(b"%d" % n), fence=lease.fence) for n in range(8)), return_exceptions=True
        )
        won = [n for n, answer in enumerate(answers) if not isinstance(answer, AttemptOver)]
        assert len(won) == 1
        assert (await client.get("j1")).result == b"%d" % won[0]


async def test_of_many_same_outcomes_at_once_one_is_written(tmp_path):
    async with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        client = await app.client()
        lease = await leased(client)
        answers = await asyncio.gather(*(client.finish("j1", Done(b"1"), fence=lease.fence) for _ in range(8)))
        assert {answer.state for answer in answers} == {State.COMPLETED}
        assert [event.kind for event in await client.history("j1")] == ["submitted", "started", "completed"]
