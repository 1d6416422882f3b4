"""`daybreak runs show`: one run in detail."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import click

from daybreak.cli import completions
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.root import store_options
from daybreak.cli.runs.found import find_run, no_worker_note
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.text import ago, bar, counted, first_line, lasted, local, number, percent, priority_name, safe
from daybreak.runs.run_info import RunInfo
from daybreak.tasks.command_tasks import EXEC_POINT

CACHED_READ = 500  # completed points that are looked at
ERRORS_READ = 200  # failed jobs whose errors are counted
ERRORS_SHOWN = 5


@click.command(short_help="Show one run in detail.")
@click.argument("name", type=NAME, shell_complete=completions.runs)
@as_json
def show(name: str, as_json: bool) -> int:
    """Show one run: its progress, when it will probably end, what it varies, and why points failed.

    Example:
      daybreak runs show overnight

    """
    return session().run(lambda client: _show(client, name, as_json=as_json))


store_options(show)


async def _show(client: Client, name: str, *, as_json: bool) -> int:
    info = await (await find_run(client, name)).ainfo()
    if as_json:
        say_json(info.as_dict())
        return 0
    now = datetime.now(UTC)
    heading(f"run {info.name}")
    say_pairs([
        ("state", info.state),
        ("note", safe(info.note)),
        ("progress", progress_text(info)),
        ("points", points_text(info)),
        ("cached", await _cached_text(client, info)),
        ("expected end", eta_text(info, now)),
        ("task", safe(info.task)),
        ("varies", safe(", ".join(info.columns))),
        ("fixed" if info.task != EXEC_POINT else "command", safe(_fixed_text(info))),
        ("queue", f"{safe(info.queue)}, priority {priority_name(info.priority)}"),
        ("started", f"{ago(info.started_at, now)}, {local(info.started_at)}, by {safe(info.by)}"),
        ("ended", _ended_text(info, now)),
        ("epoch", f"{info.epoch}: begun anew, earlier results: runs export {safe(info.name)}#1" * (info.epoch > 1)),
    ])  # fmt: skip
    await _say_errors(client, info)
    say()
    say(await no_worker_note(client, info) or next_step(info))
    return 0


def progress_text(info: RunInfo) -> str:
    """A bar, and how many of the points have ended."""
    share = info.done / info.job_count if info.job_count else 1.0
    removed = f", {number(info.orphaned)} of them no longer in the sweep" if info.orphaned else ""
    return f"{bar(share)} {percent(share)}, {number(info.done)} of {counted(info.job_count, 'point')}{removed}"


def points_text(info: RunInfo) -> str:
    """How many points are in each state: `40 completed, 2 failed, 8 queued`."""
    shown = [f"{number(n)} {state.value}" for state, n in info.jobs.items() if n]
    missing = info.job_count - sum(info.jobs.values())
    if missing > 0:
        shown.append(f"{number(missing)} not submitted")
    return ", ".join(shown)


def eta_text(info: RunInfo, now: datetime) -> str:
    """The range in which the run will probably end."""
    eta = info.eta
    if eta is None or info.is_over:
        return ""
    soonest, latest = ago(eta.low, now), ago(eta.high, now).removeprefix("in ")
    return f"{soonest} to {latest}, between {local(eta.low)} and {local(eta.high)}"


def _ended_text(info: RunInfo, now: datetime) -> str:
    if info.finished_at is None:
        return ""
    return f"{ago(info.finished_at, now)}, {local(info.finished_at)}, took {lasted(info.finished_at - info.started_at)}"


def _fixed_text(info: RunInfo) -> str:
    if info.task == EXEC_POINT:
        return info.fixed.get("command", "").strip("\"'")
    return ", ".join(f"{name}={value}" for name, value in info.fixed.items())


async def _cached_text(client: Client, info: RunInfo) -> str:
    """How many of the latest completed points did not run, because their result was known."""
    if not info.jobs[State.COMPLETED]:
        return ""
    page = await client.find(limit=CACHED_READ, run=info.label, state=State.COMPLETED)
    cached = sum(job.cached_from is not None for job in page.jobs)
    if not cached:
        return ""
    of = "" if page.cursor is None else f" of the latest {number(len(page.jobs))}"
    return f"{number(cached)}{of} had a known result"


async def _say_errors(client: Client, info: RunInfo) -> None:
    """The most frequent errors of the points that failed last, each with one job."""
    failed = info.jobs[State.FAILED]
    if not failed:
        return
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    page = await client.find(limit=ERRORS_READ, run=info.label, state=State.FAILED)
    for job in page.jobs:
        error = first_line(str(job.failure or job.reason or ""), 120)
        counts[error] += 1
        examples.setdefault(error, job.id)
    say()
    say_table(
        [Column("FAILED", right=True), Column("ERROR", gives=True), Column("FOR EXAMPLE")],
        [[number(n), error, examples[error]] for error, n in counts.most_common(ERRORS_SHOWN)],
    )
    rest = len(counts) - ERRORS_SHOWN
    if rest > 0 or failed > len(page.jobs):
        others = counted(max(rest, 0), "other error")
        say(f"... of the latest {counted(len(page.jobs), 'failed point')}; {others} not shown")


def next_step(info: RunInfo) -> str:
    """A sentence with the command that fits the state of the run."""
    here = session()
    failed = info.jobs[State.FAILED]
    if info.state == "paused":
        return f"Go on with: {here.command('runs', 'resume', info.name)}"
    if info.state == "running":
        return f"Wait for it with: {here.command('runs', 'wait', info.name)}"
    if failed:
        points = "failed point" if failed == 1 else f"{number(failed)} failed points"
        return f"Run the {points} again with: {here.command('runs', 'retry', info.name)}"
    if info.state == "submitting":
        return "Give the same sweep again to submit the points that are missing."
    return f"Get the results with: {here.command('runs', 'export', info.name, '--csv', info.name + '.csv')}"
