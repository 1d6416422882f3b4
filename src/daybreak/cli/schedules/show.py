"""`daybreak schedules show | preview`: one schedule in detail, and its next ticks."""

from __future__ import annotations

import click

from daybreak.api.schedules.info import MAX_PREVIEW, ScheduleInfo, preview_schedule, schedule_info
from daybreak.api.views.job import plain_value
from daybreak.api.views.schedule import preview_view, schedule_view
from daybreak.cli import completions
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.output import as_json as json_text
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, as_argument, lasted, local, number, priority_name, safe
from daybreak.core.units import moment
from daybreak.policy.schedules.words import PreviewedTick

_name = click.argument("name", type=NAME, shell_complete=completions.schedules)


@click.command(short_help="Show one schedule in detail.")
@_name
@as_json
def show(name: str, as_json: bool) -> int:
    """Show one schedule: when it ticks, what it submits, what it has done, and who changed it last.

    Example:
      daybreak schedules show nightly

    """
    return session().run(lambda client: _show(client, name, as_json=as_json))


@click.command(short_help="Show the next ticks of a schedule.")
@_name
@click.option("-n", "count", type=click.IntRange(1, MAX_PREVIEW), default=10, help="How many ticks; 10 by default.")
@as_json
def preview(name: str, count: int, as_json: bool) -> int:
    """Show the next ticks of a schedule, in its time zone, with a note where the clock changes. A pause is not
    considered.

    Example:
      daybreak schedules preview nightly -n 3

    """
    return session().run(lambda client: _preview(client, name, count, as_json=as_json))


for made in (show, preview):
    store_options(made)


async def _show(client: Client, name: str, *, as_json: bool) -> int:
    info = await schedule_info(client, name)
    if as_json:
        say_json(schedule_view(info))
        return 0
    heading(f"schedule {info.name}")
    say_pairs(_pairs(info, client))
    return 0


def _pairs(info: ScheduleInfo, client: Client) -> list[tuple[str, str]]:
    now = moment(client.wall())
    is_known = "" if info.is_known else ", which no live worker knows"
    last = f"{ago(info.last_tick, now)}, {local(info.last_tick)}" if info.last_tick else "never"
    job = "" if info.last_job is None else f"{info.last_job}, {info.last_state}"
    return [
        ("state", info.state),
        ("paused", f"{ago(info.paused_at, now)} by {safe(info.paused_by or 'someone')}" if info.paused_at else ""),
        ("when", safe(info.words)),
        ("cron", safe(info.cron or "")),
        ("next tick", f"{ago(info.next_tick, now)}, {local(info.next_tick)}" if info.next_tick else "none"),
        ("last tick", last),
        ("its job", job),
        ("ticks", f"{number(info.ticks)} fired, {number(info.skipped)} skipped"),
        ("task", safe(info.task) + is_known),
        ("arguments", safe(json_text(plain_value(info.args), indent=None))),
        ("queue", f"{safe(info.queue)}, priority {priority_name(info.priority)}"),
        ("catch up", f"{info.catch_up}, on time for {lasted(info.grace)}"),
        ("overlap", info.overlap),
        ("jitter", lasted(info.jitter) if info.jitter else ""),
        ("declared", _declared(info)),
        ("changed", f"{ago(info.changed_at, now)} by {safe(info.changed_by or 'someone')}"),
    ]


def _declared(info: ScheduleInfo) -> str:
    if info.app is None:
        return "at run time"
    return f"in the code of app {safe(info.app)}" if info.app else "in the code of an app without a name"


async def _preview(client: Client, name: str, count: int, *, as_json: bool) -> int:
    info = await schedule_info(client, name)
    ticks = await preview_schedule(client, name, count)
    if as_json:
        say_json({"schedule": info.name, "words": info.words, "ticks": preview_view(ticks)})
        return 0
    say(safe(f"{info.name}: {info.words}"))
    if not ticks:
        say("It has no more ticks.")
        return 0
    now = moment(client.wall())
    say()
    say_table(
        [Column("TICK"), Column("IN", right=True), Column("NOTE", gives=True)],
        [[tick.local, ago(tick.at, now).removeprefix("in "), tick.note] for tick in ticks],
    )
    _say_stopped(info, ticks)
    return 0


def _say_stopped(info: ScheduleInfo, ticks: list[PreviewedTick]) -> None:
    if info.state == "paused" and ticks:
        say()
        resume = session().command("schedules", "resume", *as_argument(info.name))
        say(f"It is paused, so none of them is fired. Resume with: {resume}")
