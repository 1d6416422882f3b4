"""Runs feeds in the foreground, without a worker, until a signal ends them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def ended_by_signals(task: asyncio.Future[Any]) -> Iterator[None]:
    """End the task on SIGTERM, SIGHUP or Ctrl-C. An ignored SIGHUP, as under nohup, stays ignored."""
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
