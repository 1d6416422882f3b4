"""Starts and ends children: each is a process or, where the user's code cannot be imported again, a thread."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

from daybreak.system import platform
from daybreak.tasks.registry import Program
from daybreak.worker.child.stacks import stack_by_signal
from daybreak.worker.slot_table import SlotTable, size_for
from daybreak.worker.wire import Hello, frame, to_supervisor
from daybreak.worker.wire_reader import WireReader


class ChildUsage(NamedTuple):
    """The process of a child, its resident memory, and the processes that it started: pid, command line and memory.

    `shared`: the process runs more than this child."""

    pid: int
    memory: int | None
    shared: bool = False
    processes: list[tuple[int, str, int | None]] = []  # noqa: RUF012 - never changed


class Connection(Protocol):
    """The supervisor's end of the connection to a child."""

    def write(self, data: bytes) -> None:
        """Send frames. Does not block."""
        ...

    def close(self) -> None: ...


class ChildHandle(Protocol):
    """The process or thread of a child.

    `listener` is the native id of the thread in which the child reads messages, once it is known."""

    slot_table: SlotTable
    listener: int | None

    async def connect(self, on_message: Callable[[Any], None], on_disconnect: Callable[[], None]) -> Connection:
        """Read the messages of the child on the running loop. `on_disconnect` is called once, after the last one."""
        ...

    @property
    def pid(self) -> int | None:
        """The process of the child; None if it is a thread."""
        ...

    def end(self) -> bool:
        """End the child now. False if that is not possible: then it runs until its job ends."""
        ...

    def exit_description(self) -> str | None:
        """How the child ended, in words; None while it is alive."""
        ...

    def memory(self) -> int | None:
        """Bytes of memory that the child uses; None where that is unknown."""
        ...

    def usage(self, limit: int) -> ChildUsage:
        """What the child uses now, with at most `limit` of the processes that it started. May read many files."""
        ...

    def is_stopped(self) -> bool:
        """Whether someone has stopped the child with SIGSTOP."""
        ...

    def activity(
        self, scan: platform.ProcessScan, known: platform.Activities, *, thorough: bool
    ) -> platform.Activities:
        """What the child and every process that it started have done so far for its job. Activity that cannot be
        attributed counts as that of the job."""
        ...

    def stack(self) -> str:
        """The stack of the child, obtained without the help of its interpreter; empty where that is not possible."""
        ...

    def clean_up(self) -> None:
        """Wait for the end of the child and remove what it left. The child must be ending already."""
        ...


async def _connect(
    sock: socket.socket, on_message: Callable[[Any], None], on_disconnect: Callable[[], None]
) -> Connection:
    sock.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: WireReader(to_supervisor, on_message, on_disconnect), sock=sock
    )
    return transport


def _memory_file() -> IO[bytes]:
    """A file for shared memory. Where a child can inherit it, it has no name, so a killed worker leaves no file."""
    if sys.platform == "win32":
        return cast("IO[bytes]", tempfile.NamedTemporaryFile(prefix="daybreak-slots-"))
    return tempfile.TemporaryFile(prefix="daybreak-slots-")


