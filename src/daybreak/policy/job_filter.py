"""The job filter: which jobs a list shows and which jobs a change of many jobs affects.

Stores cannot filter by time or by failure cluster. `is_within` checks both on the jobs that a store returns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from daybreak.core.model import Job, State
from daybreak.policy.failure_clusters import fingerprint_of

# The fields that stores filter by, besides the states.
STORE_FIELDS: Final = ("reason", "queue", "task", "run", "owner", "key", "priority", "tag")
_TALLIED: Final = frozenset({"queue", "task", "priority"})


class JobFilter(Struct, frozen=True, kw_only=True):
    """Selects jobs; an empty field selects any. With `since` or `until`, it selects the jobs that ended in that time
    and the unfinished jobs that were submitted in that time. `cluster` selects the jobs whose latest failure is of that
    kind (`policy/failure_clusters.py`)."""

    states: tuple[State, ...] = ()
    reason: str | None = None
    queue: str | None = None
    task: str | None = None
    run: str | None = None
    owner: str | None = None
    key: str | None = None
    priority: int | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cluster: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()

    @property
    def is_timed(self) -> bool:
        """Whether the filter has a time or a cluster, which stores cannot filter by: each job must be read."""
        return self.since is not None or self.until is not None or self.cluster is not None

    @property
    def is_tallied(self) -> bool:
        """Whether stores keep a count of these jobs. For other filters they would have to read every job."""
        return self.named().keys() <= _TALLIED and not self.is_timed

    def named(self) -> dict[str, Any]:
        """The fields that are set and that stores filter by, without the states."""
        return {name: value for name in STORE_FIELDS if (value := getattr(self, name)) is not None}

    def where(self) -> dict[str, Any]:
        """The filter as the client takes it, without the times and the cluster."""
        return {"state": self.states or None, **self.named()}

    def is_within(self, job: Job) -> bool:
        """Whether the job is within the filter's times and cluster."""
        if self.cluster is not None and fingerprint_of(job) != self.cluster:
            return False
        at = job.finished_at or job.created_at
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)
