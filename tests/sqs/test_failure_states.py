"""The eight failure states that the original project of Orchestrator V2 lists, each with what becomes of its task."""

from __future__ import annotations

from datetime import timedelta

from sqs_faults import Faulty
from sqs_stage import until
from sqs_tasks import add, echo

from daybreak import values
from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import Done, Failed, Failure, State
from daybreak.sqs import queue_names as names
from daybreak.sqs import setup
from daybreak.sqs.deliveries import KIND


async def failed_once(stage, failure):
    """The job after its worker reported this failure, and the job after the attempt that follows."""
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    await player.end(await player.take_one(), Failed(failure))

    async def is_reported():
        return (await stage.job(job)).failure

    await until(is_reported, "the failure is in the ledger")
    return job, player


async def completes(stage, job, player):
    lease = await player.take_one()
    await player.end(lease, Done(values.encode("x", "result")))
    return await stage.ended(job)


async def test_state_1_the_task_cannot_be_fetched(stage):
    """SQS does not answer: the worker asks again, and the job is not charged for it."""
    job = await echo.asubmit("x")
    await stage.dispatcher()
    faults = []

    def wrap(client):
        faults.append(Faulty(client, refuses={"receive_message": 3}))
        return faults[-1]

    await stage.worker(wrap=wrap)
    found = await stage.ended(job)
    assert faults[0].refused == 3
    assert (found.state, found.attempt) == (State.COMPLETED, 1)


async def test_state_2_access_to_the_file_cannot_be_granted(stage):
    """An expired or refused signature (403) is not retried with the same arguments: it fails, and says so."""
    job, _ = await failed_once(stage, Failure(message="signature expired", status=403))
    found = await stage.job(job)
    assert (found.state, found.failure.status) == (State.FAILED, 403)


async def test_state_3_the_download_fails(stage):
    job, player = await failed_once(stage, Failure(message="timed out", kinds=("TimeoutError", "OSError")))
    assert (await stage.job(job)).state is State.SCHEDULED
    found = await completes(stage, job, player)
    assert (found.state, found.attempt) == (State.COMPLETED, 2)


async def test_state_4_the_processing_fails(stage):
    """An error of the program itself is permanent, and is not tried on every worker in turn."""
    job, _ = await failed_once(stage, Failure(message="bad audio", kinds=("ValueError", "Exception")))
    found = await stage.job(job)
    assert found.failure.message == "bad audio"
    assert found.attempt == 1
    assert found.state is State.FAILED


async def test_state_5_the_upload_fails(stage):
    job, player = await failed_once(stage, Failure(message="503", status=503, retry_after=timedelta(seconds=1)))
    assert (await stage.job(job)).state is State.SCHEDULED
    assert (await completes(stage, job, player)).attempt == 2


async def test_state_6_the_network_fails_while_the_outcome_is_sent(stage):
    """The worker keeps the outcome and the message until the status queue has accepted it."""
    job = await echo.asubmit("x")
    await stage.dispatcher()
    player = await stage.player()
    lease = await player.take_one()
    player.source._queues._client = Faulty(player.source._queues._client, refuses={"send_message_batch": 1})
    try:
        await player.end(lease, Done(values.encode("x", "result")))
        raise AssertionError("the send should have failed")
    except StoreUnavailable:
        pass
    counts = {one.name: one for one in await setup.count(stage.queues)}
    assert counts[names.task_queue(stage.address.prefix, "normal")].in_flight == 1
    await player.end(lease, Done(values.encode("x", "result")))
    found = await stage.ended(job)
    assert (found.state, found.attempt) == (State.COMPLETED, 1)


async def test_state_7_the_worker_crashes(stage):
    job = await echo.asubmit("x")
    await stage.dispatcher()
    dead = await stage.player(lease=1)
    await dead.take_one()

    async def is_bound():
        return await (await stage.store()).records(KIND, job.id)

    await until(is_bound, "the ledger has heard that the job began")
    heir = await stage.player()
    found = await completes(stage, job, heir)
    assert (found.state, found.attempt, found.lost) == (State.COMPLETED, 2, 1)


async def test_state_8_the_database_cannot_be_updated(stage, monkeypatch):
    """The ledger's store is away while an outcome arrives: the message stays, and is applied when the store is back."""
    await stage.queues.call(
        "set_queue_attributes",
        QueueUrl=await stage.queues.url(names.status_queue(stage.address.prefix)),
        Attributes={"VisibilityTimeout": "1"},
    )
    job = await add.asubmit(1, 2)
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()  # its lease outlasts the outage
    lease = await player.take_one()
    exchange, failures = dispatcher._source.exchange, []

    async def away(ended, claim, **options):
        if ended and len(failures) < 1:
            failures.append(ended)
            raise StoreUnavailable("the database is being restarted")
        return await exchange(ended, claim, **options)

    monkeypatch.setattr(dispatcher._source, "exchange", away)
    await player.end(lease, Done(values.encode(3, "result")))
    found = await stage.ended(job)
    assert len(failures) == 1
    assert (values.decode(found.result), found.attempt) == (3, 1)
