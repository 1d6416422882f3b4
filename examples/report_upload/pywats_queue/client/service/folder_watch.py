"""Watches a folder for new files. It only hastens the next look: the periodic scan is what finds every file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import watchfiles

from .report_folder import ERROR, QUEUED

_log = logging.getLogger("pywats_queue")
logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs a line for every batch of changes
POLL_EVERY: Final = 1.0  # seconds, where the file system cannot report changes


class FolderWatch:
    """Calls `on_change` when a report appears, as long as the `async with` block runs."""

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        try:
            await self._follow()
        except (OSError, RuntimeError) as error:
            _log.warning("%s cannot be watched, so it is read every %g s: %s", self._folder, POLL_EVERY, error)
            while not self._stop.is_set():
                await asyncio.sleep(POLL_EVERY)
                self._on_change()

    async def _follow(self) -> None:
        found = watchfiles.awatch(
            self._folder, watch_filter=_is_report, stop_event=self._stop, debounce=50, step=10, recursive=False,
            rust_timeout=500, yield_on_timeout=True,
        )  # fmt: skip
        is_watched = False
        async with contextlib.aclosing(found):
            async for changes in found:
                # The first answer says that changes are reported from now on: look for those that came before.
                if changes or not is_watched:
                    is_watched = True
                    self._on_change()


def _is_report(_: watchfiles.Change, path: str) -> bool:
    return path.endswith((f".{QUEUED}", f".{ERROR}"))
