"""Events: facts about a job, numbered without gaps, and the fold that gives its state back.

Each event carries what it changed and nothing else, so the events of a job, folded, are its stored state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import FINAL, JobSpec, Put, Reason, Settlement, State

KINDS: Final = (
    "submitted", "due", "started", "progress", "retrying", "released", "completed", "failed", "cancelled", "suspended",
    "resumed", "reprioritised", "expired", "shed", "lease_expired", "cancel_requested", "suspend_requested",
    "retried", "removed", "folded", "moved", "blocked", "unblocked", "breaker_opened", "breaker_closed",
)  # fmt: skip


class Event(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    n: int
    kind: str
    job: str
    at: datetime
    by: str = ""
    state: State | None = None
    reason: Reason | None = None
    task: str | None = None
    queue: str | None = None
    priority: int | None = None
    attempt: int | None = None
    fence: int | None = None
    run_at: datetime | None = None
    progress: float | None = None
    note: str = ""
    error: str = ""
    run: str | None = None
    owner: str | None = None


class Folded(Struct, frozen=True, kw_only=True):
    """What the events of a job say of it."""

    state: State | None = None
    reason: Reason | None = None
    priority: int = 5
    attempt: int = 0
    fence: int = 0
    n: int = 0


def fold(events: Iterable[Event], start: Folded | None = None) -> Folded:
    """The state that a job's events tell of. Raises ValueError on a gap in their numbers."""
    now = start or Folded()
    for event in events:
        if event.kind == "progress":  # tells of the running attempt and takes no number of its own
            continue
        if event.n != now.n + 1 and event.kind != "folded":
            raise ValueError(f"event {event.n} of job {event.job} follows {now.n}: the numbers have a gap")
        now = Folded(
            state=event.state or now.state,
            # A reason belongs to the failed state alone; whatever leaves that state leaves the reason behind.
            reason=event.reason if event.state else now.reason,
            priority=now.priority if event.priority is None else event.priority,
            attempt=now.attempt if event.attempt is None else event.attempt,
            fence=now.fence if event.fence is None else event.fence,
            n=event.n,
        )
    return now


def submitted(spec: JobSpec, state: State, at: datetime, run_at: datetime | None, note: str = "") -> Event:
    return Event(
        n=1, kind="submitted", job=spec.id, at=at, by=spec.by, state=state, task=spec.task, queue=spec.queue,
        priority=spec.priority, run_at=run_at, note=note, run=spec.run, owner=spec.owner,
    )  # fmt: skip


def record_event(put: Put, at: datetime) -> Event:
    """Of a record that was written: it belongs to no job, has no number, and its note names the record."""
    return Event(n=0, kind=put.tells, job="", at=at, by=put.by, note=put.name)


def settled(settlement: Settlement, n: int, at: datetime, run_at: datetime | None) -> Event:
    """The event that tells of a settlement, the same on every store."""
    return Event(
        n=n, kind=_kind(settlement), job=settlement.job, at=at, by=settlement.by, state=settlement.state,
        reason=settlement.reason, attempt=settlement.attempt, run_at=run_at, note=settlement.note,
        error=str(settlement.failure)[:300] if settlement.failure else "",
    )  # fmt: skip


_HELD: Final = {state: state.value for state in (*FINAL, State.SUSPENDED)}  # where nobody comes for it again


def _kind(settlement: Settlement) -> str:
    if (held := _HELD.get(settlement.state)) is not None:
        return held
    return "retrying" if settlement.failure else "released"


def last_holder(history: Sequence[Event]) -> str | None:
    """The worker of a job's latest attempt; None if it was never started. A reaper that only took the lease over in
    order to end it did not run the job."""
    return next((event.by for event in reversed(history) if event.kind == "started"), None)


FOLD_FROM: Final = 400
KEPT_UNFOLDED: Final = 200


def shorten_history(history: list[Event]) -> list[Event]:
    """A history that stays bounded: every 200 events from the 400th on, all but the latest 200 fold into one."""
    if history[-1].n < FOLD_FROM or history[-1].n % KEPT_UNFOLDED:
        return history
    first, old, kept = history[0], history[1:-KEPT_UNFOLDED], history[-KEPT_UNFOLDED:]
    so_far = fold([first, *old])
    told = Event(
        n=so_far.n, kind="folded", job=first.job, at=old[-1].at, state=so_far.state, reason=so_far.reason,
        priority=so_far.priority, attempt=so_far.attempt, fence=so_far.fence, note=f"{so_far.n - 1} events in one",
    )  # fmt: skip
    return [first, told, *kept]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)

encode = _encoder.encode


def decode_lines(lines: bytes) -> list[Event]:
    """The events of one stored blob: one JSON object a line, as `encode` wrote them."""
    return _decoder.decode_lines(lines)


_STARTED: Final = b'"kind":"started"'  # inside a text its quotes would be escaped


def last_holder_in(lines: bytes) -> str | None:
    """`last_holder` of one stored blob, decoding only the line that tells it."""
    at = lines.rfind(_STARTED)
    if at < 0:
        return None
    end = lines.find(b"\n", at)
    return _decoder.decode(lines[lines.rfind(b"\n", 0, at) + 1 : len(lines) if end < 0 else end]).by
