"""`daybreak watches`: lists the watched folders; pauses and resumes them."""

from __future__ import annotations

from datetime import datetime

import click

from daybreak.cli.errors import NotFound
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, heading, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, number, safe
from daybreak.core.units import moment
from daybreak.feeds.drop_folder.watch_record import WatchStatus, read_pauses, read_statuses, set_paused


@click.group("watches", cls=Group, invoke_without_command=True, short_help="List watched folders; pause them.")
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List the watched folders: their state, the files that wait in them, and what was left alone. A watch is `gone` if
    its watcher has not written for three minutes.

    Examples:
      daybreak watches
      daybreak watches pause reports

    """
    if ctx.invoked_subcommand is not None:
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


@click.command(short_help="Take no more files of watches.")
@click.argument("names", type=NAME, metavar="NAME...", nargs=-1, required=True)
def pause(names: tuple[str, ...]) -> int:
    """Take no more files of these watches. Jobs of files that were taken continue, and these files still move.

    Example:
      daybreak watches pause reports

    """
    return session().run(lambda client: _set(client, names, paused=True))


@click.command(short_help="Take files of paused watches again.")
@click.argument("names", type=NAME, metavar="NAME...", nargs=-1, required=True)
def resume(names: tuple[str, ...]) -> int:
    """Take files of paused watches again.

    Example:
      daybreak watches resume reports

    """
    return session().run(lambda client: _set(client, names, paused=False))


for made in (command, pause, resume):
    store_options(made)
command.add_command(pause)
command.add_command(resume)


async def _set(client: Client, names: tuple[str, ...], *, paused: bool) -> int:
    known = {status.name for status in await read_statuses(client)} | set(await read_pauses(client))
    for name in names:
        if name not in known:
            raise NotFound(f"no watch named {name!r} has run on this store; `daybreak watches` lists them")
    for name in names:
        await set_paused(client, name, paused=paused)
        say(safe(f"{name} is {'paused' if paused else 'resumed'}."))
    return 0


async def _list(client: Client, *, as_json: bool) -> int:
    now = moment(client.wall())
    paused = await read_pauses(client)
    found = await read_statuses(client)
    if as_json:
        say_json({"watches": [_view(status, now, paused=status.name in paused) for status in found]})
        return 0
    if not found:
        say("No folder is watched. Watch one with: " + session().command("watch", "DIR", "--task", "TASK"))
        return 0
    say_table(
        [
            Column("WATCH"), Column("STATE"), Column("HOST", drop=2), Column("FOLDER", gives=True),
            Column("TASK", drop=1), Column("SETTLING", right=True), Column("READY", right=True),
            Column("ACCEPTED", right=True), Column("DONE", right=True), Column("FAILED", right=True),
            Column("LEFT", right=True), Column("SEEN"),
        ],
        [_row(status, now, paused=status.name in paused) for status in found],
    )  # fmt: skip
    _say_left_alone(found)
    return 0


def _row(status: WatchStatus, now: datetime, *, paused: bool) -> list[str]:
    state = status.state_at(now, paused=paused)
    return [
        safe(status.name), f"{state}, polling" if status.polling and state == "running" else state, safe(status.host),
        safe(status.folder), safe(status.task), number(status.settling), number(status.ready),
        number(status.accepted), number(status.done), number(status.failed), number(status.left_alone),
        ago(status.seen_at, now),
    ]  # fmt: skip


def _say_left_alone(found: list[WatchStatus]) -> None:
    if any(status.reported for status in found):
        say()
        heading("Left alone")
        for status in found:
            for path, why in status.reported:
                say(safe(f"{status.name}: {path}: {why}"))


def _view(status: WatchStatus, now: datetime, *, paused: bool) -> dict[str, object]:
    """A watch as JSON."""
    counts = {name: getattr(status, name) for name in _COUNTS}
    return {
        "name": status.name, "state": status.state_at(now, paused=paused), "host": status.host,
        "folder": status.folder, "task": status.task, "queue": status.queue, "polling": status.polling, **counts,
        "reported": [{"path": path, "reason": why} for path, why in status.reported],
        "started_at": status.started_at.isoformat(), "seen_at": status.seen_at.isoformat(),
    }  # fmt: skip


_COUNTS = ("settling", "ready", "accepted", "submitted", "done", "failed", "repeated", "left_alone")
