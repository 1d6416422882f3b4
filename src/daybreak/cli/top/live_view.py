"""The view of `top` that only shows: for machines without Textual, and for outputs that are no terminals."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from daybreak.cli.top.frame import frame
from daybreak.cli.top.keys import quitting
from daybreak.cli.top.snapshot import Rates, Snapshot, take_snapshot
from daybreak.client.client import Client
from daybreak.core.errors import StoreUnavailable
from daybreak.core.text import safe


async def print_once(client: Client, out: Console, store: str) -> None:
    """Print one view."""
    for line in frame(await take_snapshot(client), {}, store, out.width if out.is_terminal else None):
        out.print(line)


async def watch(client: Client, out: Console, store: str, every: timedelta, hint: str = "") -> None:
    """Refresh the view until q is pressed. The last line says so, and shows the hint."""
    rates = Rates()
    with quitting() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while not pressed.is_set():
            try:
                snapshot = await take_snapshot(client)
                rates.add(snapshot)
                live.update(_page(snapshot, rates, store, *out.size, hint), refresh=True)
            except StoreUnavailable as error:  # the store may come back
                live.update(Text(safe(str(error)), "red"), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pressed.wait(), every.total_seconds())


def _page(snapshot: Snapshot, rates: Rates, store: str, width: int, height: int, hint: str) -> Group:
    """The part of the view that fits on the screen. The last line says how to quit."""
    lines = frame(snapshot, rates.per_second(), store, width, height - 1)[: max(height - 1, 0)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines, Text(f"q to quit{hint}", "dim", no_wrap=True, overflow="ellipsis"))
