"""The dispatcher: shallow queues, priority, what nobody takes, several dispatchers, messages that cannot be applied."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqs_stage import until
from sqs_tasks import add, echo

from daybreak import values
from daybreak.core.model import Done, State
from daybreak.sqs import messages as wire
from daybreak.sqs import queue_names as names
from daybreak.sqs import setup


async def states(stage, jobs):
    return [(await stage.job(job)).state for job in jobs]


async def lie_in(stage, bucket, n):
    """Whether so many messages wait in the task queue of this bucket."""
    name = names.task_queue(stage.address.prefix, bucket)
    return [one.visible for one in await setup.count(stage.queues) if one.name == name] == [n]


async def test_task_queues_stay_shallow(stage):
    jobs = [await add.asubmit(n, 1) for n in range(30)]
    await stage.dispatcher(depth=4)

    async def are_sent():
        return (await states(stage, jobs)).count(State.RUNNING) == 4

    await until(are_sent, "four jobs are dispatched")
    await until(lambda: lie_in(stage, "normal", 4), "their messages are sent")
    assert (await states(stage, jobs)).count(State.RUNNING) == 4
    player = await stage.player()
    taken = await player.take(2)
    assert len(taken) == 2

    async def are_refilled():
        return (await states(stage, jobs)).count(State.RUNNING) == 6

    await until(are_refilled, "what was begun is replaced")


async def test_a_critical_job_overtakes_what_waits_in_the_task_queues(stage):
    jobs = [await add.using(priority="low").asubmit(n, 1) for n in range(12)]
    await stage.dispatcher(depth=4)

    async def are_sent():
        return (await states(stage, jobs)).count(State.RUNNING) == 4

    await until(are_sent, "the task queue is full")
    urgent = await echo.using(priority="critical").asubmit("now")

    async def is_sent():
        return (await stage.job(urgent)).state is State.RUNNING

    await until(is_sent, "the urgent job is dispatched though the queue of the others is full")
    await until(lambda: lie_in(stage, "critical", 1), "its message is sent")
    player = await stage.player()
    assert (await player.take(1))[0].job == urgent.id


async def test_what_nobody_takes_goes_back_uncharged_and_its_message_is_not_run(stage):
    job = await echo.asubmit("x")
    first, running = await stage.dispatcher(valid_for=timedelta(seconds=1))

    async def is_sent_again():
        return (await stage.job(job)).fence >= 2

    await until(is_sent_again, "it was taken back and sent again")
    first.stop()
    await asyncio.wait_for(running, 60)
    await asyncio.sleep(2.1)  # the messages are too old now; SQS tells the time in whole seconds
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    current = await stage.job(job)
    assert lease.fence == current.fence > 2  # the older messages were too old to be run
    await player.end(lease, Done(values.encode("x", "result")))
    assert (await stage.ended(job)).attempt == 1


async def test_a_look_for_requests_does_not_lengthen_the_lease_of_a_worker(stage):
    """Or a worker that dies then would be waited for as long as a message that nobody took."""
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    forgets, dispatcher._dispatched.remove = dispatcher._dispatched.remove, lambda _: False  # it has not noted it yet
    await player.take_one()

    async def is_begun():
        return await (await stage.store()).records("delivery", job.id)

    await until(is_begun, "the ledger has heard that the job began")
    before = (await stage.job(job)).leased_until
    assert dispatcher._dispatched.leases()
    await dispatcher._answer_requests()
    assert (await stage.job(job)).leased_until - before < timedelta(seconds=60)
    dispatcher._dispatched.remove = forgets


async def test_a_dispatcher_that_stops_leaves_what_another_one_heard_had_begun(stage):
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    forgets, dispatcher._dispatched.remove = dispatcher._dispatched.remove, lambda _: False  # the other one heard it
    lease = await player.take_one()

    async def is_begun():
        return await (await stage.store()).records("delivery", job.id)

    await until(is_begun, "the ledger has heard that the job began")
    assert dispatcher._dispatched.leases()
    dispatcher._dispatched.remove = forgets
    await dispatcher._hand_back(dispatcher._dispatched.leases())
    assert not dispatcher._dispatched.leases()
    found = await stage.job(job)
    assert (found.state, found.fence) == (State.RUNNING, lease.fence)
    await player.end(lease, Done(values.encode("x", "result")))
    assert (await stage.ended(job)).attempt == 1


async def test_a_dispatcher_that_stops_hands_back_what_nobody_began(stage):
    job = await echo.asubmit("x")
    dispatcher, running = await stage.dispatcher()

    async def is_sent():
        return (await stage.job(job)).state is State.RUNNING

    await until(is_sent, "the job is dispatched")
    dispatcher.stop()
    await asyncio.wait_for(running, 60)
    found = await stage.job(job)
    assert (found.state, found.attempt) == (State.QUEUED, 0)


async def test_several_dispatchers_share_the_work_and_one_may_be_killed(stage):
    jobs = [await add.asubmit(n, 1) for n in range(30)]
    _, first = await stage.dispatcher(depth=5)
    await stage.dispatcher(depth=5)
    await stage.worker(async_jobs=10)

    async def some_are_done():
        return (await states(stage, jobs)).count(State.COMPLETED) >= 5

    await until(some_are_done, "some jobs have ended")
    first.cancel()
    for n, job in enumerate(jobs[:5]):
        assert values.decode((await stage.ended(job)).result) == n + 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not a message of Daybreak"),
        ("[]", "not a message of Daybreak"),
        ('{"v": 2, "kind": "started"}', "version 2"),
        ('{"v": 1, "kind": "borrowed"}', "not a message of Daybreak"),
        ('{"v": 1, "kind": "started", "delivery": {"ledger": 7}}', "not a message of Daybreak"),
        ('{"v": 1, "kind": "worker", "record": {"id": 5}}', "no proper record"),
    ],
)
async def test_a_malformed_message_is_set_aside_with_its_reason(stage, body, reason):
    await stage.dispatcher()
    await stage.queues.send(names.status_queue(stage.address.prefix), [body])
    aside = (await stage.asides())[0]
    assert reason in aside.reason
    assert aside.body == body
    counts = {one.name: one for one in await setup.count(stage.queues)}
    assert counts[names.status_queue(stage.address.prefix)].visible == 0


async def test_a_foreign_message_is_set_aside_and_touches_no_job(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    held = next(iter(player.source._held.values()))
    _, body = await player.source._addressed(held, Done(values.encode("y", "result")))
    foreign = body.replace(held.delivery.ledger, "another-ledger")
    unknown = body.replace(job.id, "00000000-0000-7000-8000-000000000000")
    await stage.queues.send(names.status_queue(stage.address.prefix), [foreign, unknown])
    reasons = {one.reason for one in await stage.asides(2)}
    assert any("for the ledger 'another-ledger'" in reason for reason in reasons)
    assert any("has no job" in reason for reason in reasons)
    assert (await stage.job(job)).state is State.RUNNING
    await player.end(lease, Done(values.encode("x", "result")))
    assert values.decode((await stage.ended(job)).result) == "x"


async def test_a_task_message_that_is_none_is_set_aside_by_the_worker(stage):
    await stage.dispatcher()
    await stage.worker()
    await stage.queues.send(names.task_queues(stage.address.prefix)[0], ["not json"])
    assert "not a message of Daybreak" in (await stage.asides())[0].reason
    assert values.decode((await stage.ended(await add.asubmit(1, 1))).result) == 2


async def test_the_ledger_does_not_trust_what_a_message_says_of_the_lease(stage):
    """A worker that claims to be at another attempt, or without retries, changes nothing of how the job goes on."""
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    await player.take_one()
    held = next(iter(player.source._held.values()))
    body = (
        f'{{"v": 1, "kind": "outcome", "how": "failed", "status": "Failed", "attempt": 99, "fence": 7, "options": {{}},'
        f' "failure": {{"message": "no", "verdict": "transient", "attempt": 99}},'
        f' "delivery": {wire.written(held.delivery)}}}'
    )
    await stage.queues.send(names.status_queue(stage.address.prefix), [body])

    async def is_scheduled():
        return (await stage.job(job)).state is State.SCHEDULED

    await until(is_scheduled, "it will be retried")
    found = await stage.job(job)
    assert (found.attempt, found.failure.attempt) == (1, 1)
