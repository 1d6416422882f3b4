"""What the totals call an attempt that was settled: words, so that whoever reads them can ask for one of them.

completed | failed REASON | cancelled | retrying STRATEGY | lost      how it ended
again                                                                 it was not the first
late | hung                                                           it ran into its time limit, or showed no life
escalated                                                             its limit was longer than usual
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from daybreak.core.model import Lease, Reason, State
from daybreak.policy.timeouts import escalation_level_of

_MICRO: Final = timedelta(microseconds=1)
_NOW: Final = timedelta()


Word = Literal["", "late", "hung"]


def outcome_label(lease: Lease, state: State, reason: Reason | None, word: Word) -> str:
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
    """Microseconds from when it could have begun until it did; None where that is not known, because it was in
    someone's hands before and came back uncharged, or a person let it begin anew."""
    spec, since = lease.spec, lease.created_at
    if lease.fence > 1 + lease.reaped and spec.holder is None:
        return None
    if spec.run_at is not None:
        since = max(since, spec.run_at)
    elif spec.delay is not None:
        since += spec.delay
    waited = lease.started_at - since
    return waited // _MICRO if waited > _NOW else 0
