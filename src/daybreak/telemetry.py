"""Facts about jobs as log lines: the only place that logs them. The root logger is left alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from daybreak.model import JobSpec, Lease, Reason, Settlement, State
from daybreak.store import Inserted

_log = logging.getLogger("daybreak.worker")
_client_log = logging.getLogger("daybreak")


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


def lost(lease: Lease) -> None:
    _log.warning(
        "%s %s: its lease (fence %d) was lost while it ran; its outcome is dropped",
        lease.spec.task,
        lease.spec.id,
        lease.fence,
    )
