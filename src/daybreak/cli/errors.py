"""How a command reports an error: one sentence on stderr, and an exit code for the kind of error."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from enum import IntEnum
from typing import Any, Final

import click

from daybreak.core.errors import (
    BadInput,
    DaybreakError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeySpent,
    Refused,
    ResultTimeout,
    RunNotFound,
    RunTimeout,
    SagaNotFound,
    SagaTimeout,
    ScheduleNotFound,
    StoreError,
)
from daybreak.core.text import safe


class Exit(IntEnum):
    """The exit codes of commands."""

    OK = 0
    FAILED = 1  # the job failed, a change was refused, doctor found something, or the output could not be written
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TOO_LONG = 5
    BROKEN = 70  # a bug in Daybreak
    INTERRUPTED = 130
    NO_READER = 141  # the reader of the output has closed the pipe, as with `| head`


# For an option or argument that is empty. Accepting it would do something that the user did not mean.
EMPTY: Final = "the value is empty (is a shell variable not set?); give a value"


class Unwritten(OSError):
    """The output could not be written. The command itself may have done its work."""


class NotFound(DaybreakError):
    """A queue, resource or lock that does not exist. For a job there is `JobNotFound`."""


class NotYet(DaybreakError):
    """The job has not ended yet, so it has no result."""


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (click.exceptions.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BrokenPipeError, Exit.NO_READER),
    (Unwritten, Exit.FAILED),
    (click.ClickException, Exit.USAGE),
    (JobNotFound, Exit.NOT_FOUND),
    (RunNotFound, Exit.NOT_FOUND),
    (ScheduleNotFound, Exit.NOT_FOUND),
    (SagaNotFound, Exit.NOT_FOUND),
    (SagaTimeout, Exit.TOO_LONG),
    (NotFound, Exit.NOT_FOUND),
    (KeySpent, Exit.NOT_FOUND),
    (ResultTimeout, Exit.TOO_LONG),
    (RunTimeout, Exit.TOO_LONG),
    (NotYet, Exit.TOO_LONG),
    (StoreError, Exit.UNREACHABLE),
    (BadInput, Exit.USAGE),
    (JobFailed, Exit.FAILED),
    (JobCancelled, Exit.FAILED),
    (Refused, Exit.FAILED),
    (DaybreakError, Exit.FAILED),
)


def end(error: BaseException) -> int:
    """Print the error on stderr and return the exit code."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Exit.BROKEN)
    if code is Exit.NO_READER:
        _let_go_of_stdout()
    elif isinstance(error, Unwritten):
        _let_go_of_stdout()
        fail(f"the output could not be written: {error.strerror}")
    elif code is Exit.INTERRUPTED and sys.stderr.isatty():
        click.echo(err=True)  # the terminal wrote ^C
    elif code is not Exit.INTERRUPTED:
        fail(_sentence(error, code))
    if os.environ.get("DAYBREAK_DEBUG") and code not in (Exit.NO_READER, Exit.INTERRUPTED):
        traceback.print_exception(error)
    return int(code)


def _sentence(error: BaseException, code: Exit) -> str:
    if isinstance(error, click.UsageError):
        hint = f"\nTry: {error.ctx.command_path} --help" if error.ctx is not None else ""
        return safe(error.format_message(), lines=True) + hint
    if isinstance(error, click.ClickException):
        return safe(error.format_message(), lines=True)
    if code is Exit.BROKEN:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"internal error ({safe(what)[:500]}). Set DAYBREAK_DEBUG=1 to see the traceback."
    return safe(str(error), lines=True)


def fail(sentence: str) -> None:
    """Print an error on stderr."""
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {sentence}", err=True, color=color())


def color() -> bool | None:
    """False if NO_COLOR is set. None lets click decide: colour on a terminal, none in a pipe."""
    return False if os.environ.get("NO_COLOR") else None


# -- standard output ---------------------------------------------------------------------------------------------------


class _Stdout(io.FileIO):
    """Standard output that raises `Unwritten` for a failed write, to tell it from errors of other files."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            is_closed = error.errno == errno.EBADF
            reason = "standard output is closed" if is_closed else error.strerror
            raise Unwritten(error.errno, reason) from None


def mend_streams() -> None:
    """Make stdout raise `Unwritten` when it cannot be written. If a stream was closed before the program started
    (`>&-`), Python sets it to None and silently drops what is printed there. For stderr that is right; for stdout it is
    not."""
    before = sys.stdout
    if before is None:
        # Open a file, so that no other file gets descriptor 1; but read-only, so that every write fails.
        raw = _Stdout(os.open(os.devnull, os.O_RDONLY), "w")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    elif isinstance(before, io.TextIOWrapper) and before is sys.__stdout__ and not before.isatty():
        raw = _Stdout(before.fileno(), "w", closefd=False)
        now = before.write_through  # PYTHONUNBUFFERED: no buffer in between
        sys.stdout = io.TextIOWrapper(raw if now else io.BufferedWriter(raw), before.encoding, write_through=now)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def leave_stdout_to_tasks() -> None:
    """In a process that runs tasks, restore Python's own stdout: a task that prints must not fail because of us."""
    sys.stdout = sys.__stdout__ or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def _let_go_of_stdout() -> None:
    """Point stdout at the null device. Python flushes stdout at exit, and would report the same error again."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
