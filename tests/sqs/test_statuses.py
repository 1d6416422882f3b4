"""The statuses of the Orchestrator V2 document: Pending, In-progress, Completed, Failed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner
from sqs_stage import until
from sqs_tasks import app, echo

from daybreak import values
from daybreak.cli.root import root
from daybreak.core.model import Done, Failed, Failure, State
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
