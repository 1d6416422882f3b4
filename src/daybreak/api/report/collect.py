"""Gathers the figures of the morning report."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from daybreak.api.report.clusters import Clusters, read_clusters
from daybreak.api.trends import TrendPoint, trends_of
from daybreak.api.worker_info import read_workers
from daybreak.client.client import Client
from daybreak.core.model import UNFINISHED, Job, State
from daybreak.core.units import moment
from daybreak.policy.job_filter import JobFilter

MAX_READ: Final = 50_000  # completed jobs that are looked at for the slowest ones
SLOWEST: Final = 10
_PAGE: Final = 1000


class SlowJob(Struct, frozen=True, kw_only=True):
    """A completed job, and how long its last attempt ran."""

    id: str
    task: str
    ran_for: timedelta
    attempt: int


class GoneWorker(Struct, frozen=True, kw_only=True):
    """A worker that disappeared without stopping in order."""

    name: str
    host: str
    seen_at: datetime


class Report(Struct, frozen=True, kw_only=True):
    """What happened from `since` to `until`, in all or in one run.

    `counts` are jobs by how they ended, `unfinished` those that have not. `saved` counts the jobs that completed after
    a failed attempt, among the `read` completed jobs that were looked at; `is_all` is False if there were more. `lost`
    counts attempts that ended with their process. `points` show the utilisation over time. `cached` of the completed
    jobs that were looked at did not run, because their result was known or on its way; over all runs, that saved
    `cache_saved` of run time (None for one run)."""

    since: datetime
    until: datetime
    run: str | None
    counts: dict[str, int]
    unfinished: dict[str, int]
    failures: Clusters
    slowest: list[SlowJob]
    saved: int
    read: int
    is_all: bool
    lost: int
    gone: list[GoneWorker]
    points: list[TrendPoint]
    cached: int = 0
    cache_saved: timedelta | None = None


async def collect_report(client: Client, since: datetime, *, run: str | None = None) -> Report:
    """The report from `since` until now."""
    now = moment(client.wall())
    job_filter = JobFilter(since=since, run=run)
    failures = await read_clusters(client, job_filter)
    slowest, saved, cached, read, is_all = await _completed(client, job_filter)
    trends = await trends_of(client, since)
    now_in = await client.count(run=run)
    completed = read if is_all else max(read, trends.figures.completed)
    cancelled = await _cancelled(client, job_filter)
    counts = {"completed": completed, "failed": failures.jobs, "cancelled": cancelled}
    gone = [
        GoneWorker(name=worker.name or worker.id, host=worker.host, seen_at=worker.seen_at)
        for worker in await read_workers(client)
        if worker.state(now) == "gone" and worker.seen_at is not None and worker.seen_at >= since
    ]
    return Report(
        since=since,
        until=now,
        run=run,
        counts=counts,
        unfinished={state.value: now_in[state] for state in State if state in UNFINISHED and now_in[state]},
        failures=failures,
        slowest=slowest,
        saved=saved,
        read=read,
        is_all=is_all,
        lost=trends.figures.lost,
        gone=gone,
        points=trends.points,
        cached=cached,
        cache_saved=trends.figures.saved if run is None else None,
    )


async def _cancelled(client: Client, job_filter: JobFilter) -> int:
    n, read, cursor = 0, 0, None
    where = {**job_filter.where(), "state": State.CANCELLED}
    while read < MAX_READ:
        page = await client.find(limit=_PAGE, cursor=cursor, **where)
        n += sum(job_filter.is_within(job) for job in page.jobs)
        read += len(page.jobs)
        if (cursor := page.cursor) is None:
            break
    return n


async def _completed(client: Client, job_filter: JobFilter) -> tuple[list[SlowJob], int, int, int, bool]:
    """The slowest completed jobs, how many completed after a failed attempt and how many without running, how many were
    read, and whether all."""
    slowest: list[tuple[float, str, Job]] = []
    cursor, read, matched, saved, cached = None, 0, 0, 0, 0
    where = {**job_filter.where(), "state": State.COMPLETED}
    while True:
        page = await client.find(limit=_PAGE, cursor=cursor, **where)
        for job in page.jobs:
            if not job_filter.is_within(job):
                continue
            matched += 1
            saved += job.attempt > 1
            cached += job.cached_from is not None
            if job.cached_from is None and job.started_at is not None and job.finished_at is not None:
                ran = (job.finished_at - job.started_at).total_seconds()
                push = heapq.heappush if len(slowest) < SLOWEST else heapq.heappushpop
                push(slowest, (ran, job.id, job))
        read += len(page.jobs)
        cursor = page.cursor
        if cursor is None or read >= MAX_READ:
            break
    found = [
        SlowJob(id=job.id, task=job.spec.task, ran_for=timedelta(seconds=ran), attempt=job.attempt)
        for ran, _, job in sorted(slowest, reverse=True)
    ]
    return found, saved, cached, matched, cursor is None