class ChildProcess:
    """A child that is a process."""

    def __init__(self, hello: Hello) -> None:
        self.sock, theirs = socket.socketpair()
        self.listener: int | None = None
        self._scratch = hello.scratch
        self._ended = False
        self._stack: IO[bytes] | None = None
        if platform.STACK_SIGNAL is not None:
            self._stack = tempfile.TemporaryFile(prefix="daybreak-")  # noqa: SIM115 - closed by clean_up
        try:
            with theirs, _memory_file() as file:
                file.truncate(size_for(hello.slots))
                self.slot_table = SlotTable(hello.slots, mmap.mmap(file.fileno(), size_for(hello.slots)))
                self._process = platform.start_child(_CODE, theirs, file, self._stack)
        except BaseException:
            self.sock.close()
            if self._stack is not None:
                self._stack.close()
            raise
        self.sock.sendall(frame(hello))  # does not block: Hello fits into the socket's buffer

    async def connect(self, on_message: Callable[[Any], None], on_disconnect: Callable[[], None]) -> Connection:
        return await _connect(self.sock, on_message, on_disconnect)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def end(self) -> bool:
        if not self._ended:  # once: later the pid may belong to another process
            self._ended = True
            platform.end_family(self._process)
        return True

    def exit_description(self) -> str | None:
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

    def usage(self, limit: int) -> ChildUsage:
        pid = self._process.pid
        started = platform.processes_below(pid, limit)
        processes = [(one, command, platform.memory_of(one)) for one, command in started]
        return ChildUsage(pid, self.memory(), processes=processes)

    def is_stopped(self) -> bool:
        return platform.is_stopped(self._process.pid)

    def activity(
        self, scan: platform.ProcessScan, known: platform.Activities, *, thorough: bool
    ) -> platform.Activities:
        pid = self._process.pid
        found = scan.family(pid, known, thorough=thorough)
        # Leave out the listener thread: it uses CPU time while it waits for the interpreter lock, and is not the job.
        if self.listener is not None:
            listener = platform.activity_of_thread(pid, self.listener)
            listener_cpu = sum(activity.cpu for activity in listener.values())
            for process, activity in found.items():
                if process[0] == pid:
                    waited = {thread: wait for thread, wait in activity.waited.items() if thread != self.listener}
                    found[process] = activity._replace(cpu=activity.cpu - listener_cpu, waited=waited)
        return found

    def stack(self) -> str:
        if self._stack is None or self._ended or self._process.poll() is not None:
            return ""
        return stack_by_signal(self._process.pid, self._stack)

    def clean_up(self) -> None:
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._stack is not None:
            self._stack.close()


_CODE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); "
    "from daybreak.worker.__main__ import main; main()"
)


class ChildThread:
    """A child that is a thread of this process. A thread cannot be ended from outside: it ends when its job returns."""

    def __init__(self, hello: Hello, program: Program) -> None:
        self.sock, self._theirs = socket.socketpair()
        self.slot_table = SlotTable(hello.slots)
        self.listener: int | None = None
        self._supervisor = threading.get_native_id()
        self._thread = threading.Thread(target=self._serve, args=(hello, program), name="daybreak-child", daemon=True)
        self._thread.start()

    def _serve(self, hello: Hello, program: Program) -> None:
        from daybreak.worker.__main__ import serve  # noqa: PLC0415 - imports this module

        with contextlib.suppress(OSError):
            serve(self._theirs, self.slot_table, program, hello, lambda: None)

    async def connect(self, on_message: Callable[[Any], None], on_disconnect: Callable[[], None]) -> Connection:
        return await _connect(self.sock, on_message, on_disconnect)

    @property
    def pid(self) -> int | None:
        return None

    def end(self) -> bool:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(0.05)
        return not self._thread.is_alive()

    def exit_description(self) -> str | None:
        if self._thread.is_alive():
            return None
        return "its thread ended"

    def memory(self) -> int | None:
        return None

    def usage(self, limit: int) -> ChildUsage:  # noqa: ARG002 - it is unknown which child started which process
        return ChildUsage(os.getpid(), platform.memory_of(os.getpid()), shared=True)

    def is_stopped(self) -> bool:
        return False

    def activity(
        self, scan: platform.ProcessScan, known: platform.Activities, *, thorough: bool
    ) -> platform.Activities:
        """The activity of this thread, of threads that are not Daybreak's, and of every process that this process
        started: it is unknown to which job those belong, so they count for each."""
        pid, job, threads = os.getpid(), self._thread.native_id, platform.threads_of_this_process()
        started = {process: activity for process, activity in known.items() if process[0] not in threads}
        family = scan.family(pid, started, thorough=thorough)
        found = {process: activity for process, activity in family.items() if process[0] != pid}
        own = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("daybreak")}
        own.add(self._supervisor)
        for thread in threads:
            if thread == job or thread not in own:
                found |= platform.activity_of_thread(pid, thread)
        return found

    def stack(self) -> str:
        return ""

    def clean_up(self) -> None:
        self._thread.join(1)


Launch = Callable[[Hello, Program, str | None], ChildHandle]


def launch(hello: Hello, program: Program, isolation: str | None) -> ChildHandle:
    """Start a child: a thread with `isolation` "thread", a process otherwise."""
    if isolation == "thread":
        return ChildThread(hello, program)
    return ChildProcess(hello)
