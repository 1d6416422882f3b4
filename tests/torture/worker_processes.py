"""Worker processes: starts them as a user does, inspects them and their children by pid, and leaves none behind.

Every process that is started while a mark stands in the environment carries it, children of children included: whoever
still has it when the test is over was left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from player_processes import missing

from daybreak import Client, Daybreak
from daybreak.core.units import moment
from daybreak.stores.sqlite.side_files import write_lock_file
from daybreak.stores.sqlite.write_lock import NEXT_BYTE, WRITE_BYTE, write_lock_for
from daybreak.system import platform
from daybreak.worker.supervisor import worker_record

T = TypeVar("T")

MARK = "DAYBREAK_TEST_MARK"
LINES = "DAYBREAK_TEST_LINES"
PATIENCE = 120.0


def until(condition: Callable[[], T], what: str, within: float = PATIENCE) -> T:
    """What the condition answers once that is true of anything."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.01)
    return found


# -- what works did ----------------------------------------------------------------------------------------------------


def write_line(**facts: Any) -> None:
    """One line in one write to a file opened for appending: it stands, whatever happens to its writer."""
    log = os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, json.dumps({"t": time.monotonic(), "pid": os.getpid(), **facts}).encode() + b"\n")
    finally:
        os.close(log)


def read_lines(**wanted: Any) -> list[dict[str, Any]]:
    path = Path(os.environ[LINES])
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return [line for line in found if wanted.items() <= line.items()]


# -- processes ---------------------------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process's children, as far as they live."""
    return [child for child, parent, state in _processes() if parent == pid and state not in "ZX"]


def is_alive(pid: int) -> bool:
    return any(one == pid and state not in "ZX" for one, _, state in _processes())


def rss(pid: int) -> int:
    """Bytes of memory that a process takes, 0 once it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _processes() -> Iterator[tuple[int, int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                yield int(entry.name), int(parent), state


def _threads(pid: int) -> list[str]:
    """The state of each thread of a process."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.append((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0])
    return found


@contextlib.contextmanager
def nobody_left() -> Iterator[None]:
    """Fails if a process that was started in the block outlives it."""
    if not Path("/proc/self/environ").exists():
        missing("without /proc nobody can say who was left behind")
    mark = uuid.uuid4().hex
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        left = _marked(mark)
        deadline = time.monotonic() + 3
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = _marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {left}"


def _marked(mark: str) -> list[int]:
    found = []
    for pid, _, state in _processes():
        with contextlib.suppress(OSError):
            if state not in "ZX" and f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


class WorkerProcess:
    """`daybreak worker TARGET` as a user starts it, what it says kept in a file."""

    def __init__(self, target: Path, url: str, folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.said_in = folder / f"worker-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "daybreak.cli", "worker", str(target), "--url", url, *words]
        places = [str(Path(__file__).parent), str(target.parent), os.environ.get("PYTHONPATH", "")]
        around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), **(env or {})}
        with self.said_in.open("wb") as said:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=around
            )
        self.pid = self._process.pid
        self._url = url
        self.killed_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        return self.said_in.read_text(errors="replace")

    @property
    def returned(self) -> int | None:
        return self._process.poll()

    @property
    def children(self) -> list[int]:
        return family(self.pid)

    def wait_ready(self, app: Daybreak) -> Self:
        """Until it has put its record into the store: then it takes work."""
        until(lambda: self.returned is not None or self.pid in live_pids(app), "the worker is ready")
        assert self.returned is None, f"it ended with {self.returned}: {self.said}"
        return self

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def freeze(self) -> list[int]:
        """Stop it with all its children, and not while it writes to a SQLite file: the others would kill it, because it
        would block them."""
        children = self.children
        self.signal(signal.SIGSTOP)
        while is_alive(self.pid) and self._holds_write_lock():
            self.signal(signal.SIGCONT)
            time.sleep(0.01)
            self.signal(signal.SIGSTOP)
        suspend(children)
        return [self.pid, *children]

    def _holds_write_lock(self) -> bool:
        """Whether it is stopped inside a write, or next in line for one."""
        until(lambda: not is_alive(self.pid) or all(state == "T" for state in _threads(self.pid)), "it is stopped")
        path = Path(self._url.removeprefix("sqlite:///"))
        if not self._url.startswith("sqlite:///") or not write_lock_file(path).exists():
            return False
        # By the lock of this process: to close another descriptor of the file would release what this process holds.
        lock = write_lock_for(write_lock_file(path), timedelta(seconds=10))
        try:
            return self.pid in {platform.lock_holder(lock._fd, byte) for byte in (WRITE_BYTE, NEXT_BYTE)}
        finally:
            lock.close()

    def kill(self) -> None:
        """SIGKILL to the supervisor alone."""
        if self.returned is None:
            self.killed_at = time.monotonic()
            self._process.kill()
        self._process.wait(PATIENCE)

    def wait(self, within: float = PATIENCE) -> int:
        return self._process.wait(within)

    def stop(self, within: float = PATIENCE) -> int:
        self.signal(signal.SIGTERM)
        return self.wait(within)


def suspend(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def thaw(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def live_pids(app: Daybreak) -> set[int]:
    """The workers that the store has seen of late."""

    async def look(client: Client) -> set[int]:
        found = [worker_record.read(one) for one in await client.store.records(worker_record.KIND)]
        return {worker.pid for worker in found if worker.is_live(moment(client.wall()))}

    return ask(app, look)


def ask(app: Daybreak, question: Callable[[Client], Awaitable[T]]) -> T:
    """What has no blocking face: asked of the app's client."""

    async def asked() -> T:
        return await question(await app.client())

    return app.portal.run(asked())
