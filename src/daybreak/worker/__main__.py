"""The entry point of a child process: imports the user's code, runs its setup functions, and runs jobs."""

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
from daybreak.telemetry import sdk
from daybreak.worker.child.async_loop import AsyncChild
from daybreak.worker.child.exact_timers import exact_loop
from daybreak.worker.child.job_files import JobFiles
from daybreak.worker.child.output_streams import replace_streams
from daybreak.worker.child.runner import Runner
from daybreak.worker.child.setup import enter_setups
from daybreak.worker.child.sync_loop import SyncChild
from daybreak.worker.slot_table import SlotTable, size_for
from daybreak.worker.target import load, load_modules, sentence
from daybreak.worker.wire import Frames, Hello, Ready, SetupFailed, frame, to_child

_log = logging.getLogger("daybreak.worker")


def main() -> None:
    """Run a child process until its supervisor tells it to exit, or is gone."""
    platform.die_with_parent()
    # The supervisor decides when a child stops, even if a service manager signals every process of the service. Use an
    # empty handler instead of SIG_IGN: programs that a task starts would inherit an ignored signal.
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
        platform.write_stack_on_signal(stack)
    slot_table = SlotTable(hello.slots, mmap.mmap(memory, size_for(hello.slots)))
    sys.path[:] = hello.path
    replace_streams()
    try:
        program = _load_program(hello)
    except BaseException as error:  # noqa: BLE001 - the supervisor reports it
        _send_setup_error(sock, error)
        return
    serve(sock, slot_table, program, hello, lambda: os._exit(1), own_process=True)
    sys.stdout.flush()
    sys.stderr.flush()


def read_hello(sock: socket.socket) -> Hello | None:
    """The first message of the supervisor; None if it is gone."""
    frames = Frames(to_child)
    # The supervisor sends nothing after Hello until the child has answered, so no other message is read and lost here.
    while data := sock.recv(1 << 16):
        for message in frames.feed(data):
            assert isinstance(message, Hello)
            return message
    return None


def _load_program(hello: Hello) -> Program:
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
    slot_table: SlotTable,
    program: Program,
    hello: Hello,
    on_orphaned: Callable[[], None],
    *,
    own_process: bool = False,
) -> None:
    """Run the setup functions, then jobs until the supervisor tells this child to exit.

    With `own_process` the working directory is restored after jobs, their log lines go to the supervisor, and the
    OpenTelemetry SDK is set up as the environment says."""
    shared = SimpleNamespace(**values.decode(hello.shared))
    runner = Runner(program, shared, hello.scratch, own_process=own_process, files=JobFiles(hello.files))
    log_level = hello.log_level if own_process else None
    try:
        if hello.is_async:
            child = AsyncChild(sock, slot_table, runner, hello.slots, log_level)
            with asyncio.Runner(loop_factory=exact_loop) as loop:
                try:
                    loop.run(_serve_async(child, sock, program, shared, on_orphaned, own_process=own_process))
                except BaseException:
                    child.on_loop_stopped()  # before asyncio cancels the jobs
                    raise
        else:
            child_ = SyncChild(sock, slot_table, runner, on_orphaned, log_level)
            _serve_sync(child_, sock, program, shared, own_process=own_process)
    except BaseException as error:
        _log.error("a child process failed: %s", sentence(error))
        raise
    finally:
        sock.close()


def _serve_sync(
    child: SyncChild, sock: socket.socket, program: Program, shared: SimpleNamespace, *, own_process: bool
) -> None:
    with contextlib.ExitStack() as on_exit:
        loop = asyncio.Runner()
        on_exit.callback(loop.close)
        try:
            setups = loop.run(enter_setups(program.setups, shared))
        except BaseException as error:  # noqa: BLE001
            _send_setup_error(sock, error)
            return
        on_exit.callback(lambda: loop.run(setups.aclose()))
        if own_process:
            sdk.set_up_traces()
        sock.sendall(frame(Ready(sorted(program.known(is_async=False)))))
        child.serve()


async def _serve_async(
    child: AsyncChild,
    sock: socket.socket,
    program: Program,
    shared: SimpleNamespace,
    on_orphaned: Callable[[], None],
    *,
    own_process: bool,
) -> None:
    try:
        setups = await enter_setups(program.setups, shared)
    except BaseException as error:  # noqa: BLE001
        _send_setup_error(sock, error)
        return
    if own_process:
        sdk.set_up_traces()
    sock.sendall(frame(Ready(sorted(program.known(is_async=True)))))
    sock.setblocking(False)
    if not await child.serve():
        on_orphaned()
    await setups.aclose()


def _send_setup_error(sock: socket.socket, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):
        sock.sendall(frame(SetupFailed(f"{sentence(error)}\n{text}")))


if __name__ == "__main__":
    main()
