"""Finds tasks whose attempts mostly end at their time limit, and tasks that are retried again and again in vain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from daybreak.api.trends import TrendGroup, Trends
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.text import counted, lasted, number, percent, safe
from daybreak.policy.durations import classes_of, quantile
from daybreak.policy.trends import OTHER
from daybreak.store.protocol import Finding

MIN_TIMEOUTS: Final = 5  # in a day
TIMEOUT_SHARE: Final = 0.15  # of the attempts that ended
MIN_RETRIES: Final = 20  # in an hour
RETRY_SHARE: Final = 0.5  # of the retries that failed again


async def about_timeouts(client: Client, trends: Trends, session: Session) -> AsyncIterator[Finding]:
    """Tasks whose time limit fits badly. `trends` are those of the last day by task."""
    for group in trends.groups:
        late, completed = group.figures.timeouts, group.figures.completed
        if group.name == OTHER or late < MIN_TIMEOUTS or late < TIMEOUT_SHARE * (late + completed):
            continue
        listed = session.command("jobs", "--task", group.name, "--state", "failed", "--reason", "timeout")
        yield Finding(
            f"{counted(late, 'attempt')} of the task {safe(group.name)!r} ran into "
            f"{'its' if late == 1 else 'their'} time limit in the last day, and {number(completed)} completed"
            f"{await _spread(client, group)}",
            cure=f"compare the limit with the durations: {session.command('stats')}; see the jobs: {listed}; then "
            "raise the timeout of the task, or make slow and fast work two tasks, each with its own limit",
        )


async def _spread(client: Client, group: TrendGroup) -> str:
    durations, _ = await client.durations.read(f"execution {group.name}")
    classes = classes_of(durations)
    if not classes:
        return ""
    median, most = (timedelta(seconds=quantile(classes, share)) for share in (0.5, 0.99))
    return f"; half of the attempts take up to {lasted(median)}, and 99 % up to {lasted(most)}"


def about_retries(trends: Trends, session: Session) -> list[Finding]:
    """Tasks that are retried mostly in vain. `trends` are those of the last hour by task."""
    findings = []
    for group in trends.groups:
        retries, failed = group.figures.retries, group.figures.retries_failed
        if group.name == OTHER or retries < MIN_RETRIES or failed < RETRY_SHARE * retries:
            continue
        task = ("--task", group.name)
        suspend = session.command("jobs", "suspend", *task, "--state", "scheduled", "--state", "queued")
        findings.append(
            Finding(
                f"the task {safe(group.name)!r} is retried in vain: {number(retries)} retries in the last hour, of "
                f"which {percent(failed / retries)} failed again",
                cure=f"see the errors: {session.command('report', '--since', '1h')}; hold the jobs back: {suspend}, "
                f"repair the cause, then: {session.command('jobs', 'resume', *task)}; an error that no retry cures "
                "should be permanent, and a service that fails should be a resource with a breaker",
            )
        )
    return findings
