"""`daybreak top`: shows jobs live, and changes them, until q is pressed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from daybreak.cli.options import DURATION
from daybreak.cli.output import console
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import shown
from daybreak.core.errors import BadInput

if TYPE_CHECKING:
    from daybreak.cli.top.app import TopApp


@click.command("top", short_help="Watch waiting, running and failed jobs live.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to refresh.")
@click.option("--plain", is_flag=True, help="Only show: no list to move in, no actions. q quits.")
@click.option(
    "--once", is_flag=True, help="Print one view and exit. This is the default if the output is not a terminal."
)
def command(every: timedelta, plain: bool, once: bool) -> int:
    """Watch jobs, queues and workers live: filter jobs, open one to see its attempts and its log, ask why it waits, and
    cancel, retry, suspend or move one or several with one key. Press ? for all keys, q to quit.

    Examples:
      daybreak top
      daybreak top --once

    """
    if every < timedelta(milliseconds=100):
        raise BadInput("--every: the shortest interval is 100ms")
    return session().run(lambda client: _top(client, every, plain=plain, once=once))


store_options(command)


async def _top(client: Client, every: timedelta, *, plain: bool, once: bool) -> int:
    from daybreak.cli.top.live_view import print_once, watch  # noqa: PLC0415 - imports rich

    out = console()
    store = str(session().settings.path or shown(session().settings.url))
    if once or not out.is_terminal or out.is_dumb_terminal:  # a dumb terminal cannot move its cursor
        await print_once(client, out, store)
        return 0
    if plain or not _is_whole_terminal():
        await watch(client, out, store, every)
        return 0
    if find_spec("textual") is None:
        await watch(client, out, store, every, "; to filter and change jobs here: pip install 'daybreak[top]'")
        return 0
    return await _interactive(client, store, every)


def _is_whole_terminal() -> bool:
    """Whether the keyboard and both outputs are terminals: Textual draws on stderr."""
    return all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__))


async def _interactive(client: Client, store: str, every: timedelta) -> int:
    from daybreak.cli.top.app import TopApp  # noqa: PLC0415 - importing Textual takes longer than most commands

    here = session()
    app = TopApp(client, store, every, command=here.command, start_worker=here.start_worker)
    with _ended_by_signals(app):
        await app.run_async(mouse=False)  # so that the terminal's own selection and scroll wheel work
    if app.failure is not None:
        raise app.failure
    return 0


@contextlib.contextmanager
def _ended_by_signals(app: TopApp) -> Iterator[None]:
    """End the program in order when it is asked to, so that the terminal is restored."""
    loop = asyncio.get_running_loop()
    chosen = [signal.SIGTERM]
    if sys.platform != "win32":
        chosen.append(signal.SIGHUP)
    with contextlib.suppress(NotImplementedError):  # the loop of Windows
        for number in chosen:
            loop.add_signal_handler(number, app.exit)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in chosen:
                loop.remove_signal_handler(number)
