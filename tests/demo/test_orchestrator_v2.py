"""The sequence diagram of the Orchestrator V2 document, arrow by arrow, on real queues: each test is a part of it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import orchestrator_v2 as document
import pytest
from moto.server import ThreadedMotoServer
from sqs_stage import Stage, open_stage, until
from sqs_tasks import add

from daybreak import Retry
from daybreak.core.model import Done, Failed, Failure
from daybreak.sqs.statuses import TaskStatus, read_status


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
async def stage(endpoint: str, tmp_path, monkeypatch) -> AsyncIterator[Stage]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("DAYBREAK_METADATA_URL", "off")
    async with open_stage(endpoint, f"v{secrets.token_hex(4)}", tmp_path) as stage:
        yield stage


class Wire:
    """A client that notes the messages that it sends and receives, by queue."""

    def __init__(self, client: Any, noted: list[tuple[str, str, str]]) -> None:
        self._client = client
        self._noted = noted

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    async def send_message_batch(self, **request: Any) -> Any:
        for entry in request["Entries"]:
            self._noted.append(("sent", _queue(request), entry["MessageBody"]))
        return await self._client.send_message_batch(**request)

    async def receive_message(self, **request: Any) -> Any:
        reply = await self._client.receive_message(**request)
        for message in reply.get("Messages", []):
            self._noted.append(("received", _queue(request), message["Body"]))
        return reply

    async def delete_message_batch(self, **request: Any) -> Any:
        for _ in request["Entries"]:
            self._noted.append(("deleted", _queue(request), ""))
        return await self._client.delete_message_batch(**request)


def _queue(request: dict[str, Any]) -> str:
    """task-normal, status, retry."""
    return request["QueueUrl"].rsplit("/", 1)[-1].split("-", 1)[1]


class Walk:
    """An orchestrator and a worker node, and what each of them sent and received."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.orchestrator: list[tuple[str, str, str]] = []
        self.worker_node: list[tuple[str, str, str]] = []

    async def start(self, lease: float = 20.0) -> Any:
        await self.stage.dispatcher(wrap=lambda client: Wire(client, self.orchestrator), grant=self.grant)
        return await self.worker(lease)

    async def worker(self, lease: float = 20.0) -> Any:
        return await self.stage.player(lease=lease, wrap=lambda client: Wire(client, self.worker_node))

    @staticmethod
    def grant(request: Any) -> dict[str, str]:
        return {"presigned_get_url": "https://in", "presigned_put_url": f"https://out/{request.fence}"}

    def of(self, noted: list[tuple[str, str, str]], what: str, queue: str) -> list[str]:
        return [body for one, name, body in noted if (one, name) == (what, queue)]

    def statuses(self) -> list[str]:
        """What the worker node said of tasks in the status queue."""
        bodies = [body for body in self.of(self.worker_node, "sent", "status") if '"kind":"worker"' not in body]
        return [one["status"] for body in bodies for one in document.status_messages(body)]

    async def row(self, job: Any) -> TaskStatus:
        """The task in the database."""
        return await read_status(await self.stage.store(), await self.stage.job(job), datetime.now(UTC))

    async def becomes(self, job: Any, status: str) -> None:
        async def is_so() -> bool:
            return (await self.row(job)).status == status

        await until(is_so, f"the database says {status}")


@pytest.fixture
def walk(stage) -> Walk:
    return Walk(stage)


async def test_a_task_from_the_orchestrator_to_the_worker_node_and_its_status_back_to_the_database(walk):
    node = await walk.start()
    job = add.submit(1, 2)
    assert (await walk.row(job)).status == document.PENDING
    # WorkerNode->>TaskQueue: Polls for new tasks; TaskQueue->>WorkerNode: Delivers task details
    lease = await node.take_one()
    # Orchestrator->>TaskQueue: Puts new tasks
    [sent] = walk.of(walk.orchestrator, "sent", "task-normal")
    [delivered] = walk.of(walk.worker_node, "received", "task-normal")
    assert document.task_message(delivered) == document.task_message(sent) == {
        "task_id": job.id, "attempt": 1, "presigned_get_url": "https://in", "presigned_put_url": "https://out/1",
    }  # fmt: skip
    # (Task becomes invisible)
    second = await walk.worker()
    assert await second.take() == []
    # WorkerNode->>StatusQueue: Sends status update (In-progress), before the work begins
    assert walk.statuses() == [document.IN_PROGRESS]
    # loop Heartbeat: WorkerNode->>StatusQueue: Sends heartbeat
    await node.beat(lease)
    await node.beat(lease)
    assert walk.statuses() == [document.IN_PROGRESS] * 3
    await walk.becomes(job, document.IN_PROGRESS)
    assert (await walk.row(job)).worker_id == node.source.worker
    # WorkerNode->>StatusQueue: Sends status update (Completed); only then is the task deleted
    await node.end(lease, Done(b"3"))
    assert walk.statuses()[-1] == document.COMPLETED
    own = [(what, queue) for what, queue, _ in walk.worker_node]
    assert own.index(("deleted", "task-normal")) > max(n for n, one in enumerate(own) if one == ("sent", "status"))
    # StatusQueue->>Orchestrator: Polls for task status updates; Orchestrator->>RDS: Updates task status
    await walk.becomes(job, document.COMPLETED)
    assert walk.of(walk.orchestrator, "received", "status")
    row = await walk.row(job)
    assert (row.worker_id, row.attempt, row.failure_reason) == (None, 1, None)


async def test_a_worker_node_that_fails_unexpectedly(walk):
    node = await walk.start(lease=1.0)
    job = add.submit(1, 2)
    lost = await node.take_one()  # and this node is never heard of again
    # TaskQueue: Task becomes available again after visibility timeout; WorkerNode: Another worker picks up the task
    other = await walk.worker(lease=20.0)
    again = await other.take_one()
    assert again.job == lost.job == job.id
    assert again.attempt == 2
    assert again.fence > lost.fence
    received = [document.task_message(body) for body in walk.of(walk.worker_node, "received", "task-normal")]
    assert received[-1]["presigned_put_url"] == f"https://out/{again.fence}"
    await other.end(again, Done(b"3"))
    await walk.becomes(job, document.COMPLETED)


async def test_a_task_that_fails_gracefully(walk):
    node = await walk.start()
    job = add.using(retry=Retry(attempts=3, delay="100ms")).submit(1, 2)
    lease = await node.take_one()
    # WorkerNode->>RetryQueue: Sends task to retry queue
    await node.end(lease, Failed(Failure(message="HTTP 429", status=429)))
    [failed] = [document.retry_message(body) for body in walk.of(walk.worker_node, "sent", "retry")]
    assert (failed["task_id"], failed["status"]) == (job.id, document.FAILED)
    assert "HTTP 429" in failed["failure_reason"]
    # RetryQueue->>Orchestrator: polls for retry tasks; Orchestrator->>TaskQueue: Resubmits failed task after delay
    again = await node.take_one()
    assert walk.of(walk.orchestrator, "received", "retry")
    assert len(walk.of(walk.orchestrator, "sent", "task-normal")) == 2
    assert (again.job, again.attempt) == (job.id, 2)
    # WorkerNode->>StatusQueue: Sends status update (Failed)
    await node.end(again, Failed(Failure(message="no audio", verdict="permanent")))
    assert walk.statuses()[-1] == document.FAILED
    await walk.becomes(job, document.FAILED)
    row = await walk.row(job)
    assert row.attempt == 2
    assert "no audio" in row.failure_reason


def test_a_message_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="kind 'worker'"):
        document.task_message('{"kind": "worker"}')
