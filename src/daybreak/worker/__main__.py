"""Where a child process begins: finds the user's code, sets it up, and serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace

from daybreak import values
from daybreak.system import platform
from daybreak.tasks.registry import Program
from daybreak.worker.child.exact_timers import exact_loop
from daybreak.worker.child.loops import AsyncChild, SyncChild
from daybreak.worker.child.runner import Runner
from daybreak.worker.child.setup import entered
from daybreak.worker.slot_table import SlotTable, size_for
from daybreak.worker.target import load, load_modules, sentence
from daybreak.worker.wire import Broken, Frames, Hello, Ready, frame, to_child

_log = logging.getLogger("daybreak.worker")


def main() -> None:
    platform.die_with_parent()
    # Stopping is the supervisor's business, also where a service manager signals every process of the service. Heard
    # and not ignored, because what is ignored stays so in programs that a task starts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        signal.signal(signal.SIGHUP, lambda *_: None)
    sock, memory, stack = platform.inherited(["", *sys.argv[1:]])
    sys.argv[1:] = []
    hello = read_hello(sock)
    if hello is None:
        return
    if stack is not None:
        platform.tell_stack_on_signal(stack)
    cell = SlotTable(hello.slots, mmap.mmap(memory, size_for(hello.slots)))
    sys.path[:] = hello.path
    with contextlib.suppress(AttributeError):  # replaced by something that is no text stream
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        program = _find(hello)
    except BaseException as error:  # noqa: BLE001 - told by the supervisor
        _tell_broken(sock, error)
        return
    serve(sock, cell, program, hello, lambda: os._exit(1), own_process=True)
    sys.stdout.flush()
    sys.stderr.flush()


def read_hello(sock: socket.socket) -> Hello | None:
    frames = Frames(to_child)
    # Nothing follows a hello until the child has answered it, so no byte of another message is lost here.
    while data := sock.recv(1 << 16):
        for message in frames.feed(data):
            assert isinstance(message, Hello)
            return message
    return None


def _find(hello: Hello) -> Program:
    app = load(hello.target)
    load_modules(hello.imports)
    if hello.url and hasattr(app, "use"):
        app.use(hello.url)
    if hello.commands:
        from daybreak.worker.child.commands import add_commands  # noqa: PLC0415

        add_commands(app.program)
    return app.program  # type: ignore[no-any-return]


def serve(
    sock: socket.socket,
    cell: SlotTable,
    program: Program,
    hello: Hello,
    on_orphaned: Callable[[], None],
    *,
    own_process: bool = False,
) -> None:
    """Set up and run works until told to leave. In a process of its own the working directory is the jobs' alone, and
    log lines are forwarded."""
    shared = SimpleNamespace(**values.decode(hello.shared))
    runner = Runner(program, shared, hello.scratch, own_process=own_process)
    log_level = hello.log_level if own_process else None
    try:
        if hello.is_async:
            child = AsyncChild(sock, cell, runner, hello.slots, log_level)
            with asyncio.Runner(loop_factory=exact_loop) as loop:
                try:
                    loop.run(_serve_async(child, sock, program, shared, on_orphaned))
                except BaseException:
                    child.torn()  # before all that runs on the loop is cancelled
                    raise
        else:
            _serve_sync(SyncChild(sock, cell, runner, on_orphaned, log_level), sock, program, shared)
    except BaseException as error:
        _log.error("a child ended: %s", sentence(error))
        raise
    finally:
        sock.close()


def _serve_sync(child: SyncChild, sock: socket.socket, program: Program, shared: SimpleNamespace) -> None:
    with contextlib.ExitStack() as ending:
        loop = asyncio.Runner()
        ending.callback(loop.close)
        try:
            around = loop.run(entered(program.setups, shared))
        except BaseException as error:  # noqa: BLE001
            _tell_broken(sock, error)
            return
        ending.callback(lambda: loop.run(around.aclose()))
        sock.sendall(frame(Ready(sorted(program.known(is_async=False)))))
        child.serve()


async def _serve_async(
    child: AsyncChild,
    sock: socket.socket,
    program: Program,
    shared: SimpleNamespace,
    on_orphaned: Callable[[], None],
) -> None:
    try:
        around = await entered(program.setups, shared)
    except BaseException as error:  # noqa: BLE001
        _tell_broken(sock, error)
        return
    sock.sendall(frame(Ready(sorted(program.known(is_async=True)))))
    sock.setblocking(False)
    if not await child.serve():
        on_orphaned()
    await around.aclose()


def _tell_broken(sock: socket.socket, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):
        sock.sendall(frame(Broken(f"{sentence(error)}\n{text}")))


if __name__ == "__main__":
    main()
