"""Counts the jobs that failed in the last day by reason, with the commands that list and retry exactly those jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from daybreak.api.locks.lock_job import QUEUE as LOCKS
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.model import Reason, State
from daybreak.core.text import counted, number, safe
from daybreak.store.protocol import Finding, ok_finding

RECENT: Final = timedelta(days=1)
SINCE: Final = "1d"  # RECENT as an option of a command line
MAX_CHECKED: Final = 10_000  # failed jobs, the latest submitted first
_PAGE: Final = 1000
_MAX_NAMED: Final = 5  # tasks, and queues, in one finding

# What the reason means, and what to do before the jobs are retried.
_MEANS: Final = {
    Reason.ERROR: ("a permanent error, or one that their retry policy does not cover", "fix the cause"),
    Reason.EXHAUSTED: ("every attempt failed", "fix the cause"),
    Reason.TIMEOUT: ("the last attempt exceeded its timeout", "fix the cause, or raise their timeout"),
    Reason.EXPIRED: (
        "they waited longer than expires_in for a worker",
        "start more workers, or raise expires_in; if you still want them",
    ),
    Reason.SHED: (
        "their queue was full and dropped them for more urgent jobs",
        "raise its capacity; if you still want them",
    ),
    Reason.LOST: (
        "their process crashed too many times: out of memory, or a crash in native code",
        "fix the cause",
    ),
    Reason.UPSTREAM: ("a job that they depend on failed", "fix that job first"),
}


async def about_failures(client: Client, session: Session, now: datetime) -> AsyncIterator[Finding]:
    """One finding for each reason. A request for a lock that waited too long does not count as a failed job."""
    tasks: dict[Reason, Counter[str]] = defaultdict(Counter)
    queues: dict[Reason, Counter[str]] = defaultdict(Counter)
    checked, cursor = 0, None
    while True:
        page = await client.find(state=State.FAILED, limit=_PAGE, cursor=cursor)
        for job in page.jobs:
            if job.finished_at is not None and now - job.finished_at <= RECENT and job.reason is not None:
                queues[job.reason][job.spec.queue] += 1
                if job.spec.queue != LOCKS:
                    tasks[job.reason][job.spec.task] += 1
        checked += len(page.jobs)
        cursor = page.cursor
        if cursor is None or checked >= MAX_CHECKED:
            break
    for reason in Reason:
        if tasks[reason]:
            yield _finding(reason, tasks[reason], queues[reason], session, is_all=cursor is None)
    if cursor is not None and not any(tasks.values()):
        yield ok_finding(
            f"none of the {number(checked)} newest failed jobs failed in the last day; older ones not checked"
        )


def _finding(reason: Reason, tasks: Counter[str], queues: Counter[str], session: Session, *, is_all: bool) -> Finding:
    means, first = _MEANS[reason]
    named = [f"{safe(task)} {number(n)}" for task, n in sorted(tasks.items(), key=_most_first)[:_MAX_NAMED]]
    named += ["others"] if len(tasks) > _MAX_NAMED else []
    what = f"{counted(tasks.total(), 'job')} failed in the last day with the reason {reason.value}: {means} "
    listed = _commands(session, ("jobs", "--state", "failed"), reason, queues)
    again = _commands(session, ("jobs", "retry"), reason, queues)
    return Finding(
        ("" if is_all else "at least ") + f"{what}({', '.join(named)})",
        cure=f"list them: {listed}; {first}, then retry them: {again}",
    )


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    name, n = counted
    return -n, name


def _commands(session: Session, words: tuple[str, ...], reason: Reason, queues: Counter[str]) -> str:
    """The commands that select these jobs. If requests for locks failed for the same reason, one command per queue, so
    that those requests are not selected."""
    filters = ("--reason", reason.value, "--since", SINCE)
    if LOCKS not in queues:
        return session.command(*words, *filters)
    names = [queue for queue, _ in queues.most_common() if queue != LOCKS]
    commands = [session.command(*words, "--queue", queue, *filters) for queue in names[:_MAX_NAMED]]
    more = len(names) - _MAX_NAMED
    return ", ".join(commands) + (f", and so on for {counted(more, 'other queue')}" if more > 0 else "")
