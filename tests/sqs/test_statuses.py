"""The statuses of the Orchestrator V2 document: Pending, In-progress, Completed, Failed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner
from sqs_stage import until
from sqs_tasks import app, echo

from daybreak import values
from daybreak.api.job_history import attempts
from daybreak.cli.root import root
from daybreak.core.model import Done, Failed, Failure, State
from daybreak.server.routes.jobs import job_views
from daybreak.sqs.statuses import read_status


async def status(stage, job):
    return await read_status(await stage.store(), await stage.job(job), datetime.now(UTC))


async def test_a_job_is_pending_until_a_worker_begins_it_and_then_in_progress(stage):
    job = await echo.asubmit("x")
    assert (await status(stage, job)).status == "Pending"
    await stage.dispatcher()

    async def is_sent():
        return (await stage.job(job)).state is State.RUNNING

    await until(is_sent, "the job lies in a task queue")
    found = await status(stage, job)
    assert (found.status, found.worker_id) == ("Pending", None)
    player = await stage.player(lease=30)
    lease = await player.take_one()

    async def is_in_progress():
        found = await status(stage, job)
        return found if found.status == "In-progress" else None

    found = await until(is_in_progress, "the worker has begun it")
    assert found.worker_id == player.source.worker
    assert (found.attempt, found.fence) == (1, 1)
    assert found.heartbeat_age < 30
    failure = Failure(message="rate limit", kinds=("RateLimited",), status=429, retry_after=timedelta(hours=1))
    await player.end(lease, Failed(failure))

    async def waits():
        found = await status(stage, job)
        return found if found.status == "Pending" else None

    found = await until(waits, "it waits to be retried")
    assert found.failure_reason == "RateLimited: rate limit"
    assert found.retry_at > datetime.now(UTC) + timedelta(minutes=50)
    assert found.worker_id is None


async def shown(job):
    """What `jobs show`, `jobs` and REST say of the worker of a job, which is the same everywhere."""
    where = ["--url", app.settings.url, "--json"]
    one = await asyncio.to_thread(CliRunner().invoke, root, ["jobs", "show", job.id, *where])
    page = await asyncio.to_thread(CliRunner().invoke, root, ["jobs", *where])
    client = await app.client()
    rest = await job_views(client, (await client.find(limit=10)).jobs)
    listed = [view for view in json.loads(page.output)["jobs"] if view["id"] == job.id]
    found = {view["worker"] for view in (json.loads(one.output), *listed, *(v for v in rest if v["id"] == job.id))}
    assert len(listed) == len(found) == 1
    return found.pop()


async def test_views_of_a_job_name_the_remote_worker_and_not_the_dispatcher(stage):
    good, bad, waiting = await echo.asubmit("x"), await echo.asubmit("y"), await echo.asubmit("z")
    dispatcher, _ = await stage.dispatcher()
    player = await stage.player()
    for job in (good, bad):
        assert (await player.take_one()).job == job.id

    async def are_begun():
        return len(await (await stage.store()).records("delivery")) == 2

    await until(are_begun, "the ledger has heard that both began")
    assert (await stage.job(good)).worker == dispatcher.id
    assert await shown(good) == await shown(bad) == player.source.worker
    await until(lambda: is_running(stage, waiting), "the third lies in a task queue")
    assert await shown(waiting) is None
    leases = {held.lease.job: held.lease for held in player.source._held.values()}
    await player.end(leases[good.id], Done(values.encode("x", "result")))
    await player.end(leases[bad.id], Failed(Failure(message="bad audio", kinds=("ValueError",), verdict="permanent")))
    await stage.ended(good)
    await stage.ended(bad)
    assert await shown(good) == await shown(bad) == player.source.worker
    assert [one.worker for one in attempts(await (await stage.store()).history(good.id))] == [player.source.worker]


async def is_running(stage, job):
    return (await stage.job(job)).state is State.RUNNING


async def test_whoever_reports_a_death_is_not_taken_for_the_worker_that_died(stage):
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher()
    dead = await stage.player(lease=1)
    await dead.take_one()

    async def is_begun():
        return await (await stage.store()).records("delivery")

    await until(is_begun, "the ledger has heard that it began")
    heir = await stage.player()
    await heir.take_one()  # after it returned the message of the dead
    first = attempts(await (await stage.store()).history(job.id))[0]
    assert first.ended in ("retrying", "lease expired")  # whoever notices first: the dispatcher, or the reaper
    assert first.worker == dispatcher.id


async def test_a_job_that_ended_is_completed_or_failed_with_its_reason(stage):
    good, bad = await echo.asubmit("x"), await echo.asubmit("y")
    await stage.dispatcher()
    player = await stage.player()
    for _ in range(2):
        lease = await player.take_one()
        error = Failure(message="bad audio", kinds=("ValueError",))
        await player.end(lease, Done(values.encode("x", "result")) if lease.job == good.id else Failed(error))
    await stage.ended(good)
    await stage.ended(bad)
    assert (await status(stage, good)).status == "Completed"
    found = await status(stage, bad)
    assert (found.status, found.failure_reason) == ("Failed", "ValueError: bad audio")
    words = ["sqs", "task", bad.id, "--url", app.settings.url, "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert json.loads(result.output)["status"] == "Failed"
