"""Real workers over SQS: long jobs, cancel, spot notices, large values, messages that nobody can run."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from datetime import timedelta

import pytest
from sqs_faults import Faulty
from sqs_stage import tasks_app, until
from sqs_tasks import add, count_up, echo, flaky, halves, nap

from daybreak import values
from daybreak.api.worker_info import read_workers
from daybreak.core.model import State
from daybreak.sqs.spot_notice import SpotNotice

PATIENT = 600  # heartbeats that may be missed: on a loaded machine they come late, and the verdict is about visibility


async def began(stage):
    async def has_lines():
        return stage.lines("began")

    return await until(has_lines, "the job began")


async def test_a_job_that_runs_longer_than_the_visibility_timeout_runs_once(stage):
    await stage.dispatcher(missed=PATIENT)
    await stage.worker(lease_for=timedelta(seconds=1))
    await stage.worker(lease_for=timedelta(seconds=1))
    job = await nap.asubmit(3, str(stage.file))
    found = await stage.ended(job)
    assert (found.state, found.attempt, found.fence) == (State.COMPLETED, 1, 1)
    assert len(stage.lines("began")) == 1


async def test_a_job_beyond_what_sqs_can_hide_ends_once(stage):
    """As beyond 12 hours of visibility: after two extensions SQS refuses more, and delivers the message again."""
    faults = []

    def wrap(client):
        faults.append(Faulty(client, extensions=2))
        return faults[-1]

    await stage.dispatcher(missed=PATIENT)
    for _ in range(2):
        await stage.worker(wrap=wrap, lease_for=timedelta(seconds=1))
    job = await nap.asubmit(3.5, str(stage.file))
    found = await stage.ended(job)
    assert sum(fault.refused for fault in faults) > 0
    assert (found.state, found.attempt, found.fence) == (State.COMPLETED, 1, 1)
    assert len(stage.lines("began")) == 1


async def test_a_cancel_of_a_running_job_ends_it_with_the_next_heartbeat(stage):
    await stage.dispatcher()
    await stage.worker(lease_for=timedelta(seconds=3))  # a heartbeat every second
    job = await nap.asubmit(600, str(stage.file))
    await began(stage)
    asked = time.monotonic()
    await job.acancel()
    found = await stage.ended(job)
    assert found.state is State.CANCELLED
    assert time.monotonic() - asked < 300  # the nap takes 600 s


async def test_what_is_cancelled_while_it_lies_in_a_task_queue_never_starts(stage):
    await stage.dispatcher()
    job = await nap.asubmit(0, str(stage.file))

    async def is_sent():
        return (await stage.job(job)).state is State.RUNNING

    await until(is_sent, "the job is dispatched")
    await job.acancel()
    assert (await stage.ended(job)).state is State.CANCELLED
    player = await stage.player()
    while await player.take():  # its message is there; whoever took it would be told to drop it
        pass
    assert (await stage.job(job)).state is State.CANCELLED
    assert stage.lines() == []


class Metadata(http.server.BaseHTTPRequestHandler):
    """The instance metadata service, version 2. The notice is there once `taken` is set."""

    taken = threading.Event()
    without_token = 0

    def do_PUT(self):
        self._reply(200, "token-1")

    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") != "token-1":
            type(self).without_token += 1
            self._reply(401, "")
        elif self.taken.is_set() and self.path.endswith("instance-action"):
            self._reply(200, '{"action": "terminate", "time": "2026-01-31T12:02:00Z"}')
        else:
            self._reply(404, "")

    def _reply(self, code, text):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def metadata():
    Metadata.taken.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_a_termination_notice_hands_back_uncharged_with_the_checkpoint(stage, metadata):
    await stage.dispatcher()
    job = await count_up.asubmit(30, str(stage.file))
    first, running = await stage.worker(grace=timedelta(0), notice=SpotNotice(metadata, interval=0.1))

    async def has_steps():
        return len(stage.lines()) >= 5

    await until(has_steps, "some steps are done")
    Metadata.taken.set()
    await asyncio.wait_for(running, 60)
    assert first.is_stopping
    steps = len(stage.lines())
    await stage.worker()
    found = await stage.ended(job)
    assert values.decode(found.result) == 30
    assert (found.attempt, found.lost) == (1, 0)
    assert found.fence > 1
    assert len(stage.lines()) - 30 <= 1  # at most one checkpoint interval was done twice
    assert steps < 30
    assert Metadata.without_token == 0


async def test_a_recoverable_failure_is_retried_after_its_delay(stage):
    await stage.dispatcher()
    await stage.worker()
    job = await flaky.asubmit(str(stage.file))
    found = await stage.ended(job)
    assert (values.decode(found.result), found.attempt) == ("done", 2)


async def test_large_arguments_and_results_go_by_claim_check(stage):
    text = "x" * 300_000
    await stage.dispatcher()
    await stage.worker()
    job = await echo.asubmit(text)
    assert await job.aresult() == text
    sizes = [info.size for info in stage.blobs.infos()]
    assert sum(size > 250_000 for size in sizes) == 2  # the arguments, and the result


async def test_large_arguments_without_a_place_for_them_fail_with_what_to_do(stage):
    await stage.dispatcher(blobs=None)
    found = await stage.ended(await echo.asubmit("x" * 300_000))
    assert found.state is State.FAILED
    assert "DAYBREAK_FILES" in found.failure.message


async def test_remote_workers_are_listed_and_leave_the_list(stage):
    await stage.dispatcher()
    worker, running = await stage.worker(name="spot")
    client = await tasks_app.client()

    async def is_listed():
        return [one for one in await read_workers(client) if one.id == worker.id]

    record = (await until(is_listed, "the worker is listed"))[0]
    assert record.name == "spot"
    assert ("add", 1) in record.tasks
    worker.stop()
    await asyncio.wait_for(running, 60)

    async def is_gone():
        return not await is_listed()

    await until(is_gone, "the worker has left the list")


async def test_an_outage_of_sqs_delays_jobs_and_loses_none(stage):
    await stage.dispatcher()
    calls = ("send_message_batch", "receive_message", "delete_message_batch")
    faults = []

    def wrap(client):
        faults.append(Faulty(client, refuses=dict.fromkeys(calls, 2)))
        return faults[-1]

    player = await stage.player()  # holds a connection of its own
    await stage.worker(wrap=lambda client: _after_start(client, wrap))
    found = [await stage.ended(await add.asubmit(n, n)) for n in range(3)]
    assert [values.decode(job.result) for job in found] == [0, 2, 4]
    assert faults[0].refused == 6
    assert player.worker.stops == 0


def _after_start(client, wrap):
    """The first message of a worker must arrive; afterwards calls fail."""

    class Later:
        def __init__(self):
            self._faulty = wrap(client)
            self._started = False

        def __getattr__(self, operation):
            if operation == "send_message_batch" and not self._started:
                self._started = True
                return getattr(client, operation)
            return getattr(self._faulty, operation)

    return Later()


async def test_items_of_a_batch_task_run_one_by_one(stage):
    """A message is one job: nothing is put together on the way to a remote worker."""
    await stage.dispatcher()
    await stage.worker()
    jobs = [await halves.asubmit(item) for item in (1, 0, 3)]
    found = [await stage.ended(job) for job in jobs]
    assert [one.state for one in found] == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert [values.decode(one.result) for one in found if one.result] == [0.5, 1.5]
    assert found[1].failure.message == "no half of nothing"
    assert {one.attempt for one in found} == {1}
