"""Watches one folder in the foreground, without a worker: `daybreak watch`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.watcher import FolderWatcher
from daybreak.feeds.foreground import ended_by_signals

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak


def watch_folder(app: Daybreak, watch: FolderWatch, *, until_idle: bool = False) -> int:
    """Watch until SIGTERM, SIGHUP or Ctrl-C, or until no file is left to wait for. Returns the exit code."""
    return asyncio.run(_watch(app, watch, until_idle=until_idle))


async def _watch(app: Daybreak, watch: FolderWatch, *, until_idle: bool) -> int:
    try:
        watcher = FolderWatcher(app, await app.client(), watch)
        task = asyncio.create_task(watcher.run(until_idle=until_idle))
        with ended_by_signals(task), contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await app.aclose()
    return 0
