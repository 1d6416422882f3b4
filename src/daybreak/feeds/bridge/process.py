"""Runs bridges in the foreground, without a worker: `daybreak bridge`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daybreak.feeds.bridge.declaration import Bridge
from daybreak.feeds.bridge.runner import BridgeRunner
from daybreak.feeds.foreground import ended_by_signals

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak


def run_bridges(app: Daybreak, bridges: Sequence[Bridge]) -> int:
    """Run bridges until SIGTERM, SIGHUP or Ctrl-C. Returns the exit code."""
    return asyncio.run(_run(app, bridges))


async def _run(app: Daybreak, bridges: Sequence[Bridge]) -> int:
    try:
        client = await app.client()
        runners = [BridgeRunner(app, client, bridge) for bridge in bridges]
        for runner in runners:
            runner.check()
        task = asyncio.ensure_future(asyncio.gather(*(runner.run() for runner in runners)))
        with ended_by_signals(task), contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        await app.aclose()
    return 0
