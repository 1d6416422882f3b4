"""Processes that a case starts, and how each of them is ended: by its own id, whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
STOPPED_WITHIN = 30
PR_SET_CHILD_SUBREAPER = 36


class Process:
    """In a session of its own; leaving the block ends it and everything it started.

    `stop` is the signal that asks it to end; with SIGKILL nobody is asked, and the whole session goes at once."""

    def __init__(
        self, command: Sequence[str], place: Path, name: str = "worker", *, stop: signal.Signals = signal.SIGTERM
    ) -> None:
        self._log = place / f"{name}.log"
        self._stop = stop
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> bool:
        """True while it lives; what it said last, as an error, otherwise."""
        if (code := self._process.poll()) is None:
            return True
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        program = Path(str(self._process.args[0])).name  # type: ignore[index]
        raise RuntimeError(f"{program} ended with {code}: {said[-1] if said else 'it said nothing'}")

    def kill(self) -> None:
        """This one process alone, as the system's killer of the greedy would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            if self._stop != signal.SIGKILL:
                self._process.send_signal(self._stop)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOPPED_WITHIN)
                    return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- whoever was left behind -------------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Whose parent dies becomes a child of this process (on Linux), which then ends it: `end_orphans`."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End and wait for every child there is. Only for a process that has no child it still needs."""
    for patience, sign in ((5.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
        end = time.monotonic() + patience
        for pid in children_of(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        while _reap() and time.monotonic() < end:
            time.sleep(0.02)


def _reap() -> bool:
    """Whether children are left, after those that have ended were waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        return True
    return False


def children_of(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text(encoding="utf-8").split()]
    return found


def descendants_of(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(one for child in children for one in descendants_of(child))]


def cpu_seconds(*pids: int) -> float:
    """Of these and all below them; to the nanosecond, for an idle worker takes less than a tick of the usual clock."""
    total = 0
    for pid in {one for of in pids for one in (of, *descendants_of(of))}:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return total / 1e9


def end(process: subprocess.Popen[str]) -> None:
    """Ask a case to end, so that it ends what it started; insist when it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=2 * STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
