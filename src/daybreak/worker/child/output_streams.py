"""Replaces stdout and stderr of a child process by streams that also keep what a job prints."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from daybreak.tasks.context import Context, current

_LINE_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


class _State:
    """`find` returns the context of the job that is printing. In a process that a task forked it is not used: the
    connection belongs to the parent."""

    find: Callable[[], Context | None] | None = None


def find_by_context() -> Context | None:
    """The job of the current thread or asyncio task."""
    return current.get(None)


class OutputStream(io.TextIOWrapper):
    """Writes to the stream that it replaces, and adds the text to the output of the job that prints."""

    def write(self, text: str, /) -> int:
        written = super().write(text)
        keep(text)
        return written


def keep(text: str) -> None:
    """Add text to the output of the job that prints it, if a job does."""
    find = _State.find
    if find is not None and text:
        ctx = find()
        if ctx is not None:
            with contextlib.suppress(OSError, RuntimeError):  # the supervisor is gone
                ctx.output(text)


def replace_streams() -> None:
    """Before the user's code is imported: its logging may keep the streams that it finds."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            # Children share their output: a line must be one write, also with PYTHONUNBUFFERED, or lines of several
            # jobs mix. The original stream stays open as sys.__stdout__.
            stream.flush()
            own = OutputStream(stream.buffer, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, own)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=disconnect)


def connect(find: Callable[[], Context | None]) -> None:
    """From now on keep what jobs print."""
    _State.find = find


def disconnect() -> None:
    _State.find = None


class KeptLines(logging.Filter):
    """Adds the log lines of jobs (`ctx.log`) to their output. A filter instead of a handler: where the user's code has
    configured no logging, a handler would keep Python from printing them."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter(_LINE_FORMAT)

    def filter(self, record: logging.LogRecord) -> bool:
        with contextlib.suppress(Exception):  # a line that cannot be kept must not fail the job
            ctx = _State.find() if _State.find is not None else None
            if ctx is not None:
                line = self._formatter.format(record)
                ctx.output(line.replace(f"{ctx.task} {ctx.job}: ", "", 1) + "\n")
        return True
