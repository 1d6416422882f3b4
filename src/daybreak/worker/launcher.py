"""How a child is started and ended: a process of its own, or, where user code cannot be imported again, a thread."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Protocol, cast

from daybreak.system import platform
from daybreak.tasks.registry import Program
from daybreak.worker.child.stacks import asked_by_signal
from daybreak.worker.slot_table import SlotTable, size_for
from daybreak.worker.wire import Hello, frame


class Body(Protocol):
    """A child's bodily side. `sock` is our end of the talk; `listener` is the thread in it that is ours, once known."""

    sock: socket.socket
    cell: SlotTable
    listener: int | None

    def end(self) -> bool:
        """End it now; False if that cannot be done and it goes on until its job ends."""
        ...

    def how_it_ended(self) -> str | None:
        """None while it lives."""
        ...

    def memory(self) -> int | None: ...

    def deeds(self, glance: platform.ProcessScan, known: platform.Doers, *, thorough: bool) -> platform.Doers:
        """What it has done so far for its job, with all that it started: whose deeds nobody can tell are its own."""
        ...

    def stack(self) -> str:
        """Where it stands, asked for in a way that needs no help of its interpreter; empty where there is none."""
        ...

    def bury(self) -> None:
        """Let go of what it left. Waits for its end, which must have been brought about."""
        ...


def _memory_file() -> IO[bytes]:
    """To share memory by; without a name where a child can inherit it, so that a worker that is killed leaves none."""
    if sys.platform == "win32":
        return cast("IO[bytes]", tempfile.NamedTemporaryFile(prefix="daybreak-cell-"))
    return tempfile.TemporaryFile(prefix="daybreak-cell-")


class ProcessBody:
    def __init__(self, hello: Hello) -> None:
        self.sock, theirs = socket.socketpair()
        self.listener: int | None = None
        self._scratch = hello.scratch
        self._ended = False
        self._stack: IO[bytes] | None = None
        if platform.STACK_SIGNAL is not None:
            self._stack = tempfile.TemporaryFile(prefix="daybreak-")  # noqa: SIM115 - closed when it is buried
        try:
            with theirs, _memory_file() as file:
                file.truncate(size_for(hello.slots))
                self.cell = SlotTable(hello.slots, mmap.mmap(file.fileno(), size_for(hello.slots)))
                self._process = platform.start_child(_CODE, theirs, file, self._stack)
        except BaseException:
            self.sock.close()
            if self._stack is not None:
                self._stack.close()
            raise
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

    def deeds(self, glance: platform.ProcessScan, known: platform.Doers, *, thorough: bool) -> platform.Doers:
        pid = self._process.pid
        found = glance.family(pid, known, thorough=thorough)
        # The thread that listens to us is not the job: it takes CPU time while it waits for a held interpreter.
        if self.listener is not None:
            own = platform.deeds_of_thread(pid, self.listener)
            ours = sum(deeds.cpu for deeds in own.values())
            for doer, deeds in found.items():
                if doer[0] == pid:
                    waited = {thread: much for thread, much in deeds.waited.items() if thread != self.listener}
                    found[doer] = deeds._replace(cpu=deeds.cpu - ours, waited=waited)
        return found

    def stack(self) -> str:
        if self._stack is None or self._ended or self._process.poll() is not None:
            return ""
        return asked_by_signal(self._process.pid, self._stack)

    def bury(self) -> None:
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._stack is not None:
            self._stack.close()


_CODE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); "
    "from daybreak.worker.__main__ import main; main()"
)


class ThreadBody:
    """The same child in a thread: it can be left, not ended."""

    def __init__(self, hello: Hello, program: Program) -> None:
        self.sock, self._theirs = socket.socketpair()
        self.cell = SlotTable(hello.slots)
        self.listener: int | None = None
        self._supervisor = threading.get_native_id()
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

    def deeds(self, glance: platform.ProcessScan, known: platform.Doers, *, thorough: bool) -> platform.Doers:
        """Of its thread, of threads that are not Daybreak's, and of all that this process started: it cannot be told
        for which job they are, so they speak for each."""
        pid, job, threads = os.getpid(), self._thread.native_id, platform.threads_of_this_process()
        started = {doer: deeds for doer, deeds in known.items() if doer[0] not in threads}
        family = glance.family(pid, started, thorough=thorough)
        found = {doer: deeds for doer, deeds in family.items() if doer[0] != pid}
        ours = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("daybreak")}
        ours.add(self._supervisor)
        for thread in threads:
            if thread == job or thread not in ours:
                found |= platform.deeds_of_thread(pid, thread)
        return found

    def stack(self) -> str:
        return ""

    def bury(self) -> None:
        self._thread.join(1)
