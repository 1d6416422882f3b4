"""`daybreak runs`: the runs of the store."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.text import ago, counted, lasted, number, safe
from daybreak.runs.run_info import RunInfo, all_runs


@click.group(cls=Group, name="runs", invoke_without_command=True, short_help="List, show, export and change runs.")
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List runs, the newest first: how far each one is, and how many of its points failed. A run is a sweep: many jobs
    that were submitted together under one name.

    Examples:
      daybreak runs
      daybreak runs show overnight
      daybreak runs export overnight --csv results.csv
      daybreak runs retry overnight

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak runs {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


async def _list(client: Client, *, as_json: bool) -> int:
    found = await all_runs(client)
    if as_json:
        say_json({"runs": [run.as_dict() for run in found]})
        return 0
    if not found:
        start = session().command("sweep", "sim --vin {vin}", "--grid", "vin=10,12,24")
        say(f"No runs yet: a run appears with its first sweep. Start one with: {start}")
        return 0
    now = datetime.now(UTC)
    say_table(
        [
            Column("RUN", gives=True), Column("STATE"), Column("DONE", right=True), Column("FAILED", right=True),
            Column("RUNNING", right=True, drop=3), Column("TASK", drop=1), Column("STARTED", drop=2), Column("ENDED"),
        ],
        [_row(run, now) for run in found],
    )  # fmt: skip
    say()
    say(_next_step(found))
    return 0


def _row(run: RunInfo, now: datetime) -> list[str]:
    ended = f"{ago(run.finished_at, now)}, took {lasted(run.finished_at - run.started_at)}" if run.finished_at else ""
    failed = number(run.jobs[State.FAILED]) if run.jobs[State.FAILED] else ""
    running = number(run.jobs[State.RUNNING]) if run.jobs[State.RUNNING] else ""
    return [
        safe(run.name), run.state, f"{number(run.done)}/{number(run.job_count)}", failed, running, safe(run.task),
        ago(run.started_at, now), ended,
    ]  # fmt: skip


def _next_step(runs: list[RunInfo]) -> str:
    summary = f"{counted(len(runs), 'run')}."
    for run in runs:
        if run.jobs[State.FAILED]:
            show = session().command("runs", "show", run.name)
            return f"{summary} {counted(run.jobs[State.FAILED], 'point')} of {safe(run.name)} failed. Look with: {show}"
    return f"{summary} Show one with: {session().command('runs', 'show', runs[0].name)}"


store_options(command)
