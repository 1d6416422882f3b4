"""What people are told about jobs on remote workers: the real worker and its heartbeat, not only the dispatcher."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from click.testing import CliRunner
from sqs_stage import until
from sqs_tasks import app, echo

from daybreak.api.why import explain, read_situation, summarise
from daybreak.api.worker_info import read_workers
from daybreak.cli.root import root
from daybreak.core.model import State

LONG = timedelta(seconds=30)  # a worker counts as live for three times that


async def told(*words):
    return (await asyncio.to_thread(CliRunner().invoke, root, [*words, "--url", app.settings.url])).output


async def why(job):
    return explain(await read_situation(await app.client(), job.id))


async def with_kind(job, kind):
    """The answer to why, once it has a cause of this kind."""

    async def has_it():
        answer = await why(job)
        return answer if kind in {cause.kind for cause in answer.causes} else None

    return await until(has_it, f"why answers {kind}")


async def remote_player(stage):
    """A played worker that has announced itself, and is listed."""
    player = await stage.player(lease=30)

    async def is_listed():
        return [one for one in await read_workers(await app.client()) if one.id == player.source.worker]

    await until(is_listed, "the worker is listed")
    return player


async def running_on_a_remote_worker(stage):
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher(lease_for=LONG)
    player = await remote_player(stage)
    await player.take_one()

    async def is_bound():
        return (await read_situation(await app.client(), job.id)).delivery

    await until(is_bound, "the ledger has heard that the job began")
    return job, player.source.worker, dispatcher.id


async def test_why_names_the_remote_worker_and_its_last_heartbeat(stage):
    job, worker, dispatcher = await running_on_a_remote_worker(stage)
    found = await told("why", job.id)
    assert "It runs on remote for" in found
    assert f"{worker} sent its last heartbeat" in found
    assert dispatcher not in found


async def test_jobs_show_names_the_remote_worker_its_heartbeat_and_the_dispatcher(stage):
    job, worker, dispatcher = await running_on_a_remote_worker(stage)
    found = " ".join((await told("jobs", "show", job.id)).split())
    assert f"{worker}, last heartbeat" in found
    assert f"sent by {dispatcher}" in found


async def test_workers_and_doctor_know_the_tasks_of_remote_workers(stage):
    job = await echo.using(queue="night").asubmit("x")
    await stage.dispatcher(queues=("default", "other"), lease_for=LONG)
    player = await remote_player(stage)
    listed = {one["id"]: one for one in json.loads(await told("workers", "--json"))["workers"]}
    assert {"task": "echo", "version": 1} in listed[player.source.worker]["tasks"]
    assert listed[player.source.worker]["queues"] == ["default", "other"]  # those that the dispatcher claims from
    assert {cause.kind for cause in (await why(job)).causes} == {"unserved queue"}
    found = await told("doctor")
    assert "2 live workers" in found
    assert "no live worker has" not in found
    assert "'night', which no live worker that has their task serves" in found


async def test_a_job_that_no_remote_worker_has_begun_is_said_to_lie_in_the_queues(stage):
    job = await echo.asubmit("x")
    dispatcher, _ = await stage.dispatcher(lease_for=LONG)
    answer = await with_kind(job, "dispatched")
    assert str(stage.address) in answer.causes[0].text
    assert answer.causes[1].kind == "unknown task"  # no worker is there
    assert answer.causes[1].command[-2:] == ("--url", str(stage.address))
    assert (await stage.job(job)).state is State.RUNNING
    assert dispatcher.running == 1
    await remote_player(stage)
    assert [cause.kind for cause in (await why(job)).causes] == ["dispatched"]


async def test_doctor_says_to_start_a_worker_on_the_queues_to_which_jobs_are_sent(stage):
    jobs = [await echo.asubmit("x") for _ in range(3)]
    await stage.dispatcher(depth=1, lease_for=LONG)
    await with_kind(jobs[0], "dispatched")  # the others wait
    found = await told("doctor")
    assert f"daybreak worker TARGET --url {stage.address}" in found


async def test_the_summary_of_why_says_to_start_a_worker_on_the_queues_to_which_jobs_are_sent(stage):
    jobs = [await echo.asubmit("x") for _ in range(3)]
    await stage.dispatcher(depth=1, lease_for=LONG)
    await with_kind(jobs[0], "dispatched")  # the others wait
    [cause] = await summarise(await app.client())
    assert (cause.kind, cause.n) == ("unknown task", 2)
    assert cause.command == ("worker", "TARGET", "--url", str(stage.address))
    assert f"daybreak worker TARGET --url {stage.address}" in await told("why", "--summary")
    player = await remote_player(stage)
    player.worker.is_stopping = True
    await player.source._announce()

    async def is_draining():
        return [one for one in await summarise(await app.client()) if one.kind == "draining"]

    [cause] = await until(is_draining, "the worker is known to stop")
    assert cause.command[-2:] == ("--url", str(stage.address))
