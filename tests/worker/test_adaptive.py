"""Adaptive time limits follow the durations that all workers have measured for a task."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import msgspec
import pytest

from daybreak import Adaptive, Daybreak, JobFailed, Resource, Retry
from daybreak.client import duration_stats
from daybreak.client.duration_stats import KIND
from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.policy.durations import Durations, Hour, class_of, hour_of

ONCE = Retry(attempts=1)


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setattr(duration_stats, "SYNC_INTERVAL", timedelta(milliseconds=200))
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


async def rest(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def tell(app, subject, seconds, times):
    async def put(client):
        hour = hour_of(moment(app.world.wall()))
        value = msgspec.json.encode(Durations(hours={hour: Hour({class_of(seconds): times})}))
        await client.store.put([Put(kind=KIND, name=subject, value=value)])

    app.portal.run(app._with_client(put))


def stored_durations(app, subject):
    async def read(client):
        return (await client.durations.read(subject))[0]

    return app.portal.run(app._with_client(read))


def learned(worker, subject):
    """Wait until the worker knows the durations of a subject: it reads them when the first such job comes."""
    deadline = time.monotonic() + 20
    while worker._source._durations.known(subject) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_adaptive_limit_is_short_for_quick_tasks_and_long_for_slow_ones(app):
    quick = app.task(name="quick", timeout=Adaptive("2s"), retry=ONCE)(rest)
    slow = app.task(name="slow", timeout=Adaptive("1s"), retry=ONCE, resource=Resource("far", slots=4))(rest)
    tell(app, "execution quick", 0.01, 500)
    tell(app, "execution slow on far", 1.4, 500)
    with app.worker() as worker:
        for task in (quick, slow):
            task.submit(0.0).result(timeout="20s")
        learned(worker, "execution quick")
        learned(worker, "execution slow on far")
        with pytest.raises(JobFailed, match=r"ran longer than its limit of 1 s \(adaptive, base 2 s\)"):
            quick.submit(30.0).result(timeout="20s")
        assert slow.submit(1.5).result(timeout="20s") == 1.5


def test_a_written_limit_ignores_measured_durations(app):
    """500 short jobs would halve an adaptive limit of two seconds."""
    quick = app.task(name="quick", timeout="2s", retry=ONCE)(rest)
    tell(app, "execution quick", 0.01, 500)
    with app.worker() as worker:
        quick.submit(0.0).result(timeout="20s")
        assert quick.submit(1.3).result(timeout="20s") == 1.3
        with pytest.raises(JobFailed, match=r"ran longer than its limit of 2 s \(written\)"):
            quick.submit(30.0).result(timeout="20s")
        assert not worker._source._durations._wanted
    assert stored_durations(app, "execution quick").seen == 0


def test_a_written_limit_is_the_same_at_every_attempt(app):
    twice = app.task(name="twice", timeout="300ms", retry=Retry(strategy="fixed", attempts=2, delay="1ms"))(rest)
    with app.worker():
        job = twice.submit(30.0)
        assert job.outcome(timeout="20s").reason == "timeout"
    errors = [event.error for event in job.history() if event.error]
    assert errors == ["TimeoutError: ran longer than its limit of 0.3 s (written)"] * 2


def test_a_job_may_have_another_kind_of_limit_than_its_task(app):
    written = app.task(name="written", timeout="2s")(rest)
    follows = app.task(name="follows", timeout=Adaptive("2s", escalate=3.0))(rest)
    asked = written.using(timeout=Adaptive("3s", escalate_after=2)).submit(0.0).info().spec.options
    assert (asked.timeout, asked.adaptive, asked.escalate_after) == (timedelta(seconds=3), True, 2)
    fixed = follows.using(timeout="1s").submit(0.0).info().spec.options
    assert (fixed.timeout, fixed.adaptive, fixed.escalate) == (timedelta(seconds=1), False, 1.5)
    left = follows.submit(0.0).info().spec.options
    assert (left.timeout, left.adaptive, left.escalate) == (timedelta(seconds=2), True, 3.0)


def test_measured_durations_outlive_the_worker(app):
    nap = app.task(name="nap", timeout=Adaptive("1s"), retry=ONCE)(rest)
    with app.worker():
        for _ in range(5):
            nap.submit(0.02).result(timeout="20s")
        with pytest.raises(JobFailed):
            nap.submit(30.0).result(timeout="20s")
    durations = stored_durations(app, "execution nap")
    assert (durations.seen, durations.late) == (6, 1)
    [known] = app.stats().adaptive
    assert (known.subject, known.seen, known.base) == ("execution nap", 6, timedelta(seconds=1))
    assert timedelta(milliseconds=15) < known.median < timedelta(milliseconds=500)


def test_a_record_that_cannot_be_read_stops_no_worker(app, monkeypatch):
    monkeypatch.setattr("daybreak.client.duration_stats.SYNC_INTERVAL", timedelta(milliseconds=50))

    nap = app.task(name="nap", timeout=Adaptive("1s"), retry=ONCE)(rest)

    async def spoil(client):
        await client.store.put([Put(kind=KIND, name="execution nap", value=b'{"hours":3}')])

    app.portal.run(app._with_client(spoil))
    with app.worker() as worker:
        assert nap.submit(0.01).result(timeout="20s") == 0.01
        learned(worker, "execution nap")
        assert nap.submit(0.02).result(timeout="20s") == 0.02
    assert stored_durations(app, "execution nap").seen == 2


def test_a_job_that_took_longer_than_most_may_do_so_again(app):
    nap = app.task(name="nap", timeout=Adaptive("2s"), retry=ONCE)(rest)

    async def put(client):
        hour = hour_of(moment(app.world.wall()))
        durations = Durations(hours={hour: Hour({class_of(0.01): 999, class_of(1.3): 1}, longest=1.3)})
        await client.store.put([Put(kind=KIND, name="execution nap", value=msgspec.json.encode(durations))])

    app.portal.run(app._with_client(put))
    with app.worker() as worker:
        nap.submit(0.0).result(timeout="20s")
        learned(worker, "execution nap")
        assert nap.submit(1.2).result(timeout="20s") == 1.2
