"""The status of a job in the words of the Orchestrator V2 document: Pending, In-progress, Completed, Failed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from daybreak.core.model import Job, State
from daybreak.sqs.deliveries import DeliveryRecord, is_dispatcher, read_delivery
from daybreak.store.protocol import Store

Status = Literal["Pending", "In-progress", "Completed", "Failed"]
_FINAL: Final[dict[State, Status]] = {
    State.COMPLETED: "Completed",
    State.FAILED: "Failed",
    State.CANCELLED: "Failed",
}


class TaskStatus(Struct, frozen=True, kw_only=True):
    """A job as the document's table has it. `worker_id` runs it now; `heartbeat_age` is how many seconds ago it was
    heard of. A job that failed and will be retried is Pending, with its `failure_reason` and `retry_at`."""

    task_id: str
    status: Status
    worker_id: str | None
    heartbeat_age: float | None
    attempt: int
    fence: int
    failure_reason: str | None
    retry_at: datetime | None


def status_of(job: Job, delivery: DeliveryRecord | None, now: datetime) -> TaskStatus:
    """The status of a job. A job that lies in a task queue, where nobody has begun it, is Pending."""
    if delivery is not None and delivery.fence != job.fence:
        delivery = None
    is_running = job.state is State.RUNNING
    remote = delivery if is_running else None
    is_dispatched = is_running and remote is None and not job.detached and is_dispatcher(job.worker)
    in_progress = is_running and not is_dispatched
    age: timedelta | None = None if remote is None else remote.heartbeat_age(job, now)
    worker = None
    if in_progress and not job.detached:
        worker = job.worker if remote is None else remote.worker
    reason = None if job.failure is None else str(job.failure)
    if job.state is State.CANCELLED:
        reason = "cancelled"
    return TaskStatus(
        task_id=job.id,
        status=_FINAL.get(job.state, "In-progress" if in_progress else "Pending"),
        worker_id=worker,
        heartbeat_age=None if age is None else age.total_seconds(),
        attempt=job.attempt,
        fence=job.fence,
        failure_reason=reason,
        retry_at=job.run_at if job.state is State.SCHEDULED else None,
    )


async def read_status(store: Store, job: Job, now: datetime) -> TaskStatus:
    """The status of a job, with what its remote worker said last."""
    return status_of(job, await read_delivery(store, job.id), now)
