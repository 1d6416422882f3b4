"""`daybreak top`: looks again and again, until q is pressed."""

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
from daybreak.cli.text import safe
from daybreak.cli.top.frame import frame
from daybreak.cli.top.keys import quitting
from daybreak.cli.top.snapshot import Look, Rates, look
from daybreak.client.client import Client
from daybreak.config import shown
from daybreak.core.errors import BadInput, StoreUnavailable


@click.command("top", short_help="Watch what is waiting, running and failing.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Look once, print and end; so it is also where there is no terminal.")
def command(every: timedelta, once: bool) -> int:
    """Watch what is waiting, running and failing. q or Ctrl-C ends.

    Examples:
      daybreak top
      daybreak top --once

    """
    if every < timedelta(milliseconds=100):
        raise BadInput("--every: look at most ten times a second, every 100ms")
    return session().run(lambda client: _top(client, every, once=once))


store_options(command)


async def _top(client: Client, every: timedelta, *, once: bool) -> int:
    out = console()
    store = str(session().settings.path or shown(session().settings.url))
    if once or not out.is_terminal or out.is_dumb_terminal:  # a dumb one cannot be drawn on
        for line in frame(await look(client), {}, store, out.width if out.is_terminal else None):
            out.print(line)
        return 0
    rates = Rates()
    with quitting() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while not pressed.is_set():
            try:
                seen = await look(client)
                rates.add(seen)
                live.update(_page(seen, rates, store, *out.size), refresh=True)
            except StoreUnavailable as error:  # it may come back
                live.update(Text(safe(str(error)), "red"), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pressed.wait(), every.total_seconds())
    return 0


def _page(seen: Look, rates: Rates, store: str, width: int, height: int) -> Group:
    """What fits on the screen; the last line says how to leave."""
    lines = frame(seen, rates.per_second(), store, width, height - 1)[: max(height - 1, 0)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines, Text("q ends", "dim"))
