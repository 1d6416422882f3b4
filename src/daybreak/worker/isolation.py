"""How a child is started and ended: a process of its own, or, where user code cannot be imported again, a thread."""

from __future__ import annotations

import contextlib
import mmap
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path
from typing import Protocol

from daybreak import platform
from daybreak.tasks import Program
from daybreak.worker.cell import Cell, size_for
from daybreak.worker.stacks import file_for
from daybreak.worker.wire import Hello, frame


class Body(Protocol):
    """A child's bodily side. `sock` is our end of the talk."""

    sock: socket.socket
    cell: Cell
    pid: int | None
    scratch: str

    def end(self) -> bool:
        """End it now; False if that cannot be done and it goes on until its job ends."""
        ...

    def how_it_ended(self) -> str | None:
        """None while it lives."""
        ...

    def memory(self) -> int | None: ...

    def activity(self) -> platform.Activity | None:
        """What it has done so far, with all that it started; None where nobody can say."""
        ...

    def bury(self) -> None:
        """Let go of what it left. Waits for its end, which must have been brought about."""
        ...


class ProcessBody:
    def __init__(self, hello: Hello) -> None:
        self.sock, theirs = socket.socketpair()
        self.scratch = hello.scratch
        self._ended = False
        try:
            with theirs, tempfile.NamedTemporaryFile(prefix="daybreak-cell-") as file:
                file.truncate(size_for(hello.slots))
                self.cell = Cell(hello.slots, mmap.mmap(file.fileno(), size_for(hello.slots)))
                self._process = platform.start_child(_CODE, theirs, file)
        except BaseException:
            self.sock.close()
            raise
        self.pid: int | None = self._process.pid
        self.sock.sendall(frame(hello))  # a hello fits into any socket's buffer

    def end(self) -> bool:
        if not self._ended:  # once: later its number may be another's
            self._ended = True
            platform.end_family(self._process)
        return True

    def how_it_ended(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"its process ended with exit code {code}"
        try:
            return f"its process was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"its process was ended by signal {-code}"

    def memory(self) -> int | None:
        return platform.memory_of(self._process.pid)

    def activity(self) -> platform.Activity | None:
        return platform.activity_of(self._process.pid)

    def bury(self) -> None:
        self._process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
        file_for(self.scratch).unlink(missing_ok=True)


_CODE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); "
    "from daybreak.worker.__main__ import main; main()"
)


class ThreadBody:
    """The same child in a thread: it can be left, not ended."""

    def __init__(self, hello: Hello, program: Program) -> None:
        self.sock, self._theirs = socket.socketpair()
        self.cell = Cell(hello.slots)
        self.pid: int | None = None
        self.scratch = hello.scratch
        self._thread = threading.Thread(target=self._serve, args=(hello, program), name="daybreak-child", daemon=True)
        self._thread.start()

    def _serve(self, hello: Hello, program: Program) -> None:
        from daybreak.worker.__main__ import serve  # noqa: PLC0415 - the child's side of this module

        with contextlib.suppress(OSError):
            serve(self._theirs, self.cell, program, hello, lambda: None)

    def end(self) -> bool:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(0.05)
        return not self._thread.is_alive()

    def how_it_ended(self) -> str | None:
        return None if self._thread.is_alive() else "its thread ended"

    def memory(self) -> int | None:
        return None

    def activity(self) -> platform.Activity | None:
        return platform.activity_of_thread(self._thread)

    def bury(self) -> None:
        self._thread.join(1)
