"""Ends processes that a task forked and that return from the task function."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn


def exit_if_forked(pid: int, error: BaseException | None = None) -> None:
    """Exit this process if it is not the process `pid`, in which the task was started.

    A task may call os.fork(), and then the task function returns in both processes. The forked one must end here: the
    waiting work and the connection to the supervisor belong to its parent."""
    if os.getpid() != pid:
        _exit(error)


def _exit(error: BaseException | None) -> NoReturn:
    """Exit with the code that the interpreter would use, without running exit handlers or `finally` blocks."""
    code = 0
    if isinstance(error, SystemExit):
        code = _exit_code(error.code)
    elif error is not None:
        code = 1
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or nobody reads it
            stream.flush()
    os._exit(code)


def _exit_code(argument: object) -> int:
    """The exit code for sys.exit(argument)."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument & 0xFF
    with contextlib.suppress(Exception):
        print(argument, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1
