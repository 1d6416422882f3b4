"""`daybreak schedules`: the schedules of the store."""

from __future__ import annotations

from datetime import datetime

import click

from daybreak.api.schedules.info import ScheduleInfo, all_schedules
from daybreak.api.views.schedule import schedule_view
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, as_argument, counted, safe
from daybreak.core.units import moment


@click.group(cls=Group, name="schedules", invoke_without_command=True, short_help="List, preview and change schedules.")
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List schedules: when each one ticks, its next tick, and how its last job ended. Workers write the schedules that
    their code declares when they start.

    Examples:
      daybreak schedules
      daybreak schedules preview nightly
      daybreak schedules pause nightly
      daybreak schedules run-now nightly

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak schedules {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


async def _list(client: Client, *, as_json: bool) -> int:
    found = await all_schedules(client)
    if as_json:
        say_json({"schedules": [schedule_view(info) for info in found]})
        return 0
    if not found:
        say("No schedules yet. Declare one in the code, and start a worker: app.schedule('nightly', task, cron=...)")
        return 0
    now = moment(client.wall())
    say_table(
        [
            Column("SCHEDULE"), Column("STATE"), Column("WHEN", gives=True), Column("TASK", drop=1),
            Column("NEXT"), Column("LAST", drop=2), Column("JOB", drop=3),
        ],
        [_row(info, now) for info in found],
    )  # fmt: skip
    say()
    say(_next_step(found))
    return 0


def _row(info: ScheduleInfo, now: datetime) -> list[str]:
    return [
        safe(info.name), info.state, safe(info.words), safe(info.task), ago(info.next_tick, now),
        ago(info.last_tick, now), info.last_state.value if info.last_state else "",
    ]  # fmt: skip


def _next_step(found: list[ScheduleInfo]) -> str:
    summary = f"{counted(len(found), 'schedule')}."
    for info in found:
        if not info.is_known:
            return f"{summary} No live worker knows task {safe(info.task)} of {safe(info.name)}: its jobs will wait."
        if info.state == "late":
            return f"{summary} {safe(info.name)} is late: start a worker, or {session().command('serve')}"
        if info.state == "paused":
            return f"{summary} Resume with: {session().command('schedules', 'resume', *as_argument(info.name))}"
    return (
        f"{summary} See the next ticks with: {session().command('schedules', 'preview', *as_argument(found[0].name))}"
    )


store_options(command)
