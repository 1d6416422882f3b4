"""Log lines about jobs. This is the only module that logs what becomes of a job. It does not touch the root logger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from daybreak.core.model import JobSpec, Lease, Reason, Settlement, State
from daybreak.store.protocol import Inserted, Verdict
from daybreak.system.code_digest import code_changed

_log = logging.getLogger("daybreak.worker")
_client_log = logging.getLogger("daybreak")

MAX_WARNED_JOBS: Final = 10_000
_warned: set[str] = set()  # ids of jobs for which a change of code was logged


def settled(lease: Lease, settlement: Settlement) -> None:
    """Log how an attempt ended. A success at the first attempt is logged only at level DEBUG."""
    spec = lease.spec
    if settlement.state is State.COMPLETED and lease.attempt == 1 and not _log.isEnabledFor(logging.DEBUG):
        return  # there may be thousands per second
    job = f"{spec.task} {spec.id}"
    attempt = f"attempt {lease.attempt}/{spec.options.retry.attempts}"
    match settlement.state:
        case State.COMPLETED if lease.attempt > 1:
            _log.info("%s: succeeded on %s", job, attempt)
        case State.COMPLETED:
            _log.debug("%s: completed", job)
        case State.FAILED:
            _log.error("%s: %s failed: %s; %s", job, attempt, settlement.failure, _conclusion(settlement))
        case State.SCHEDULED:
            wait = (settlement.delay or timedelta()).total_seconds()
            _log.warning("%s: %s failed: %s; retrying in %.1f s", job, attempt, settlement.failure, wait)
        case State.QUEUED if settlement.failure is not None:
            _log.warning("%s: %s lost: %s; running again", job, attempt, settlement.failure.message)
        case State.QUEUED:
            _log.info("%s: handed back, not charged", job)
        case State.SUSPENDED:
            _log.info("%s: suspended%s", job, f": {settlement.note}" if settlement.note else "")
        case State.CANCELLED:
            _log.info("%s: cancelled", job)


def _conclusion(settlement: Settlement) -> str:
    match settlement.reason:
        case Reason.EXHAUSTED | Reason.TIMEOUT:
            return "no attempts left"
        case Reason.LOST:
            return "giving up: its process crashed too many times"
        case _:
            return "not retrying"


def shed(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    """Log the jobs that were removed from full queues in favour of these."""
    for spec, answer in zip(specs, answers, strict=True):
        if answer.evicted:
            _client_log.warning(
                "queue %s is full: removed job %s in favour of %s %s, which is more urgent",
                spec.queue, answer.evicted, spec.task, spec.id,
            )  # fmt: skip


def duplicates_of_other_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> list[tuple[JobSpec, str]]:
    """Which of these have a key whose job was submitted when the task had other code, each with the id of that job."""
    return [
        (spec, answer.job)
        for spec, answer in zip(specs, answers, strict=True)
        if answer.verdict is Verdict.DUPLICATE and code_changed(answer.code, spec.code)
    ]


def changed_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    """Warn, once per job, that its result may come from older code."""
    found = [(spec, job) for spec, job in duplicates_of_other_code(specs, answers) if job not in _warned]
    if not found:
        return
    if len(_warned) > MAX_WARNED_JOBS:
        _warned.clear()
    _warned.update(job for _, job in found)
    spec, job = found[0]
    more = f" ({len(found) - 1} more like it)" if len(found) > 1 else ""
    _client_log.warning("%s%s", describe_code_change(spec, job), more)


def describe_code_change(spec: JobSpec, job: str) -> str:
    """Explain that no new job was made for a key, although the code of the task has changed."""
    return (
        f"key {spec.key!r} belongs to job {job}, which was submitted before the code of task {spec.task!r} changed: "
        "no new job was made. To run the task again, remove that job or use another key"
    )


def detached(lease: Lease, deadline: timedelta) -> None:
    """Log that the attempt goes on elsewhere."""
    _log.info(
        "%s %s: attempt %d goes on elsewhere, for at most %s",
        lease.spec.task, lease.spec.id, lease.attempt, deadline,
    )  # fmt: skip


def lost(lease: Lease) -> None:
    """Log that a job lost its lease while it ran."""
    _log.warning(
        "%s %s: lost its lease (fence %d) while it ran; its outcome is discarded",
        lease.spec.task,
        lease.spec.id,
        lease.fence,
    )
