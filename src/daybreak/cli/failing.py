"""Errors as people and scripts see them: one sentence, and an exit code that says what kind of trouble it was."""

from __future__ import annotations

import os
import sys
import traceback
from enum import IntEnum

import click

from daybreak.cli.text import safe
from daybreak.errors import (
    BadInput,
    DaybreakError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Refused,
    ResultTimeout,
    StoreError,
)


class Exit(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1  # the job failed, a change was refused, or doctor found something
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TOO_LONG = 5
    BROKEN = 70  # a fault of ours
    INTERRUPTED = 130
    NO_READER = 141  # who read our output has gone, as with `| head`


class NotFound(DaybreakError):
    """Something other than a job that is not there."""


class NotYet(DaybreakError):
    """What was asked for is still to come."""


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (click.exceptions.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BrokenPipeError, Exit.NO_READER),
    (click.ClickException, Exit.USAGE),
    (JobNotFound, Exit.NOT_FOUND),
    (NotFound, Exit.NOT_FOUND),
    (ResultTimeout, Exit.TOO_LONG),
    (NotYet, Exit.TOO_LONG),
    (StoreError, Exit.UNREACHABLE),
    (BadInput, Exit.USAGE),
    (JobFailed, Exit.FAILED),
    (JobCancelled, Exit.FAILED),
    (Refused, Exit.FAILED),
    (DaybreakError, Exit.FAILED),
)


def end(trouble: BaseException) -> int:
    """Say what went wrong, on stderr, and answer the exit code."""
    code = next((code for kind, code in _CODES if isinstance(trouble, kind)), Exit.BROKEN)
    if code is Exit.NO_READER:
        _let_go_of_stdout()
    elif code is Exit.INTERRUPTED and sys.stderr.isatty():
        click.echo(err=True)  # the terminal wrote ^C
    elif code is not Exit.INTERRUPTED:
        _say(_sentence(trouble, code))
    if os.environ.get("DAYBREAK_DEBUG") and code not in (Exit.NO_READER, Exit.INTERRUPTED):
        traceback.print_exception(trouble)
    return int(code)


def _sentence(trouble: BaseException, code: Exit) -> str:
    if isinstance(trouble, click.UsageError):
        hint = f"\nTry: {trouble.ctx.command_path} --help" if trouble.ctx is not None else ""
        return safe(trouble.format_message(), lines=True) + hint
    if isinstance(trouble, click.ClickException):
        return safe(trouble.format_message(), lines=True)
    if code is Exit.BROKEN:
        what = f"{type(trouble).__name__}: {trouble}" if str(trouble) else type(trouble).__name__
        return f"this should not have happened ({safe(what)[:500]}). DAYBREAK_DEBUG=1 shows where it did."
    return safe(str(trouble), lines=True)


def _say(sentence: str) -> None:
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {sentence}", err=True, color=color())


def color() -> bool | None:
    """False where colour is not wanted; None leaves it to what the stream is."""
    return False if os.environ.get("NO_COLOR") else None


def _let_go_of_stdout() -> None:
    """Python flushes stdout once more at its end, and would complain then."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
