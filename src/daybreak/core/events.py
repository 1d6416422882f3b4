"""Events: facts about a job, numbered without gaps, and the fold that gives its state back.

Each event carries what it changed and nothing else, so folding the events of a job gives its stored state.
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
    "breaker_probing", "queue_full", "queue_empty", "saga_stuck", "detached", "batch_started", "batch_completed",
)  # fmt: skip


class Event(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One fact about a job. `n` is its number, without gaps per job, and `by` is who caused it.

    The other fields are the values after the event; None means that it did not change the value. `note` and `error` are
    texts for people. `replaced_by` is the job that took the place of this one: it replaced it under its unique name, or
    pushed it out of a full queue. `deadline` is when an attempt that was detached times out."""

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
    replaced_by: str | None = None
    deadline: datetime | None = None


class Folded(Struct, frozen=True, kw_only=True):
    """The part of a job's state that follows from its events."""

    state: State | None = None
    reason: Reason | None = None
    priority: int = 5
    attempt: int = 0
    fence: int = 0
    n: int = 0


def fold(events: Iterable[Event], start: Folded | None = None) -> Folded:
    """The state of a job after these events. Raises ValueError on a gap in their numbers."""
    now = start or Folded()
    for event in events:
        if event.kind == "progress":  # describes the running attempt, and has no number of its own
            continue
        if event.n != now.n + 1 and event.kind != "folded":
            raise ValueError(f"event {event.n} of job {event.job} follows {now.n}: the numbers have a gap")
        now = Folded(
            state=event.state or now.state,
            # Only the failed state has a reason: an event that sets another state clears it.
            reason=event.reason if event.state else now.reason,
            priority=now.priority if event.priority is None else event.priority,
            attempt=now.attempt if event.attempt is None else event.attempt,
            fence=now.fence if event.fence is None else event.fence,
            n=event.n,
        )
    return now


def ends_job(event: Event) -> bool:
    """Whether the job is final after this event, whichever way it ended: settled, or without a settlement because it
    was cancelled or replaced while it waited, expired, was shed, or failed fast at an open breaker.

    Whoever must react to the end of a job follows the feed and asks this. A job that comes from another store in a
    final state counts as well: nobody may have reacted to its end there. An end can be seen twice, so the reaction must
    be safe to repeat (`Put.inserts`), and a person can retry the job later."""
    return event.state in FINAL and event.kind != "folded"


def submitted(spec: JobSpec, state: State, at: datetime, run_at: datetime | None, note: str = "") -> Event:
    return Event(
        n=1, kind="submitted", job=spec.id, at=at, by=spec.by, state=state, task=spec.task, queue=spec.queue,
        priority=spec.priority, run_at=run_at, note=note, run=spec.run, owner=spec.owner,
    )  # fmt: skip


QUEUE_KINDS: Final = frozenset({"queue_full", "queue_empty"})


def record_event(put: Put, at: datetime) -> Event:
    """The event of a record that was written. It belongs to no job, has no number, and its note names the record. The
    event of a queue names it as its queue, too."""
    queue = put.name if put.tells in QUEUE_KINDS else None
    return Event(n=0, kind=put.tells, job="", at=at, by=put.by, queue=queue, note=put.name)


def settled(settlement: Settlement, n: int, at: datetime, run_at: datetime | None) -> Event:
    """The event of a settlement, the same on every store."""
    return Event(
        n=n, kind=_kind(settlement), job=settlement.job, at=at, by=settlement.by, state=settlement.state,
        reason=settlement.reason, attempt=settlement.attempt, run_at=run_at, note=settlement.note,
        error=str(settlement.failure)[:300] if settlement.failure else "",
    )  # fmt: skip


# The states in which no worker will claim the job again by itself; their events have the same names.
_RESTING: Final = {state: state.value for state in (*FINAL, State.SUSPENDED)}


def _kind(settlement: Settlement) -> str:
    resting = _RESTING.get(settlement.state)
    if resting is not None:
        return resting
    return "retrying" if settlement.failure else "released"


def last_holder(history: Sequence[Event]) -> str | None:
    """The worker of a job's latest attempt; None if the job was never started. A reaper that took the lease over only
    to end it does not count: it did not run the job."""
    return next((event.by for event in reversed(history) if event.kind == "started"), None)


FOLD_FROM: Final = 400  # events; shorter histories are kept whole
KEPT_UNFOLDED: Final = 200  # the latest events, which are never folded


def shorten_history(history: list[Event]) -> list[Event]:
    """Keep a history bounded: from the 400th event on, every 200 events, all but the first and the latest 200 are
    folded into one event."""
    if history[-1].n < FOLD_FROM or history[-1].n % KEPT_UNFOLDED:
        return history
    first, old, kept = history[0], history[1:-KEPT_UNFOLDED], history[-KEPT_UNFOLDED:]
    so_far = fold([first, *old])
    folded = Event(
        n=so_far.n, kind="folded", job=first.job, at=old[-1].at, state=so_far.state, reason=so_far.reason,
        priority=so_far.priority, attempt=so_far.attempt, fence=so_far.fence, note=f"{so_far.n - 1} events in one",
    )  # fmt: skip
    return [first, folded, *kept]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)

encode = _encoder.encode


def decode_lines(lines: bytes) -> list[Event]:
    """The events of one stored blob: one JSON object per line, as `encode` wrote them."""
    return _decoder.decode_lines(lines)


_STARTED: Final = b'"kind":"started"'  # cannot occur inside a string, where the quotes would be escaped


def last_holder_in(lines: bytes) -> str | None:
    """`last_holder` of one stored blob. Decodes only the line that holds the answer."""
    at = lines.rfind(_STARTED)
    if at < 0:
        return None
    start = lines.rfind(b"\n", 0, at) + 1
    end = lines.find(b"\n", at)
    if end < 0:
        end = len(lines)
    return _decoder.decode(lines[start:end]).by


def last_time_in(lines: bytes | None) -> datetime | None:
    """The time of the latest event of one stored blob; None if it is empty. Decodes only the last line."""
    if not lines:
        return None
    return _decoder.decode(lines[lines.rfind(b"\n") + 1 :]).at
