"""The label under which the totals count a settled attempt. It consists of words, so that a reader can look for one:

completed | failed REASON | cancelled | retrying STRATEGY | lost      how the attempt ended
again                                                                 it was not the first attempt
late | hung                                                           it ran into its time limit, or showed no activity
escalated                                                             its limit was raised after earlier timeouts
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from daybreak.core.model import Lease, Reason, State
from daybreak.policy.timeouts import escalation_level_of

_MICRO: Final = timedelta(microseconds=1)
_NOW: Final = timedelta()


Word = Literal["", "late", "hung"]


def outcome_label(lease: Lease, state: State, reason: Reason | None, word: Word) -> str:
    """The label of an attempt that ended in this state."""
    words = [state.value if reason is None else f"{state} {reason}"]
    options = lease.spec.options
    if state is State.SCHEDULED:
        words = [f"retrying {options.retry.strategy}"]
    elif state is State.QUEUED:
        words = ["lost"]
    if lease.attempt > 1:
        words.append("again")
    if word:
        words.append(word)
    if lease.timeouts and options.timeout is not None and escalation_level_of(options, lease.timeouts):
        words.append("escalated")
    return " ".join(words)


def waited_for(lease: Lease) -> int | None:
    """The microseconds from when the job could have started until it did; None if that is not known, because the job
    was leased before and returned uncharged, or a person retried it."""
    if lease.fence > 1 + lease.reaped and lease.spec.holder is None:
        return None
    waited = lease.started_at - waiting_since(lease)
    return waited // _MICRO if waited > _NOW else 0


def waiting_since(lease: Lease) -> datetime:
    """When the job could have started for the first time."""
    spec, since = lease.spec, lease.created_at
    if spec.run_at is not None:
        return max(since, spec.run_at)
    if spec.delay is not None:
        return since + spec.delay
    return since
