"""The fate of a job, chosen in one place: whatever ends a lease passes through `settle`."""

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
    """What becomes of the job, as data. `chance` in [0, 1) is for jitter; `success` is how what it needs did lately."""
    if lease.spec.holder is not None:
        return _let_go(lease, outcome, by)
    match outcome:
        case Done(result, ran):
            return _end(lease, State.COMPLETED, by, result=result, ran=ran)
        case Cancelled(who):
            return _end(lease, State.CANCELLED, who or by)
        case HandedBack(checkpoint, delay, unused):
            state, attempt = State.QUEUED if delay is None else State.SCHEDULED, lease.attempt - 1
            return _go_on(lease, state, by, attempt=attempt, checkpoint=checkpoint, delay=delay, unused=unused)
        case Suspended(note, checkpoint):
            return _go_on(lease, State.SUSPENDED, by, attempt=lease.attempt - 1, checkpoint=checkpoint, note=note)
        case Failed(failure, ran):
            return _failed(lease, failure, ran, _Odds(chance, success), by)
        case TimedOut():
            return _timed_out(lease, outcome, _Odds(chance, success), by)
        case Lost(detail, alone):
            return _lost(lease, detail, by, alone=alone)


def _let_go(lease: Lease, outcome: Outcome, by: str) -> Settlement:
    """A job that is run by its own holder is never tried again: nobody would come for it."""
    match outcome:
        case Lost(detail):
            story = detail or "its holder died or was not heard of for a whole lease"
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


def _tries(lease: Lease) -> int:
    """Attempts that count towards `Retry.attempts`: earlier ones that ended with their worker or child do not."""
    return lease.attempt - lease.lost


class _Odds(NamedTuple):
    chance: float
    success: float


def _failed(lease: Lease, failure: Failure, ran: float, odds: _Odds, by: str) -> Settlement:
    retry = lease.spec.options.retry
    failure = msgspec.structs.replace(failure, attempt=lease.attempt)
    if not may_retry(failure, retry):
        return _end(lease, State.FAILED, by, reason=Reason.ERROR, failure=failure, ran=ran)
    if _tries(lease) >= retry.attempts:
        return _end(lease, State.FAILED, by, reason=Reason.EXHAUSTED, failure=failure, ran=ran)
    delay = delay_for(retry, _tries(lease), odds.chance, failure.retry_after, success=odds.success)
    return _go_on(lease, State.SCHEDULED, by, delay=delay, failure=failure, ran=ran)


def _timed_out(lease: Lease, late: TimedOut, odds: _Odds, by: str) -> Settlement:
    retry, after = lease.spec.options.retry, late.after
    failure = Failure(
        message=late.story or f"ran longer than its limit of {describe_limit(lease.spec.options, after)}",
        kinds=("TimeoutError",),
        traceback=late.stack,
        attempt=lease.attempt,
    )
    word: Word = "hung" if late.story else "late"
    timeouts, ran = lease.timeouts + (word == "late"), after.total_seconds()
    if _tries(lease) >= retry.attempts:
        return _end(
            lease, State.FAILED, by, reason=Reason.TIMEOUT, failure=failure, timeouts=timeouts, ran=ran, word=word
        )
    delay = delay_for(retry, _tries(lease), odds.chance, success=odds.success)
    return _go_on(lease, State.SCHEDULED, by, delay=delay, failure=failure, timeouts=timeouts, ran=ran, word=word)


def _lost(lease: Lease, detail: str, by: str, *, alone: bool) -> Settlement:
    """A death is charged as one attempt, and the job runs again at once: its worker is gone, the job need not be to
    blame. Only one that died alone is, and ends by it once its deaths or attempts are used up; any other runs again
    even then, or a power cut would end every job that has one attempt. A job that had not begun is not charged."""
    if not lease.begun:
        return _go_on(lease, State.QUEUED, by, attempt=lease.attempt - 1)
    options, lost = lease.spec.options, lease.lost + 1
    ends = alone and (lost >= options.deaths or _tries(lease) >= options.retry.attempts)
    story = detail or "its worker died or was not heard of for a whole lease"
    if ends:
        last = "" if lost >= options.deaths else ", on its last attempt"
        story += f"; died {'once,' if lost == 1 else f'{lost} times, the last time'} running alone{last}"
    failure = Failure(message=story, kinds=("Lost",), attempt=lease.attempt)
    if ends:
        return _end(lease, State.FAILED, by, reason=Reason.LOST, failure=failure, lost=lost)
    return _go_on(lease, State.QUEUED, by, failure=failure, lost=lost)


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
) -> Settlement:
    is_first = lease.attempt == 1
    return Settlement(
        seq=lease.seq,
        job=lease.spec.id,
        fence=lease.fence,
        state=state,
        reason=reason,
        attempt=lease.attempt,
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


def _go_on(
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
