"""Watches one folder in the foreground, without a worker: `daybreak watch`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.watcher import FolderWatcher

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak


def watch_folder(app: Daybreak, watch: FolderWatch, *, until_idle: bool = False) -> int:
    """Watch until SIGTERM, SIGHUP or Ctrl-C, or until no file is left to wait for. Returns the exit code."""
    return asyncio.run(_watch(app, watch, until_idle=until_idle))


async def _watch(app: Daybreak, watch: FolderWatch, *, until_idle: bool) -> int:
    try:
        watcher = FolderWatcher(app, await app.client(), watch)
        task = asyncio.create_task(watcher.run(until_idle=until_idle))
        with _signals(task), contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await app.aclose()
    return 0


@contextlib.contextmanager
def _signals(task: asyncio.Task[Any]) -> Iterator[None]:
    """End the task on signals. An ignored SIGHUP, as under nohup, stays ignored."""
    if sys.platform == "win32":
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if not _is_ignored(number)]
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _is_ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
