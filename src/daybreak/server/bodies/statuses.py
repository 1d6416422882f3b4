"""The status of a job in the words of the Orchestrator V2 document."""

from __future__ import annotations

from typing import Literal

from daybreak.server.bodies.base import Answer


class TaskStatusBody(Answer, frozen=True):
    """A job as the Orchestrator V2 document's table has it. `worker_id` runs it now; a remote worker was heard of
    `heartbeat_age` seconds ago. A job that failed and will be retried is `Pending`, with its `failure_reason` and
    `retry_at`."""

    task_id: str
    status: Literal["Pending", "In-progress", "Completed", "Failed"]
    worker_id: str | None
    heartbeat_age: float | None
    attempt: int
    fence: int
    failure_reason: str | None
    retry_at: str | None
