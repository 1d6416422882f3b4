"""Measures what happened, from the events of every job and the state of every accepted job in the store."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from daybreak.core.events import Event
from daybreak.core.model import FINAL, State
from daybreak.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`lost` are accepted jobs that are no longer in the store or have not ended; `failed` are jobs that ended but did
    not complete. Both should be empty."""

    events: int
    accepted: int
    completed: int
    lost: list[str]
    failed: list[str]
    twice: list[str]
    retries: int
    retried: int
    errors: list[str]
    urgent_waited: timedelta | None
    passed: int
    others_waited: timedelta | None
    held: int
    recovered_in: timedelta | None

    @property
    def problems(self) -> list[str]:
        """The promises that were broken, one sentence each."""
        checks = [
            (self.lost, "accepted and then lost"),
            (self.failed, "accepted and did not complete"),
            (self.twice, "completed twice"),
        ]
        found = [f"{len(jobs)} of {self.accepted} jobs {what}, among them {jobs[0]}" for jobs, what in checks if jobs]
        if self.urgent_waited is None:
            found.append("the urgent job never started")
        if self.held and self.recovered_in is None:
            found.append("the jobs of the killed worker were not started again")
        return found


async def all_events(store: Store) -> list[Event]:
    found: list[Event] = []
    cursor = None
    while (feed := await store.events(cursor)).events:
        found += feed.events
        cursor = feed.cursor
    return found


async def measure(store: Store, accepted: Sequence[str], *, urgent: str, killed: str, killed_at: datetime) -> Measured:
    """Measure the run. `killed` is the name of the worker that was killed at `killed_at`."""
    events = await all_events(store)
    history: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        history[event.job].append(event)
    states = {job: found.state for job, found in zip(accepted, await store.get(accepted), strict=True) if found}
    lost = [job for job in accepted if states.get(job) not in FINAL]
    retries = [event for event in events if event.kind == "retrying" and not _is_death(event)]
    again = [_started_again(history[job], killed) for job in accepted]
    held = [at for was_held, at in again if was_held]
    waits = {job: _waited(history[job]) for job in accepted}
    others = [wait.total_seconds() for job, wait in waits.items() if wait is not None and job != urgent]
    return Measured(
        events=len(events),
        accepted=len(accepted),
        completed=sum(state is State.COMPLETED for state in states.values()),
        lost=lost,
        failed=[job for job, state in states.items() if state in FINAL and state is not State.COMPLETED],
        twice=[job for job in accepted if sum(event.kind == "completed" for event in history[job]) > 1],
        retries=len(retries),
        retried=len({event.job for event in retries}),
        errors=[error for error, _ in Counter(event.error for event in retries).most_common(3)],
        urgent_waited=waits.get(urgent),
        passed=_waiting_before(events, urgent),
        others_waited=timedelta(seconds=median(others)) if others else None,
        held=len(held),
        recovered_in=max((at - killed_at for at in held if at is not None), default=None),
    )


def _is_death(event: Event) -> bool:
    """Whether the attempt ended because its worker died, not because of an error of the task."""
    return event.error.startswith("Lost")


def _waited(events: list[Event]) -> timedelta | None:
    """From acceptance to the first start."""
    started = next((event.at for event in events if event.kind == "started"), None)
    return None if started is None else started - events[0].at


def _started_again(events: list[Event], killed: str) -> tuple[bool, datetime | None]:
    """Whether the killed worker held this job when it died, and when the job was started again after that."""
    events = [event for event in events if event.kind != "progress"]
    for number, (event, after) in enumerate(itertools.pairwise(events)):
        if event.kind == "started" and event.by.startswith(f"{killed}-") and after.kind == "lease_expired":
            return True, next((later.at for later in events[number + 1 :] if later.kind == "started"), None)
    return False, None


def _waiting_before(events: list[Event], job: str) -> int:
    """How many jobs were waiting to be started when this one was accepted."""
    waiting: set[str] = set()
    for event in events:
        if event.job == job:
            return len(waiting)
        if event.state is State.QUEUED:
            waiting.add(event.job)
        elif event.state is not None:
            waiting.discard(event.job)
    return 0
