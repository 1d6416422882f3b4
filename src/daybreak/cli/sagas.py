"""`daybreak sagas`: lists, shows, resumes and cancels sagas."""

from __future__ import annotations

from datetime import datetime

import click

from daybreak.api.views.saga import saga_view
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, note, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.client.saga_changes import cancel_saga, resume_saga
from daybreak.core.text import ago, safe
from daybreak.core.units import moment
from daybreak.policy.sagas import PHASES
from daybreak.sagas.saga_info import SagaInfo, StepInfo, all_sagas, saga_info

_id = click.argument("saga", type=NAME, metavar="ID")


@click.group(cls=Group, name="sagas", invoke_without_command=True, short_help="List, show, resume and cancel sagas.")
@click.option("--state", type=click.Choice(PHASES), help="Only sagas in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many, the newest first."
)
@click.option("--skip", type=click.IntRange(0), default=0, help="Leave out so many of the newest.")
@as_json
@click.pass_context
def command(ctx: click.Context, state: str | None, limit: int, skip: int, as_json: bool) -> int | None:
    """List sagas, the newest first: how far each one is.

    Examples:
      daybreak sagas --state stuck
      daybreak sagas show order-17
      daybreak sagas resume order-17

    """
    if ctx.invoked_subcommand is not None:
        return None

    async def run(client: Client) -> int:
        found = await all_sagas(client, state=state)
        page = found[skip : skip + limit]
        if as_json:
            say_json({"sagas": [saga_view(info) for info in page], "total": len(found)})
            return 0
        if not found:
            say("No sagas." if state is None else f"No saga is {state}.")
            return 0
        now = moment(client.wall())
        columns = [Column("ID"), Column("SAGA", gives=True), Column("STATE"), Column("STEP"), Column("CHANGED", drop=1)]
        say_table(columns, [_row(info, now) for info in page])
        if len(found) > skip + limit:
            note(f"{len(found) - skip - limit} more: --skip {skip + limit}")
        for info in page:
            if info.resume_command is not None:
                note(safe(f"{info.id} is stuck: {info.resume_command}"))
        return 0

    return session().run(run)


@click.command(short_help="Show one saga and its steps.")
@_id
@as_json
def show(saga: str, as_json: bool) -> int:
    """Show one saga: its steps in order, when each ran and was undone, and their jobs.

    Example:
      daybreak sagas show order-17

    """
    return session().run(lambda client: _show(client, saga, as_json=as_json))


@click.command(short_help="Continue a saga that is stuck.")
@_id
@as_json
def resume(saga: str, as_json: bool) -> int:
    """Try again to undo the step at which a saga is stuck.

    Example:
      daybreak sagas resume order-17

    """

    async def run(client: Client) -> int:
        await resume_saga(client, saga)
        return await _show(client, saga, as_json=as_json)

    return session().run(run)


@click.command(short_help="Cancel a saga and undo its steps.")
@_id
@as_json
def cancel(saga: str, as_json: bool) -> int:
    """Stop the running step of a saga, and undo the completed ones in reverse order.

    Example:
      daybreak sagas cancel order-17

    """

    async def run(client: Client) -> int:
        await cancel_saga(client, saga)
        return await _show(client, saga, as_json=as_json)

    return session().run(run)


for made in (show, resume, cancel):
    command.add_command(made)
    store_options(made)
store_options(command)


async def _show(client: Client, saga: str, *, as_json: bool) -> int:
    info = await saga_info(client, saga)
    if as_json:
        say_json(saga_view(info))
        return 0
    say(safe(f"saga {info.id} ({info.name}): {'cancelling' if info.is_cancelling else info.state}"))
    if info.trouble:
        say(safe(info.trouble))
    say()
    columns = [Column("STEP", gives=True), Column("STATE"), Column("STARTED"), Column("ENDED"), Column("JOB", drop=1)]
    say_table(columns, [row for step in info.steps for row in _timeline(step)])
    return 0


def _row(info: SagaInfo, now: datetime) -> list[str]:
    done = sum(step.state == "completed" for step in info.steps)
    step = info.current
    at = f"{done}/{len(info.steps)}" + (f" {step.name}" if step is not None else "")
    return [safe(info.id), safe(info.name), info.state, safe(at), ago(info.changed_at, now)]


def _timeline(step: StepInfo) -> list[list[str]]:
    """The row of a step, and the row of its undo."""
    state = "completed" if step.state in ("undoing", "undone") else step.state
    rows = [[safe(step.name), state, _clock(step.started_at), _clock(step.ended_at), step.job]]
    if step.undo_jobs:
        times = f" (job {step.undo_jobs})" if step.undo_jobs > 1 else ""
        rows.append([
            safe(f"undo {step.name}"), step.state + times, _clock(step.undo_started_at), _clock(step.undo_ended_at),
            step.undo_job,
        ])  # fmt: skip
    return rows


def _clock(at: datetime | None) -> str:
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
