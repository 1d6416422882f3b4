"""Inline mode: jobs run at once, in the thread that submits them, by the real claim, runner, policy and settlement."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import Context, Daybreak, Event, JobFailed, Permanent, ResultTimeout, State, Suspend
from daybreak.core.errors import BadInput, DaybreakError, WrongState
from daybreak.store.protocol import Query
from daybreak.testing import HandClock, Inline, inline
from daybreak.testing.inline_mode import MAX_DEPTH


@pytest.fixture
def app(tmp_path):
    """A real app, whose file must never be made."""
    path = tmp_path / "jobs.db"
    with Daybreak(f"sqlite:///{path}", by="ann") as app:
        yield app
    assert not path.exists()


@pytest.fixture
def flaky(app):
    """A task that fails as often as it is told to."""

    @app.task(retry=4)
    def flaky(times: int) -> int:
        made = next(flaky.tries)
        if made <= times:
            raise ConnectionError(str(made))
        return made

    flaky.tries = itertools.count(1)
    return flaky


def test_a_job_runs_at_once_in_the_caller_s_thread(app):
    @app.task
    def where(n: int) -> tuple[str, int]:
        return threading.current_thread().name, n

    threads = threading.active_count()
    with inline(app) as run:
        assert isinstance(run, Inline)
        job = where.submit(1)
        assert job.state() is State.COMPLETED
        assert job.result() == (threading.current_thread().name, 1)
        assert threading.active_count() == threads
    assert job.result() == (threading.current_thread().name, 1)


def test_async_tasks_run_in_the_caller_s_thread_too(app):
    @app.task
    async def where(n: int) -> tuple[str, int]:
        await asyncio.sleep(0)
        return threading.current_thread().name, n

    with inline(app):
        assert where.submit(1).result() == (threading.current_thread().name, 1)
        assert where.map([2, 3]) == [(threading.current_thread().name, n) for n in (2, 3)]


def test_arguments_and_results_are_really_encoded(app):
    @app.task
    def same(values: list[int]) -> list[int]:
        return values

    given = [1, 2]
    with inline(app):
        got = same.submit(given).result()
        assert got == given
        assert got is not given
        with pytest.raises(BadInput):
            same.submit("text")


def test_retries_move_the_clock_and_nobody_waits(app, flaky):
    began = time.monotonic()
    with inline(app) as run:
        start = run.clock.now
        job = flaky.submit(3)
        assert job.result() == 4
        assert timedelta(seconds=6) < run.clock.now - start < timedelta(seconds=8)  # 1 + 2 + 4, spread by 10 %
        kinds = [event.kind for event in job.history()]
    assert kinds == ["submitted", *["started", "retrying", "due"] * 3, "started", "completed"]
    assert time.monotonic() - began < 5


def test_a_job_that_fails_fails_as_it_would(app, flaky):
    with inline(app):
        job = flaky.submit(100)
        assert (job.state(), job.info().attempt, job.info().reason) == (State.FAILED, 4, "exhausted")
        with pytest.raises(JobFailed, match="raise ConnectionError"):
            job.result()


def test_an_endless_retry_cannot_hang(app):
    @app.task(retry=1_000_000)
    def never() -> None:
        raise ConnectionError

    with inline(app, tries=5) as run:
        with pytest.raises(DaybreakError, match="still fails after 5 attempts in one call"):
            never.submit()
        assert run.clock.now < datetime.now(UTC) + timedelta(minutes=5)


def test_a_job_that_submits_itself_for_ever_cannot_hang(app, monkeypatch):
    monkeypatch.setattr("daybreak.testing.inline_mode.MAX_SUBMITTED", 50)
    runs = []

    @app.task(retry=1)
    def again() -> None:
        runs.append(1)
        again.submit()

    with inline(app), pytest.raises(DaybreakError, match="more than 50 jobs"):
        again.submit()
    assert 50 <= len(runs) <= 60


def test_delayed_jobs_wait_until_time_passes(app):
    ran = []

    @app.task
    def at(name: str) -> None:
        ran.append((name, run.clock.now - start))

    with inline(app) as run:
        start = run.clock.now
        late = at.using(delay="2h").submit("late")
        soon = at.using(delay="10m").submit("soon")
        exact = at.using(run_at=start + timedelta(minutes=30)).submit("exact")
        assert [job.state() for job in (late, soon, exact)] == [State.SCHEDULED] * 3
        run.advance("1h")
        assert run.clock.now - start == timedelta(hours=1)
        assert ran == [("soon", timedelta(minutes=10)), ("exact", timedelta(minutes=30))]
        run.advance(timedelta(hours=1))
        assert ran[-1] == ("late", timedelta(hours=2))
        with pytest.raises(BadInput, match="write '5s'"):
            run.advance(5)


def test_a_retry_moves_past_what_falls_due_before_it(app, flaky):
    ran = []

    @app.task
    def soon() -> None:
        ran.append(run.clock.now)

    with inline(app) as run:
        soon.using(delay="500ms").submit()
        flaky.submit(1)
        assert len(ran) == 1


def test_waiting_for_a_later_time_is_an_error_not_a_hang(app):
    @app.task
    def later() -> None: ...

    with inline(app):
        job = later.using(delay="1h").submit()
        with pytest.raises(WrongState, match=r"run\.advance"):
            job.result()
        with pytest.raises(ResultTimeout):
            job.result(timeout="1h")


def test_what_waits_too_long_expires(app):
    @app.task
    def later() -> None: ...

    with inline(app) as run:
        job = later.using(delay="2h", expires_in="1h").submit()
        run.advance("90m")
        assert (job.state(), job.info().reason) == (State.FAILED, "expired")


def test_jobs_within_jobs_run_at_once(app):
    @app.task
    def leaf(n: int) -> int:
        return n

    @app.task
    async def branch(n: int) -> int:
        return await (await leaf.asubmit(n)) + await (await leaf.asubmit(n))

    @app.task
    def tree(n: int) -> int:
        return branch.submit(n).result() + leaf.submit(n).result()

    with inline(app):
        assert tree.submit(2).result() == 6


def test_a_deep_chain_is_run_to_its_end(app):
    ran = []

    @app.task
    def chain(left: int) -> None:
        ran.append(left)
        if left:
            chain.submit(left - 1)

    with inline(app):
        chain.submit(20 * MAX_DEPTH)
    assert sorted(ran) == list(range(20 * MAX_DEPTH + 1))


def test_priorities_decide_where_several_are_due(app):
    ran = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    with inline(app) as run:
        for n, priority in enumerate(("low", "high", "normal")):
            note.using(delay="1h", priority=priority).submit(n)
        run.advance("1h")
    assert ran == [1, 2, 0]


def test_context_progress_checkpoint_steps_and_suspension_work(app):
    calls = []

    @app.task(retry=3)
    def long(ctx: Context) -> tuple[int, object, str]:
        ctx.progress(0.5, "half")
        ctx.step("once", calls.append, 1)
        if ctx.attempt == 1:
            ctx.checkpoint({"at": 7})
            raise ConnectionError
        return ctx.attempt, ctx.state, ctx.queue

    @app.task
    def hold() -> None:
        raise Suspend("whom?")

    with inline(app):
        job = long.using(queue="elsewhere").submit()
        assert job.result() == (2, {"at": 7}, "elsewhere")
        assert calls == [1]
        held = hold.submit()
        assert (held.state(), held.info().note) == (State.SUSPENDED, "whom?")


@pytest.fixture
def slow(app):
    @app.task(retry=2, timeout="20ms")
    async def slow(ctx: Context) -> str:
        await asyncio.sleep(60)
        return "ran to its end"

    return slow


def test_an_async_task_is_ended_by_its_time_limit(app, slow):
    with inline(app):
        job = slow.submit().wait()
        assert (job.state, job.reason, job.attempt) == (State.FAILED, "timeout", 2)
        assert job.timeouts == 2


async def test_the_async_twin_ends_it_too(app, slow):
    async with inline(app):
        job = await (await slow.asubmit()).await_()
        assert (job.state, job.reason, job.attempt) == (State.FAILED, "timeout", 2)


def test_an_async_task_within_its_limit_is_left_alone(app):
    @app.task(retry=1, timeout="20s")
    async def quick(ctx: Context) -> bool:
        await asyncio.sleep(0.001)
        return ctx.cancelled

    with inline(app):
        assert quick.submit().result() is False


def test_what_is_asked_of_a_job_has_its_effect_at_once(app, flaky):
    with inline(app):
        job = flaky.submit(4)
        assert job.state() is State.FAILED
        job.retry()
        assert job.result() == 5
        later = flaky.using(delay="1h").submit(0)
        later.cancel()
        assert later.state() is State.CANCELLED


def test_setup_wrap_and_lifespan_are_around_it(app):
    said = []

    @app.lifespan
    async def life():
        said.append("begin")
        yield {"limit": 3}
        said.append("end")

    @app.setup
    def setup(shared):
        shared.model = "loaded"

    @app.wrap
    def around(ctx):
        said.append("before")
        yield
        said.append("after")

    @app.task
    def use(ctx: Context) -> tuple[str, int]:
        said.append("run")
        return ctx.shared.model, ctx.shared.limit

    with inline(app):
        assert use.submit().result() == ("loaded", 3)
    assert said == ["begin", "before", "run", "after", "end"]


def test_hooks_are_called_in_order_before_submit_returns(app, flaky):
    heard: list[str] = []

    @app.on("*")
    def at_once(event: Event) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append(event.kind)

    @app.on("completed", durable=True)
    def durably(event: Event) -> None:
        heard.append(f"durably {event.kind} {event.n}")

    @app.on("completed")
    async def asynchronously(event: Event) -> None:
        heard.append("async")

    with inline(app):
        flaky.submit(1)
        assert heard == ["submitted", "started", "retrying", "started", "completed", "async", "durably completed 6"]
        heard.clear()
        flaky.submit_many([{"times": 0}])
        assert heard == ["submitted", "started", "completed", "async", "durably completed 3"]


def test_a_worker_inside_does_nothing(app, flaky):
    with inline(app):
        with app.worker(processes=4):
            job = flaky.submit(0)
        app.work()
        assert job.result() == 1


def test_a_queue_works_as_well(app):
    with inline(app) as run:
        queue = app.queue("reports")
        queue.add("x", delay="1h")
        assert queue.take() == []
        run.advance("1h")
        with queue.take()[0] as lease:
            assert lease.data == "x"
        assert queue.stats().success_rate == 1


def test_as_completed_and_bulk_submits_work(app, flaky):
    with inline(app):
        jobs = flaky.submit_many([{"times": 0}] * 5)
        assert set(app.as_completed(jobs)) == set(jobs)
        assert [job.result() for job in jobs] == [1, 2, 3, 4, 5]


def test_a_key_is_one_job(app, flaky):
    with inline(app):
        assert flaky.using(key="k").submit(0) == flaky.using(key="k").submit(0)


def test_each_block_begins_with_nothing_and_the_app_is_as_before_after_it(app, flaky):
    before = dict(vars(app)), dict(vars(app.hooks))
    with inline(app):
        flaky.submit(0)
        assert app.queue("default").stats().total == 1
    with inline(app) as run:
        assert app.queue("default").stats().total == 0
        assert app.world is run.clock
    assert (dict(vars(app)), dict(vars(app.hooks))) == before


def test_a_block_that_raises_leaves_the_app_as_it_was(app):
    @app.setup
    def broken():
        raise OSError("no model")

    before = dict(vars(app))
    with pytest.raises(OSError, match="no model"), inline(app):
        pass
    assert dict(vars(app)) == before


def test_ctrl_c_inside_a_job_ends_the_test_not_the_job(app):
    @app.task
    def interrupted() -> None:
        raise KeyboardInterrupt

    with inline(app) as run:
        with pytest.raises(KeyboardInterrupt):
            interrupted.submit()
        [job] = asyncio.run(run.store.find(Query())).jobs
        assert (job.state, job.attempt) == (State.QUEUED, 0)


def test_a_clock_can_be_given(app):
    @app.task
    def nothing() -> None: ...

    clock = HandClock(datetime(2030, 1, 1, tzinfo=UTC))
    with inline(app, clock=clock) as run:
        assert run.clock is clock
        assert nothing.submit().info().created_at == datetime(2030, 1, 1, tzinfo=UTC)
    with inline(app) as run:
        assert abs(run.clock.now - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_permanent_error_is_tried_once(app):
    @app.task(retry=5)
    def refuse() -> None:
        raise Permanent("no")

    with inline(app):
        assert refuse.submit().info().attempt == 1


# -- inside a running loop ---------------------------------------------------------------------------------------------


async def test_async_code_awaits_the_twins_in_its_own_loop(app):
    loops = []

    @app.task
    async def where() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @app.task
    def plain() -> str:
        return threading.current_thread().name

    async with inline(app) as run:
        await (await where.asubmit())
        await where.using(delay="1h").asubmit()
        await run.aadvance("1h")
        assert await (await plain.asubmit()) == threading.current_thread().name
        assert len(await plain.asubmit_many([{}, {}])) == 2
    assert loops == [asyncio.get_running_loop()] * 2


async def test_blocking_calls_inside_a_running_loop_work(app):
    @app.task
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @app.task
    def plain() -> str:
        return threading.current_thread().name

    with inline(app) as run:
        assert plain.submit().result() == threading.current_thread().name
        assert later.submit(1).result() == 1
        assert later.map([1, 2]) == [1, 2]
        job = later.using(delay="1h").submit(3)
        run.advance("1h")
        assert job.result() == 3


async def test_an_async_setup_needs_an_async_block_inside_a_loop(app):
    @app.setup
    async def setup(shared):
        await asyncio.sleep(0)
        shared.ready = True

    @app.task
    def ready(ctx: Context) -> bool:
        return ctx.shared.ready

    with pytest.raises(DaybreakError, match="async with inline"), inline(app):
        pass
    async with inline(app):
        assert await (await ready.asubmit())


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_a_clock_stands_still_until_it_is_moved():
    clock = HandClock()
    start, steady = clock.now, clock.steady()
    clock.advance("1h30m")
    clock.advance(timedelta(seconds=1))
    assert clock.now - start == timedelta(hours=1, minutes=30, seconds=1)
    assert clock.steady() - steady == 5_401_000_000
    clock.jump(-timedelta(days=1))
    assert clock.now < start
    assert clock.steady() - steady == 5_401_000_000
    with pytest.raises(BadInput):
        clock.advance(5)


def test_a_clock_serves_an_app_without_inline_mode():
    clock = HandClock()
    with Daybreak("memory://", world=clock) as app:
        queue = app.queue("q")
        queue.add(1, delay="1h")
        assert queue.take() == []
