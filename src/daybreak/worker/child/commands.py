"""Runs command lines as jobs: `daybreak exec -- CMD`. Only workers started with --allow-commands have this task."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from daybreak.core.errors import BadFile, DaybreakError, Permanent, Transient
from daybreak.core.units import counted
from daybreak.system import platform
from daybreak.system.file_content import digest_of
from daybreak.tasks.command_tasks import EXEC, INPUTS
from daybreak.tasks.context import Context
from daybreak.tasks.registry import Definition, Program

MAX_OUTPUT_BYTES: Final = 64 * 1024  # of each output stream; the end is kept
# Characters of each output stream in the error and in the traceback of a command that failed. With both streams they
# stay within the limits of a failure (failures.py).
MAX_CHARS_IN_ERROR: Final = 1800
MAX_CHARS_IN_TRACEBACK: Final = 7500
EX_TEMPFAIL: Final = 75  # from sysexits.h: the command says that a retry may help


class CommandFailed(DaybreakError):
    """A command ended with an exit code other than 0."""


def add_commands(program: Program) -> None:
    """Add the tasks for command lines to a program that does not have them."""
    from daybreak.worker.child.sweep_points import add_sweep_points  # noqa: PLC0415 - it imports this module

    if EXEC not in program:
        program.add(Definition(run_command, name=EXEC))
    add_sweep_points(program)


def run_command(
    ctx: Context, argv: list[str], cwd: str | None = None, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run a command until it ends. The result has its exit code and the last 64 KiB of each output stream.

    If the command fails, the error has the end of each stream, and the traceback has more of it."""
    code, stdout, stderr = run_process(ctx, argv, cwd, env or {})
    if code == 0:
        return {"exit_code": 0, "stdout": stdout, "stderr": stderr}
    raise command_failed(argv[0], code, stdout.strip(), stderr.strip())


def run_process(ctx: Context, argv: list[str], cwd: str | None, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program until it ends: its exit code, and the last 64 KiB of stdout and stderr."""
    _check_inputs(ctx)
    try:
        process = subprocess.Popen(  # noqa: S603 - the worker was started with --allow-commands
            argv,
            cwd=cwd,
            env={**os.environ, **env, "DAYBREAK_JOB": ctx.job, "DAYBREAK_FENCE": str(ctx.fence)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=platform.as_command(),  # noqa: PLW1509 - a few system calls, prepared beforehand
        )
    except FileNotFoundError as error:
        raise Permanent(
            f"{error.filename!r} does not exist on this worker: install it there, or correct the command"
        ) from None
    except (PermissionError, NotADirectoryError, ValueError) as error:
        raise Permanent(str(error)) from None
    assert process.stdout is not None
    assert process.stderr is not None
    tails = [_Tail(process.stdout, ctx), _Tail(process.stderr, ctx)]
    _wait(ctx, process)
    stdout, stderr = (tail.text() for tail in tails)
    if process.returncode == 0:
        _check_inputs(ctx)  # it may have changed meanwhile
    return process.returncode, stdout, stderr


def _check_inputs(ctx: Context) -> None:
    """Refuse a result that would be kept for other contents of the files than those that the command reads."""
    for path, digest in ctx.meta.get(INPUTS, {}).items():
        try:
            is_same = digest_of(Path(path))[0] == digest
        except BadFile:
            is_same = False
        if not is_same:
            raise Permanent(
                f"{path} is not as it was when the job was submitted, for which its result would be kept: submit the "
                "command again"
            )


def command_failed(program: str, code: int, stdout: str, stderr: str) -> DaybreakError:
    """The error of a command that ended with this code."""
    message = f"{program[-200:]} ended with {_exit_status(code)}"
    output = stderr or stdout
    if output:
        message += f": {output[-MAX_CHARS_IN_ERROR:].lstrip()}"
    if stdout and stderr:
        message += f"\nstdout: {stdout[-MAX_CHARS_IN_ERROR:].lstrip()}"
    error = Transient(message) if code == EX_TEMPFAIL else CommandFailed(message)
    for name, text in (("stdout", stdout), ("stderr", stderr)):
        if len(text) > MAX_CHARS_IN_ERROR:
            error.add_note(f"The end of its {name}:\n{text[-MAX_CHARS_IN_TRACEBACK:]}")
    return error


def _wait(ctx: Context, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process ends. If the job is asked to stop, send SIGTERM once."""
    is_terminated = False
    while True:
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            if ctx.cancelled and not is_terminated:
                is_terminated = True
                _terminate(process)
        else:
            return


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the command and to every process that it started.

    They share the process group of this child, which itself does nothing on SIGTERM. Where the child is a thread, only
    the command gets the signal."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)
    else:
        process.terminate()


def _exit_status(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class _Tail:
    """Reads an output stream in a thread and keeps its end, so that a command never blocks on a full pipe. All of it
    is added to the output of the job."""

    def __init__(self, stream: IO[bytes], ctx: Context) -> None:
        self._stream = stream
        self._ctx = ctx
        self._decoder = codecs.getincrementaldecoder(sys.getfilesystemencoding())("backslashreplace")
        self._kept = bytearray()
        self._total = 0
        self._thread = threading.Thread(target=self._read, name="daybreak-output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._total += len(data)
                self._ctx.output(self._decoder.decode(data))
                self._kept += data
                if len(self._kept) > 2 * MAX_OUTPUT_BYTES:
                    del self._kept[:-MAX_OUTPUT_BYTES]

    def text(self) -> str:
        # A process that the command left running may hold the stream open: do not wait for it.
        self._thread.join(1.0)
        self._stream.close()
        kept = bytes(self._kept[-MAX_OUTPUT_BYTES:])
        text = kept.decode(sys.getfilesystemencoding(), "backslashreplace")
        if self._total > MAX_OUTPUT_BYTES:
            text = f"... ({counted(self._total - MAX_OUTPUT_BYTES, 'byte')} before)\n{text}"
        return text
