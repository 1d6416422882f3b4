"""Finds what grows without end: queues that fill faster than they empty, and jobs that are kept too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from daybreak.api.locks.lock_job import QUEUE as LOCKS
from daybreak.api.trends import Trends
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.model import FINAL, Job
from daybreak.core.text import counted, number, safe
from daybreak.policy.retain import keep_for
from daybreak.policy.trends import OTHER
from daybreak.runs.record import split_label
from daybreak.store.protocol import Finding, Tally

MIN_DEPTH: Final = 100  # waiting jobs; fewer are no build-up
PARTS: Final = 6  # parts of the hour; the queue must have grown in all but one of them
MIN_KEPT: Final = 1_000_000  # ended jobs; fewer are no burden
LARGE: Final = 64 * 1024  # bytes of arguments
MIN_LARGE: Final = 100  # jobs with such arguments
LATE: Final = timedelta(hours=1)  # after which the janitor should have removed a job
_MAX_CHECKED: Final = 1000  # jobs


def about_depth(trends: Trends, session: Session) -> list[Finding]:
    """Queues that grew through the last hour. Many jobs that were submitted at once, as by a sweep, are no build-up."""
    findings = []
    for group in trends.groups:
        depths = [point.waiting for point in group.points]
        step = max((len(depths) - 1) // PARTS, 1)
        marks = depths[::-1][::step][: PARTS + 1][::-1]
        grown = sum(after > before for before, after in pairwise(marks))
        if group.name in (LOCKS, OTHER) or group.figures.waiting < MIN_DEPTH or grown < PARTS - 1:
            continue
        figures = group.figures
        ended = figures.completed + figures.failed + figures.expired + figures.shed + figures.cancelled
        findings.append(
            Finding(
                f"the queue {safe(group.name)!r} builds up: {counted(figures.waiting, 'job waits', 'jobs wait')}, "
                f"{number(figures.waiting - marks[0])} more than an hour ago; in that time {number(figures.submitted)} "
                f"were submitted and {number(ended)} ended",
                cure=f"start more workers: {session.start_worker('--queues', group.name)}; see whether running jobs "
                f"are stuck: {session.command('jobs', '--queue', group.name, '--state', 'running')}; or refuse more "
                f"jobs: {session.command('queues', 'set', group.name, f'capacity={figures.waiting}')}",
            )
        )
    return findings


async def about_storage(
    client: Client, session: Session, tallies: list[Tally], now: datetime
) -> AsyncIterator[Finding]:
    """Ended jobs that are not removed, and large arguments. Only the newest jobs are read."""
    ended = (await client.find(state=sorted(FINAL), limit=_MAX_CHECKED)).jobs
    overdue = sum(_is_overdue(job, now) for job in ended)
    if overdue:
        yield Finding(
            f"at least {counted(overdue, 'ended job is', 'ended jobs are')} kept longer than their retention: workers "
            "remove old jobs, and none did so for more than an hour",
            cure=f"start a worker: {session.start_worker()}",
        )
    total = sum(tally.n for tally in tallies if tally.state in FINAL)
    forever = Counter(job.spec.run for job in ended if job.spec.run and keep_for(job.spec.options, job.state) is None)
    if total >= MIN_KEPT and forever.total() * 2 > len(ended):
        run = split_label(forever.most_common(1)[0][0])[0]
        yield Finding(
            f"the store holds {number(total)} ended jobs, and most of the newest belong to runs, which are kept until "
            f"somebody deletes them, such as {safe(run)!r}",
            cure=f"see the runs: {session.command('runs')}; delete those whose results you no longer need: "
            f"{session.command('runs', 'delete', run)}",
        )
    newest = (await client.find(limit=_MAX_CHECKED)).jobs
    large = Counter(job.spec.task for job in newest if len(job.spec.args) > LARGE)
    for task, n in large.most_common():
        if n >= MIN_LARGE:
            example = max((job for job in newest if job.spec.task == task), key=lambda job: len(job.spec.args))
            yield Finding(
                f"{number(n)} of the newest {counted(len(newest), 'job')} are of {safe(task)!r} and have more than "
                "64 KiB of arguments each, which every list, claim and backup reads",
                cure=f"see one: {session.command('jobs', 'show', example.id)}; pass large data as a file, "
                "File(path): each content is then stored once",
            )


def _is_overdue(job: Job, now: datetime) -> bool:
    keep = keep_for(job.spec.options, job.state)
    return keep is not None and job.finished_at is not None and now - job.finished_at > keep + LATE
