"""Errors as people and scripts see them: one sentence, and an exit code that says what kind of trouble it was."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from enum import IntEnum
from typing import Any, Final

import click

from daybreak.cli.text import safe
from daybreak.core.errors import (
    BadInput,
    DaybreakError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeySpent,
    Refused,
    ResultTimeout,
    StoreError,
)


class Exit(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1  # the job failed, a change was refused, doctor found something, or the output could not be written
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TOO_LONG = 5
    BROKEN = 70  # a fault of ours
    INTERRUPTED = 130
    NO_READER = 141  # who read our output has gone, as with `| head`


# Of an option or argument: taken as it is, it would mean something that nobody wanted.
EMPTY: Final = "it is empty, as from a variable that is not set; give it a value"


class Unwritten(OSError):
    """What was to be printed could not be written; what was to be done may have been done."""


class NotFound(DaybreakError):
    """Something other than a job that is not there."""


class NotYet(DaybreakError):
    """What was asked for is still to come."""


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (click.exceptions.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BrokenPipeError, Exit.NO_READER),
    (Unwritten, Exit.FAILED),
    (click.ClickException, Exit.USAGE),
    (JobNotFound, Exit.NOT_FOUND),
    (NotFound, Exit.NOT_FOUND),
    (KeySpent, Exit.NOT_FOUND),
    (ResultTimeout, Exit.TOO_LONG),
    (NotYet, Exit.TOO_LONG),
    (StoreError, Exit.UNREACHABLE),
    (BadInput, Exit.USAGE),
    (JobFailed, Exit.FAILED),
    (JobCancelled, Exit.FAILED),
    (Refused, Exit.FAILED),
    (DaybreakError, Exit.FAILED),
)


def end(error: BaseException) -> int:
    """Say what went wrong, on stderr, and answer the exit code."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Exit.BROKEN)
    if code is Exit.NO_READER:
        _let_go_of_stdout()
    elif isinstance(error, Unwritten):
        _let_go_of_stdout()
        _say(f"what was to be printed could not be written: {error.strerror}")
    elif code is Exit.INTERRUPTED and sys.stderr.isatty():
        click.echo(err=True)  # the terminal wrote ^C
    elif code is not Exit.INTERRUPTED:
        _say(_sentence(error, code))
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
        return f"this should not have happened ({safe(what)[:500]}). DAYBREAK_DEBUG=1 shows where it did."
    return safe(str(error), lines=True)


def _say(sentence: str) -> None:
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {sentence}", err=True, color=color())


def color() -> bool | None:
    """False where colour is not wanted; None leaves it to what the stream is."""
    return False if os.environ.get("NO_COLOR") else None


# -- standard output ---------------------------------------------------------------------------------------------------


class _Stdout(io.FileIO):
    """Where a failed write is told from the faults of other files."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            is_closed = error.errno == errno.EBADF
            told = "standard output is closed" if is_closed else error.strerror
            raise Unwritten(error.errno, told) from None


def mend_streams() -> None:
    """Let stdout say when it cannot be written. A stream that was closed before we began (`>&-`) is None to Python, and
    what is printed there would be dropped without a word; of stderr that is as it should be."""
    before = sys.stdout
    if before is None:
        # Open, so that nothing else gets its number; but not for writing, so that whoever tries hears of it.
        raw = _Stdout(os.open(os.devnull, os.O_RDONLY), "w")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    elif isinstance(before, io.TextIOWrapper) and before is sys.__stdout__ and not before.isatty():
        raw = _Stdout(before.fileno(), "w", closefd=False)
        now = before.write_through  # PYTHONUNBUFFERED: nothing waits in between
        sys.stdout = io.TextIOWrapper(raw if now else io.BufferedWriter(raw), before.encoding, write_through=now)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def leave_stdout_to_tasks() -> None:
    """In a process that runs other people's code: what it prints is its own; where nobody reads, nobody complains."""
    sys.stdout = sys.__stdout__ or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the end


def _let_go_of_stdout() -> None:
    """Python flushes stdout once more at its end, and would complain then."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
