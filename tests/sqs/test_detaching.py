"""Jobs that a remote worker gives up, to go on elsewhere: the ledger detaches them; what comes late changes nothing."""

from __future__ import annotations

from datetime import timedelta

from sqs_stage import until
from sqs_tasks import app, pod

from daybreak.api.worker_info import read_workers
from daybreak.core.model import Detached, Done, State
from daybreak.core.units import moment
from daybreak.sqs.deliveries import delivery_of
from daybreak.sqs.statuses import status_of


async def is_detached(stage, job):
    async def look():
        found = await stage.job(job)
        return found if found.detached else None

    return await until(look, "the job goes on elsewhere")


async def test_a_remote_task_that_detaches_is_finished_from_outside(stage):
    await stage.dispatcher()
    await stage.worker()
    job = await pod.asubmit(str(stage.file))
    found = await is_detached(stage, job)
    assert (found.state, found.attempt, found.fence) == (State.RUNNING, 1, 1)
    client = await app.client()
    assert await delivery_of(client.store, found) is None
    status = status_of(found, None, moment(client.wall()))
    assert (status.status, status.worker_id) == ("In-progress", None)

    async def are_free():
        return all(worker.running == 0 for worker in await read_workers(client))

    await until(are_free, "its worker and the dispatcher are free")
    await app.afinish(job, "done", fence=found.fence)
    assert await job == "done"
    assert len(stage.lines("began")) == 1


async def test_what_a_remote_worker_says_after_it_detached_changes_nothing(stage):
    await stage.dispatcher()
    player = await stage.player()
    job = await pod.asubmit(str(stage.file))
    lease = await player.take_one()
    held = player.source._held[lease.seq, lease.fence]
    await player.end(lease, Detached(timedelta(hours=1)))
    before = await is_detached(stage, job)
    for late in (Detached(timedelta(hours=9)), Done(b'"late"')):
        await player.source._send_outcomes([(held, late)])
    assert len(await stage.asides(2)) == 2
    assert await stage.job(job) == before
    await app.afinish(job, "done", fence=lease.fence)
    assert (await stage.ended(job)).result == b'"done"'
