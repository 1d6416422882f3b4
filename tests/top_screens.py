"""`daybreak top` without a terminal: keys go in, the lines of the screen come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from textual.pilot import Pilot

from daybreak.cli.top.app import TopApp
from daybreak.cli.top.jobs_screen import JobsScreen
from daybreak.cli.top.row_table import RowTable
from daybreak.client.client import Client
from daybreak.stores import store_for


class Screens:
    """A running program, its keys, and what it shows."""

    def __init__(self, app: TopApp, pilot: Pilot[None], client: Client) -> None:
        self.app = app
        self.pilot = pilot
        self.client = client

    @property
    def screen(self) -> Any:
        return self.app.screen

    @property
    def table(self) -> RowTable:
        return self.app.screen.query_one("#jobs", RowTable)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
        await self.settled()

    async def settled(self) -> None:
        """Everything that the keys started is done, and the screen was read afterwards."""
        await self.until(lambda: all(worker.is_finished or "_keep" in worker.name for worker in self._workers()))
        await self.app.read()
        await self.pilot.pause()

    async def until_read(self) -> None:
        """The store can be read again."""
        async with asyncio.timeout(60):
            while True:
                await self.app.read()
                if self.app.trouble is None:
                    break
                await self.pilot.pause(0.1)
        await self.pilot.pause()

    def _workers(self) -> list[Any]:
        # A worker that asks a question ends only with the answer.
        return [] if len(self.app.screen_stack) > 1 and self.app.screen.is_modal else list(self.app.workers)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await self.pilot.pause(0.02)

    def lines(self) -> list[str]:
        """The screen as text, line by line."""
        height = self.app.size.height
        return [
            "".join(segment.text for segment in strip)
            for strip in self.app.screen._compositor.render_strips()
        ][:height]  # fmt: skip

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines())

    def line(self, part: str) -> str:
        return next(line for line in self.lines() if part in line)


@asynccontextmanager
async def top(url: str, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Screens]:
    """The program on this store, once it has read it. It reads again only when a test says so."""
    async with store_for(url) as store:
        client = Client(store, by="ann")
        app = TopApp(
            client, "daybreak.db", timedelta(hours=1),
            command=lambda *words: " ".join(("daybreak", *words)), start_worker=lambda: "daybreak worker TARGET",
        )  # fmt: skip
        async with app.run_test(size=size) as pilot:
            screens = Screens(app, pilot, client)
            await screens.until(lambda: isinstance(app.screen, JobsScreen))
            await screens.settled()
            yield screens


def prefix(job: str) -> str:
    return job[-8:]
