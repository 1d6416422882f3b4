"""Failed jobs grouped by their cause."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.model import Job, State
from daybreak.policy.failure_clusters import fingerprint_of, plain_message
from daybreak.policy.job_filter import JobFilter

MAX_CLUSTERS: Final = 200
MAX_READ: Final = 100_000  # failed jobs that are looked at
_PAGE: Final = 1000


class FailureCluster(Struct, frozen=True, kw_only=True):
    """Failed jobs with one cause. `example` is the latest of them, and `error` its message; `message` is without what
    differs from job to job. `tasks` and `reasons` count the jobs."""

    fingerprint: str
    n: int
    kind: str
    message: str
    error: str
    traceback: str
    example: str
    first_at: datetime
    last_at: datetime
    tasks: dict[str, int]
    reasons: dict[str, int]


class Clusters(Struct, frozen=True, kw_only=True):
    """The clusters, the largest first. `jobs` counts the failed jobs that were read; `is_all` is False if there were
    more than are read."""

    clusters: list[FailureCluster]
    jobs: int
    is_all: bool


class _Group:
    """The jobs of one cluster while they are read."""

    def __init__(self, job: Job) -> None:
        self.latest = job
        self.first_at = self.last_at = _ended(job)
        self.tasks: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def add(self, job: Job) -> None:
        at = _ended(job)
        self.first_at = min(self.first_at, at)
        if at > self.last_at:
            self.last_at, self.latest = at, job
        self.tasks[job.spec.task] += 1
        self.reasons[job.reason.value if job.reason else ""] += 1


async def read_clusters(client: Client, job_filter: JobFilter) -> Clusters:
    """The failed jobs that the filter selects, in clusters. Jobs that were retried are not failed any more."""
    groups: dict[str, _Group] = {}
    cursor, read, matched = None, 0, 0
    where = {**job_filter.where(), "state": State.FAILED}
    while True:
        page = await client.find(limit=_PAGE, cursor=cursor, **where)
        for job in page.jobs:
            if not job_filter.is_within(job):
                continue
            matched += 1
            print_ = fingerprint_of(job)
            if print_ not in groups:
                groups[print_] = _Group(job)
            groups[print_].add(job)
        read += len(page.jobs)
        cursor = page.cursor
        if cursor is None or read >= MAX_READ:
            break
    found = [_cluster(print_, group) for print_, group in groups.items()]
    found.sort(key=lambda cluster: (-cluster.n, cluster.kind, cluster.message))
    return Clusters(clusters=found[:MAX_CLUSTERS], jobs=matched, is_all=cursor is None)


def _cluster(print_: str, group: _Group) -> FailureCluster:
    failure, reason = group.latest.failure, group.latest.reason
    error = failure.message if failure is not None else ""
    return FailureCluster(
        fingerprint=print_,
        n=group.tasks.total(),
        kind=failure.kind if failure is not None else (reason.value if reason is not None else "unknown"),
        message=plain_message(error),
        error=error,
        traceback=failure.traceback if failure is not None else "",
        example=group.latest.id,
        first_at=group.first_at,
        last_at=group.last_at,
        tasks=dict(group.tasks.most_common()),
        reasons=dict(group.reasons.most_common()),
    )


def _ended(job: Job) -> datetime:
    return job.finished_at or job.created_at
