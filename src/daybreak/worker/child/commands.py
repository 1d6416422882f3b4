"""Commands as jobs: `daybreak exec -- CMD`. Only workers that were started with --allow-commands know this task."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Any, Final

from daybreak.core.errors import DaybreakError, Permanent, Transient
from daybreak.core.units import counted
from daybreak.system import platform
from daybreak.tasks.context import Context
from daybreak.tasks.registry import Definition, Program

NAME: Final = "exec"
KEPT: Final = 64 * 1024  # bytes of each output, its end
# Characters of each output that are kept of a command that failed: with both, the error and its traceback stay within
# what a failure may hold (failures.py).
IN_ERROR: Final = 1800
IN_TRACEBACK: Final = 7500
TEMPORARY: Final = 75  # EX_TEMPFAIL of sysexits.h: the command itself says that trying again may help


class CommandFailed(DaybreakError):
    """A command ended with an exit code other than 0."""


def add_commands(program: Program) -> None:
    if NAME not in program:
        program.add(Definition(run_command, name=NAME))


def run_command(
    ctx: Context, argv: list[str], cwd: str | None = None, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run a command to its end. Its output is kept, the last 64 KiB of each stream. If it fails, the end of each stream
    stands in the error, and more of it in the traceback."""
    try:
        process = subprocess.Popen(  # noqa: S603 - this worker was told that it may
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {}), "DAYBREAK_JOB": ctx.job, "DAYBREAK_FENCE": str(ctx.fence)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=platform.as_command(),  # noqa: PLW1509 - a few system calls, prepared beforehand
        )
    except FileNotFoundError as error:
        raise Permanent(f"there is no {error.filename!r} to run on this worker") from None
    except (PermissionError, NotADirectoryError, ValueError) as error:
        raise Permanent(str(error)) from None
    assert process.stdout is not None
    assert process.stderr is not None
    tails = [_Tail(process.stdout), _Tail(process.stderr)]
    _wait(ctx, process)
    stdout, stderr = (tail.text() for tail in tails)
    if process.returncode == 0:
        return {"exit_code": 0, "stdout": stdout, "stderr": stderr}
    raise _failed(argv[0], process.returncode, stdout.strip(), stderr.strip())


def _failed(program: str, code: int, stdout: str, stderr: str) -> DaybreakError:
    told = f"{program[-200:]} ended with {_how(code)}"
    if said := stderr or stdout:
        told += f": {said[-IN_ERROR:].lstrip()}"
    if stdout and stderr:
        told += f"\nstdout: {stdout[-IN_ERROR:].lstrip()}"
    error = (Transient if code == TEMPORARY else CommandFailed)(told)
    for name, text in (("stdout", stdout), ("stderr", stderr)):
        if len(text) > IN_ERROR:
            error.add_note(f"The end of its {name}:\n{text[-IN_TRACEBACK:]}")
    return error


def _wait(ctx: Context, process: subprocess.Popen[bytes]) -> None:
    """Until it ends; asked to stop, it gets SIGTERM first."""
    asked = False
    while True:
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            if ctx.cancelled and not asked:
                asked = True
                _terminate(process)
        else:
            return


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask the command and all it started. They share the group of this child, which leaves stopping to its supervisor
    and goes on; in a thread of someone else's process only the command itself can be asked."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)
    else:
        process.terminate()


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class _Tail:
    """The end of a stream, read as it comes, so that a talkative command never waits for us."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._all = 0
        self._thread = threading.Thread(target=self._read, name="daybreak-output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._all += len(data)
                self._kept += data
                if len(self._kept) > 2 * KEPT:
                    del self._kept[:-KEPT]

    def text(self) -> str:
        # What the command left running may hold the stream open: its output is not waited for.
        self._thread.join(1.0)
        self._stream.close()
        kept = bytes(self._kept[-KEPT:])
        text = kept.decode(sys.getfilesystemencoding(), "backslashreplace")
        return text if self._all <= KEPT else f"... ({counted(self._all - KEPT, 'byte')} before)\n{text}"
