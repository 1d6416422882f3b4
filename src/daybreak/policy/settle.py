"""The fate of a job is decided here and nowhere else: whatever ends a lease passes through `settle`."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec

from daybreak.core.model import (
    Cancelled,
    Done,
    Failed,
    Failure,
    HandedBack,
    Lease,
    Lost,
    Outcome,
    Reason,
    Settlement,
    State,
    Suspended,
    TimedOut,
)
from daybreak.policy.outcome_label import Word, outcome_label, waited_for
from daybreak.policy.retain import keep_for
from daybreak.policy.retry import TYPICAL_SUCCESS, delay_for, may_retry
from daybreak.policy.timeouts import describe_limit


def settle(lease: Lease, outcome: Outcome, *, chance: float, by: str, success: float = TYPICAL_SUCCESS) -> Settlement:
    """What becomes of the job, as data. `chance` in [0, 1) is for jitter; `success` is the share of recent attempts
    that succeeded with the job's resources."""
    if lease.spec.holder is not None:
        return _settle_held(lease, outcome, by)
    match outcome:
        case Done(result, ran, note):
            return _end(lease, State.COMPLETED, by, result=result, ran=ran, note=note)
        case Cancelled(who):
            return _end(lease, State.CANCELLED, who or by)
        case HandedBack(checkpoint, delay, unused, charged):
            state = State.QUEUED if delay is None else State.SCHEDULED
            attempt = lease.attempt if charged else lease.attempt - 1
            return _requeue(lease, state, by, attempt=attempt, checkpoint=checkpoint, delay=delay, unused=unused)
        case Suspended(note, checkpoint):
            return _requeue(lease, State.SUSPENDED, by, attempt=lease.attempt - 1, checkpoint=checkpoint, note=note)
        case Failed(failure, ran):
            return _after_failure(lease, failure, ran, _RetryInputs(chance, success), by)
        case TimedOut():
            return _after_timeout(lease, outcome, _RetryInputs(chance, success), by)
        case Lost() if lease.detached:
            return _after_deadline(lease, _RetryInputs(chance, success), by)
        case Lost(detail, alone):
            return _after_loss(lease, detail, by, alone=alone)


def _settle_held(lease: Lease, outcome: Outcome, by: str) -> Settlement:
    """The end of a job with a holder, such as a lock. It is never retried: no worker would claim it."""
    match outcome:
        case Lost(detail):
            story = detail or "its holder died, or sent no heartbeat for a whole lease"
            failure = Failure(message=story, kinds=("Lost",), attempt=lease.attempt)
            return _end(lease, State.FAILED, by, reason=Reason.LOST, failure=failure, lost=lease.lost + 1)
        case Cancelled(who):
            return _end(lease, State.CANCELLED, who or by)
        case Failed(failure):
            return _end(lease, State.FAILED, by, reason=Reason.ERROR, failure=failure)
        case Done(_, ran):
            return _end(lease, State.COMPLETED, by, ran=ran)
        case _:
            return _end(lease, State.COMPLETED, by)


def _charged_attempts(lease: Lease) -> int:
    """The attempts that count towards `Retry.attempts`: earlier ones that ended with their process do not."""
    return lease.attempt - lease.lost


class _RetryInputs(NamedTuple):
    chance: float
    success: float


def _after_failure(lease: Lease, failure: Failure, ran: float, inputs: _RetryInputs, by: str) -> Settlement:
    retry = lease.spec.options.retry
    failure = msgspec.structs.replace(failure, attempt=lease.attempt)
    if not may_retry(failure, retry):
        return _end(lease, State.FAILED, by, reason=Reason.ERROR, failure=failure, ran=ran)
    if _charged_attempts(lease) >= retry.attempts:
        return _end(lease, State.FAILED, by, reason=Reason.EXHAUSTED, failure=failure, ran=ran)
    delay = delay_for(retry, _charged_attempts(lease), inputs.chance, failure.retry_after, success=inputs.success)
    return _requeue(lease, State.SCHEDULED, by, delay=delay, failure=failure, ran=ran)


