"""Acceptance case 31: whatever was done, in whatever order, what is counted is what is there."""

from __future__ import annotations

from collections import Counter

import pytest
from acceptance_tasks import app, fail, note
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from worker_processes import ask, until

from daybreak import State
from daybreak.core.model import FINAL
from daybreak.store.protocol import Filter

STEPS = ("submit", "submit", "fail", "delay", "cancel", "suspend", "resume", "retry", "rerank", "remove", "pause",
         "go on", "wait")  # fmt: skip
QUEUES = ("left", "right")


@pytest.fixture(scope="module")
def worker(shared_place):
    with app.worker(lease_for="1s", processes=1, queues=QUEUES) as worker:
        yield worker


@settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), min_size=5, max_size=40))
def test_case_31_gauges_equal_state_after_any_random_sequence(worker, steps):
    """Gauges equal state after any random sequence."""
    jobs = [note.using(queue="left").submit(n=0)]
    for step, number in steps:
        take(step, number, jobs)
        # The two are not asked in one transaction while a worker works: a wrong count would stay wrong.
        until(lambda: ask(app, counted) == ask(app, recounted), f"the counts are right after {step} {number}", 5)
    for queue in QUEUES:
        app.queue(queue).resume()
    until(lambda: not ask(app, in_motion), "nothing moves any more")
    assert ask(app, counted) == ask(app, recounted)


def take(step, number, jobs):
    queue, job = QUEUES[number % 2], jobs[number % len(jobs)]
    match step:
        case "submit":
            jobs.append(note.using(queue=queue, priority=number % 11).submit(n=number))
        case "fail":
            jobs.append(fail.using(queue=queue).submit())
        case "delay":
            jobs.append(note.using(queue=queue, delay="20ms" if number % 3 else "1h").submit(n=number))
        case "rerank":
            job.reprioritise(number % 11)
        case "remove":
            if job.state() in FINAL and len(jobs) > 1:
                job.remove()
                jobs.remove(job)
        case "pause":
            app.queue(queue).pause()
        case "go on":
            app.queue(queue).resume()
        case "wait":
            app.queue("left").resume()
            note.using(queue="left", priority=0).submit(n=-1).wait(timeout="30s")
        case _:
            getattr(job, step)()


async def counted(client):
    """What the store says: by queue, task, priority and state. In one look, as is the recount."""
    return +Counter({
        (tally.queue, tally.task, tally.priority, tally.state): tally.n
        for tally in await client.store.count(Filter())
        if tally.state is not State.RUNNING
    })  # fmt: skip


async def recounted(client):
    found = Counter()
    async for job in client.find_all():
        if job.state is not State.RUNNING:
            found[job.spec.queue, job.spec.task, job.priority, job.state] += 1
    return found


async def in_motion(client):
    counts = await client.count()
    soon = [job async for job in client.find_all(state="scheduled") if job.run_at.year < 3000 and _is_soon(job)]
    return counts[State.QUEUED] + counts[State.RUNNING] + len(soon)


def _is_soon(job):
    return (job.run_at - job.created_at).total_seconds() < 60
