"""`daybreak jobs`: prints a page of jobs, and the command to use next."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from daybreak.api.job_filter import find_jobs
from daybreak.api.views.job import job_view
from daybreak.cli.jobs.hints import next_step, nothing_found
from daybreak.cli.options import NAME, Where, Whole, as_json, filters
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import Job, State
from daybreak.core.text import ago, cause_text, first_line, percent, priority_name, roughly, safe
from daybreak.sqs.deliveries import deliveries_of

LIMIT = 50  # jobs on a page, without --limit
_WHEN = {
    State.SCHEDULED: "DUE", State.QUEUED: "WAITING", State.RUNNING: "RUNNING", State.COMPLETED: "COMPLETED",
    State.FAILED: "FAILED", State.CANCELLED: "CANCELLED",
}  # fmt: skip


class Jobs(Group):
    def hint(self, ctx: click.Context, name: str) -> str:
        if len(name) == 36 and name.count("-") == 4:
            return f"to show a job, write: daybreak jobs show {name}"
        return super().hint(ctx, name)


@click.group(cls=Jobs, name="jobs", invoke_without_command=True, short_help="List, show and change jobs.")
@filters
@click.option("--limit", type=Whole(1), default=LIMIT, show_default=True, help="Show at most this many jobs.")
@click.option("--cursor", type=NAME, help="Continue after the page that printed this cursor.")
@as_json
@click.pass_context
def command(ctx: click.Context, where: Where, limit: int, cursor: str | None, as_json: bool) -> int | None:
    """List jobs, the newest first. With --state queued, list them in the order in which they will run.

    Examples:
      daybreak jobs --queue mail --state failed --since 1d
      daybreak jobs show 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak jobs retry --queue mail --state failed --dry-run

    """
    if ctx.invoked_subcommand is not None:
        if not where.filter.is_empty or as_json or cursor:
            options = [*where.words(), *(["--json"] if as_json else []), *(["--cursor", cursor] if cursor else [])]
            ctx.fail(f"put options after the command: daybreak jobs {ctx.invoked_subcommand} {' '.join(options)}")
        return None
    return session().run(lambda client: _list(client, where, limit, cursor, as_json=as_json))


store_options(command)


async def _list(client: Client, where: Where, limit: int, cursor: str | None, *, as_json: bool) -> int:
    now = datetime.now(UTC)
    jobs, cursor = await find_jobs(client, where.filter, limit, cursor)
    if as_json:
        histories = await asyncio.gather(*(client.store.history(job.id) for job in jobs))
        deliveries = await deliveries_of(client.store, jobs)
        data = [
            job_view(job, history, now, delivery)
            for job, history, delivery in zip(jobs, histories, deliveries, strict=True)
        ]
        say_json({"jobs": data, "cursor": cursor})
        return 0
    if not jobs and cursor is None:
        say(await nothing_found(client, where))
        return 0
    if jobs:
        say_jobs(jobs, where, now)
        say()
    more: tuple[str, ...] = ()
    if cursor is not None:
        page = () if limit == LIMIT else ("--limit", str(limit))
        more = (*page, "--cursor", cursor)
    say(await next_step(client, where, jobs, more))
    return 0


def say_jobs(jobs: list[Job], where: Where, now: datetime) -> None:
    """Print jobs as a table. A column that the filter makes the same in every row is left out."""
    state = where.filter.states[0] if len(where.filter.states) == 1 else None
    columns = [
        Column("ID"),
        Column("TASK"),
        Column("QUEUE", drop=4),
        Column("STATE"),
        Column("PRIORITY", drop=3),
        Column("ATTEMPT", drop=2),
        Column(_WHEN.get(state, "WHEN") if state else "WHEN"),
        Column("REASON", drop=1),
        Column("DONE"),
        Column("ERROR" if state is State.FAILED else "DETAIL", gives=True),
    ]
    say_table(columns, [_row(job, where, now) for job in jobs])


def _row(job: Job, where: Where, now: datetime) -> list[str]:
    spec = job.spec
    return [
        safe(job.id),
        "" if where.filter.task else first_line(spec.task, 60),
        "" if where.filter.queue else safe(spec.queue),
        "" if len(where.filter.states) == 1 else job.state.value,
        "" if where.filter.priority is not None else priority_name(job.priority),
        f"{job.attempt}/{spec.options.retry.attempts}",
        when(job, now),
        job.reason.value if job.reason and not where.filter.reason else "",
        percent(job.progress) if job.state is State.RUNNING else "",
        detail(job),
    ]


def when(job: Job, now: datetime) -> str:
    """The time that matters in the job's state: when it is due, how long it waits or runs, or when it ended."""
    match job.state:
        case State.SCHEDULED:
            return ago(max(job.run_at or now, now), now)
        case State.RUNNING:
            return f"for {roughly(now - (job.started_at or now))}"
        case State.COMPLETED | State.FAILED | State.CANCELLED:
            return ago(job.finished_at, now)
        case _:
            return f"for {roughly(now - job.created_at)}"


def detail(job: Job) -> str:
    """One line about the job: its message, what it waits for, or its error."""
    texts: list[Any] = []
    if job.state is State.RUNNING:
        texts = ["asked to stop" if job.cancelling else "asked to suspend" if job.suspending else "", job.message]
        if job.detached:
            texts.append("goes on elsewhere")
    elif job.state is State.BLOCKED:
        texts = [f"waiting for {cause_text(job.blocked_on or '')}"]
    elif job.state is State.SUSPENDED:
        texts = [job.note]
    elif job.state is not State.COMPLETED:
        texts = [str(job.failure) if job.failure else "", job.note]
    return first_line(next((text for text in texts if text), ""))
