"""Statistics: exact, from the store, and the same for whoever asks."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from daybreak import Adaptive, JobFailed, QueueSettings, Resource, Retry, Transient

AT_ONCE = Retry(strategy="fixed", attempts=3, delay=timedelta())
FAR = "1h"


@pytest.fixture
def night(app):
    """A known sequence: 4 complete at once, 1 at its second try, 1 never, 1 is too late, 1 expires, 1 is cancelled."""
    tries: list[str] = []

    @app.task(retry=AT_ONCE)
    def work(n: int) -> int:
        time.sleep(0.01)
        return n

    @app.task(retry=AT_ONCE)
    def shaky(name: str, times: int) -> str:
        tries.append(name)
        if tries.count(name) <= times:
            raise Transient("not yet")
        return name

    @app.task(retry=Retry(strategy="linear", attempts=2, delay=timedelta()), timeout=Adaptive("50ms"))
    async def slow() -> None:
        await asyncio.sleep(30)

    jobs = [*work.submit_many({"n": n} for n in range(4)), shaky.submit("once", 1), shaky.submit("never", 9)]
    jobs.append(slow.submit())
    late = work.using(queue="idle", expires_in="10ms").submit(9)
    work.using(queue="idle", priority="low", delay=FAR).submit(9)
    gone = work.using(priority="low", delay=FAR).submit(9)
    gone.cancel()
    with app.worker(processes=2, queues=("default",)):
        for job in jobs:
            job.wait(timeout="20s")
        with pytest.raises(JobFailed, match="expired"):
            late.result(timeout="20s")
    return app


def test_every_number_of_a_queue(night):
    stats = night.stats("default").queue
    assert (stats.submitted, stats.completed, stats.errors, stats.timeouts) == (8, 5, 2, 0)
    assert (stats.processed, stats.cancelled, stats.shed) == (7, 1, 0)
    assert (stats.waiting, stats.running) == (0, 0)
    assert timedelta() < stats.average_wait < timedelta(seconds=20)
    assert timedelta(milliseconds=5) < stats.average_run < timedelta(seconds=20)
    assert 1 <= stats.batches <= 12
    assert stats.last_at is not None
    idle = night.stats("idle").queue
    assert (idle.submitted, idle.timeouts, idle.processed, idle.waiting) == (2, 1, 0, 1)
    assert idle.by_priority == {0: 0, 1: 0, 2: 0, 5: 0, 7: 1, 10: 0}
    assert night.stats().queue.submitted == 10


def test_every_number_of_retries(night):
    stats = night.stats().retries
    assert (stats.total, stats.successful, stats.failed) == (4, 1, 3)
    assert stats.by_strategy == {"fixed": 3, "linear": 1}
    assert (stats.most_attempts, stats.spared, stats.adapted, stats.breaker_trips) == (3, 0, 0, 0)
    assert stats.average_run > timedelta()


def test_every_number_of_time_limits(night):
    stats = night.stats().timeouts
    assert stats.by_kind == {
        "execution": 2, "hang": 0, "wait": 1, "acquisition": 0, "renewal": 0, "connection": 0, "operation": 0,
    }  # fmt: skip
    assert (stats.total, stats.escalations, stats.active) == (3, 1, 0)


def test_an_empty_store_has_nothing_to_tell(app):
    stats = app.stats()
    assert (stats.queue.submitted, stats.retries.total, stats.timeouts.total) == (0, 0, 0)
    assert stats.queue.last_at is None
    assert stats.adaptive == []


def test_a_full_queue_sheds_and_says_so(app, caplog):
    @app.task
    def work() -> None: ...

    assert app.queue("small").set(capacity=2, when_full="shed") == QueueSettings(capacity=2, when_full="shed")
    low = [work.using(queue="small", priority="low").submit() for _ in range(2)]
    urgent = work.using(queue="small", priority="high").submit()
    with pytest.raises(JobFailed, match=f"shed.*pushed out by {urgent.id}"):
        low[1].result(timeout="5s")
    assert f"job {low[1].id} in favour of work {urgent.id}" in caplog.text
    assert app.stats("small").queue.shed == 1


def test_breakers_that_opened_are_counted(app):
    @app.task(resource=Resource("server", breaker=True), retry=1)
    def ask() -> None:
        raise Transient("down")

    jobs = [ask.submit() for _ in range(5)]
    with app.worker(processes=1):
        for job in jobs:
            job.wait(timeout="20s")
    assert app.stats().retries.breaker_trips == 1


def test_one_that_will_not_wait_fails_at_an_open_breaker(app):
    @app.task(resource=Resource("server", breaker=True), retry=1, fail_fast=True)
    def ask(fails: bool) -> str:
        if fails:
            raise Transient("down")
        return "fine"

    with app.worker(processes=1):
        for _ in range(5):
            ask.submit(True).wait(timeout="20s")
        with pytest.raises(JobFailed, match="the breaker of resource server is open"):
            ask.submit(False).result(timeout="20s")


def test_trends_are_there_as_soon_as_the_worker_has_stopped(night):
    trends = night.trends("1h", by="task")
    assert {group.name: group.figures.completed for group in trends.groups} == {"work": 4, "shaky": 1, "slow": 0}
    figures = trends.figures
    assert (figures.submitted, figures.failed, figures.expired, figures.cancelled) == (10, 2, 1, 1)
    assert (figures.retries, figures.retries_failed, figures.timeouts, figures.waiting) == (4, 3, 2, 1)
    assert figures.target_met == 1.0
    assert figures.wait_p50 <= figures.wait_p95 <= figures.wait_p99
    assert timedelta() < figures.run_p50 <= figures.run_p99


async def test_trends_have_an_async_twin(app):
    assert (await app.atrends()).resolution == "hour"
