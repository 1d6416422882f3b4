"""Processes that a task has forked, and that come back from it."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn


def leave_if_cloned(pid: int, error: BaseException | None = None) -> None:
    """A process that a task has forked ends where the task ends, as it would at the end of a program: what stands
    around it, the work that waits and the talk with the supervisor, is its parent's. `pid` is who began the task."""
    if os.getpid() != pid:
        _leave(error)


def _leave(error: BaseException | None) -> NoReturn:
    """End this process, and nothing else, with the exit code that the end of a program would have."""
    code = 0
    if isinstance(error, SystemExit):
        code = _code(error.code)
    elif error is not None:
        code = 1
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or nobody reads it
            stream.flush()
    os._exit(code)


def _code(said: object) -> int:
    if said is None:
        return 0
    if isinstance(said, int):
        return said & 0xFF
    with contextlib.suppress(Exception):
        print(said, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1
