"""`daybreak top`: refreshes a view of the store until q is pressed."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from daybreak.cli.options import DURATION
from daybreak.cli.output import console
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.top.frame import frame
from daybreak.cli.top.keys import quitting
from daybreak.cli.top.snapshot import Rates, Snapshot, take_snapshot
from daybreak.client.client import Client
from daybreak.config import shown
from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.core.text import safe


@click.command("top", short_help="Watch waiting, running and failed jobs live.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to refresh.")
@click.option(
    "--once", is_flag=True, help="Print one view and exit. This is the default if the output is not a terminal."
)
def command(every: timedelta, once: bool) -> int:
    """Watch waiting, running and failed jobs. Press q or Ctrl-C to quit.

    Examples:
      daybreak top
      daybreak top --once

    """
    if every < timedelta(milliseconds=100):
        raise BadInput("--every: the shortest interval is 100ms")
    return session().run(lambda client: _top(client, every, once=once))


store_options(command)


async def _top(client: Client, every: timedelta, *, once: bool) -> int:
    out = console()
    store = str(session().settings.path or shown(session().settings.url))
    if once or not out.is_terminal or out.is_dumb_terminal:  # a dumb terminal cannot move its cursor
        for line in frame(await take_snapshot(client), {}, store, out.width if out.is_terminal else None):
            out.print(line)
        return 0
    rates = Rates()
    with quitting() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while not pressed.is_set():
            try:
                snapshot = await take_snapshot(client)
                rates.add(snapshot)
                live.update(_page(snapshot, rates, store, *out.size), refresh=True)
            except StoreUnavailable as error:  # the store may come back
                live.update(Text(safe(str(error)), "red"), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pressed.wait(), every.total_seconds())
    return 0


def _page(snapshot: Snapshot, rates: Rates, store: str, width: int, height: int) -> Group:
    """The part of the view that fits on the screen. The last line says how to quit."""
    lines = frame(snapshot, rates.per_second(), store, width, height - 1)[: max(height - 1, 0)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines, Text("q to quit", "dim"))
