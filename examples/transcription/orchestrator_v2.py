"""The names of the Orchestrator V2 document: what its messages are here.

The messages on the queues are those of Daybreak's SQS transport; these functions read them as the document has them.
The rows of its database are `daybreak sqs task JOB`, and `GET /api/v1/jobs/{id}/status`."""

import json
from typing import Any

PENDING, IN_PROGRESS, COMPLETED, FAILED = "Pending", "In-progress", "Completed", "Failed"

_META_PREFIX = "json:"


def task_message(body: str) -> dict[str, Any]:
    """A message of the task queue, as a worker node gets it."""
    message = json.loads(body)
    _expect(message, "task")
    grant = json.loads(message["job"].get("meta", {}).get("grant", _META_PREFIX + "{}").removeprefix(_META_PREFIX))
    return {"task_id": message["task_id"], "attempt": message["attempt"], **grant}


def status_messages(body: str) -> list[dict[str, Any]]:
    """A message of the status update queue, one entry per task. A heartbeat may tell of several."""
    message = json.loads(body)
    if message["kind"] == "heartbeat":
        return [_status(beat["delivery"], IN_PROGRESS, heartbeat=True) for beat in message["beats"]]
    _expect(message, "started", "outcome")
    status = message.get("status", IN_PROGRESS)
    return [_status(message["delivery"], status, failure_reason=message.get("failure_reason"))]


def retry_message(body: str) -> dict[str, Any]:
    """A message of the retry queue: a task that failed, and may succeed later."""
    message = json.loads(body)
    _expect(message, "outcome")
    return _status(message["delivery"], FAILED, failure_reason=message["failure_reason"])


def _status(delivery: dict[str, Any], status: str, **more: Any) -> dict[str, Any]:
    told = {key: value for key, value in more.items() if value}
    return {"task_id": delivery["task_id"], "worker_id": delivery["worker_id"], "status": status, **told}


def _expect(message: dict[str, Any], *kinds: str) -> None:
    if message.get("kind") not in kinds:
        raise ValueError(f"a message of kind {message.get('kind')!r} is none of {', '.join(kinds)}")
