"""Facts about jobs as log lines: the only place that logs them. The root logger is left alone."""

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

TOLD_MOST: Final = 10_000
_told: set[str] = set()  # jobs of which it was said that their code has changed


def settled(lease: Lease, settlement: Settlement) -> None:
    """How an attempt ended. A success at the first try is told only to those who want every detail."""
    spec = lease.spec
    if settlement.state is State.COMPLETED and lease.attempt == 1 and not _log.isEnabledFor(logging.DEBUG):
        return  # thousands a second
    what = f"{spec.task} {spec.id}"
    tries = f"attempt {lease.attempt}/{spec.options.retry.attempts}"
    match settlement.state:
        case State.COMPLETED if lease.attempt > 1:
            _log.info("%s: succeeded on %s", what, tries)
        case State.COMPLETED:
            _log.debug("%s: completed", what)
        case State.FAILED:
            _log.error("%s: %s failed %s; %s", what, tries, settlement.failure, _ended(settlement))
        case State.SCHEDULED:
            wait = (settlement.delay or timedelta()).total_seconds()
            _log.warning("%s: %s failed %s, retrying in %.1f s", what, tries, settlement.failure, wait)
        case State.QUEUED if settlement.failure is not None:
            _log.warning("%s: %s lost: %s; running again", what, tries, settlement.failure.message)
        case State.QUEUED:
            _log.info("%s: handed back, not charged", what)
        case State.SUSPENDED:
            _log.info("%s: suspended%s", what, f": {settlement.note}" if settlement.note else "")
        case State.CANCELLED:
            _log.info("%s: cancelled", what)


def _ended(settlement: Settlement) -> str:
    match settlement.reason:
        case Reason.EXHAUSTED | Reason.TIMEOUT:
            return "no attempts left"
        case Reason.LOST:
            return "given up, it was at too many deaths"
        case _:
            return "it will not be tried again"


def shed(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    """Jobs that full queues pushed out for these."""
    for spec, answer in zip(specs, answers, strict=True):
        if answer.evicted:
            _client_log.warning(
                "queue %s is full: job %s was pushed out for %s %s, which is more urgent",
                spec.queue, answer.evicted, spec.task, spec.id,
            )  # fmt: skip


def made_by_other_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> list[tuple[JobSpec, str]]:
    """Which of these were found by their key in jobs that another code of the same task was submitted by, with the ids
    of those jobs."""
    return [
        (spec, answer.job)
        for spec, answer in zip(specs, answers, strict=True)
        if answer.verdict is Verdict.DUPLICATE and code_changed(answer.code, spec.code)
    ]


def changed_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    """Warn once of each job whose result may be that of older code."""
    found = [(spec, job) for spec, job in made_by_other_code(specs, answers) if job not in _told]
    if not found:
        return
    if len(_told) > TOLD_MOST:
        _told.clear()
    _told.update(job for _, job in found)
    spec, job = found[0]
    _client_log.warning("%s%s", said_of_code(spec, job), f" ({len(found) - 1} more like it)" if len(found) > 1 else "")


def said_of_code(spec: JobSpec, job: str) -> str:
    return (
        f"key {spec.key!r} stands for job {job}, which was submitted before the code of task {spec.task!r} changed: "
        "no new job was made. To run the task anew, remove that job or use another key"
    )


def lost(lease: Lease) -> None:
    _log.warning(
        "%s %s: its lease (fence %d) was lost while it ran; its outcome is dropped",
        lease.spec.task,
        lease.spec.id,
        lease.fence,
    )