def _after_timeout(lease: Lease, late: TimedOut, inputs: _RetryInputs, by: str) -> Settlement:
    retry, after = lease.spec.options.retry, late.after
    failure = Failure(
        message=late.story or f"ran longer than its limit of {describe_limit(lease.spec.options, after)}",
        kinds=("TimeoutError",),
        traceback=late.stack,
        attempt=lease.attempt,
    )
    word: Word = "hung" if late.story and not lease.detached else "late"
    # A hung job of a batch call counts as one that timed out, too: it must run alone next time, because any of them may
    # have hung.
    timeouts, ran = lease.timeouts + (word == "late" or lease.group is not None), after.total_seconds()
    if _charged_attempts(lease) >= retry.attempts:
        return _end(
            lease, State.FAILED, by, reason=Reason.TIMEOUT, failure=failure, timeouts=timeouts, ran=ran, word=word
        )
    delay = delay_for(retry, _charged_attempts(lease), inputs.chance, success=inputs.success)
    return _requeue(lease, State.SCHEDULED, by, delay=delay, failure=failure, timeouts=timeouts, ran=ran, word=word)


def _after_deadline(lease: Lease, inputs: _RetryInputs, by: str) -> Settlement:
    """Nobody finished a detached attempt before its deadline. No process has died, so no death is charged."""
    story = "it went on elsewhere, and nobody finished it before its deadline"
    return _after_timeout(lease, TimedOut(timedelta(), story), inputs, by)


def _after_loss(lease: Lease, detail: str, by: str, *, alone: bool) -> Settlement:
    """The attempt ended with its process. It is charged as one attempt, and the job runs again at once, because the job
    need not be to blame. Only a job that ran alone is to blame: it fails once its deaths or its attempts are used up.
    Any other job runs again even then; otherwise a power cut would fail every job that has only one attempt. A job that
    had not begun is not charged."""
    if not lease.begun:
        return _requeue(lease, State.QUEUED, by, attempt=lease.attempt - 1)
    options, lost = lease.spec.options, lease.lost + 1
    ends = alone and (lost >= options.deaths or _charged_attempts(lease) >= options.retry.attempts)
    story = detail or "its worker died, or sent no heartbeat for a whole lease"
    if ends:
        times = "once" if lost == 1 else f"{lost} times, the last time"
        story += f"; the job crashed {times} while it ran alone"
        if lost < options.deaths:
            story += ", on its last attempt"
    failure = Failure(message=story, kinds=("Lost",), attempt=lease.attempt)
    if ends:
        return _end(lease, State.FAILED, by, reason=Reason.LOST, failure=failure, lost=lost)
    return _requeue(lease, State.QUEUED, by, failure=failure, lost=lost)


def _end(
    lease: Lease,
    state: State,
    by: str,
    *,
    result: bytes | None = None,
    reason: Reason | None = None,
    failure: Failure | None = None,
    lost: int | None = None,
    timeouts: int | None = None,
    ran: float = 0.0,
    word: Word = "",
    note: str = "",
) -> Settlement:
    is_first = lease.attempt == 1
    return Settlement(
        seq=lease.seq,
        job=lease.spec.id,
        fence=lease.fence,
        state=state,
        reason=reason,
        attempt=lease.attempt,
        note=note,
        lost=lease.lost if lost is None else lost,
        timeouts=lease.timeouts if timeouts is None else timeouts,
        result=result,
        failure=failure,
        keep_for=keep_for(lease.spec.options, state),
        by=by,
        counts_as="completed" if is_first and state is State.COMPLETED else outcome_label(lease, state, reason, word),
        ran=int(ran * 1e6),
        waited=waited_for(lease) if is_first else None,
    )


def _requeue(
    lease: Lease,
    state: State,
    by: str,
    *,
    attempt: int | None = None,
    delay: timedelta | None = None,
    failure: Failure | None = None,
    checkpoint: bytes | None = None,
    note: str = "",
    lost: int | None = None,
    timeouts: int | None = None,
    ran: float = 0.0,
    word: Word = "",
    unused: bool = False,
) -> Settlement:
    is_charged = attempt is None
    return Settlement(
        seq=lease.seq,
        job=lease.spec.id,
        fence=lease.fence,
        state=state,
        attempt=lease.attempt if attempt is None else attempt,
        lost=lease.lost if lost is None else lost,
        timeouts=lease.timeouts if timeouts is None else timeouts,
        delay=delay,
        failure=failure,
        checkpoint=checkpoint,
        note=note,
        by=by,
        counts_as=outcome_label(lease, state, None, word) if is_charged else "",
        ran=int(ran * 1e6),
        waited=waited_for(lease) if is_charged and lease.attempt == 1 else None,
        unused=unused,
    )
