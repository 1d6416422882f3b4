"""`daybreak lock NAME -- COMMAND`: run a command while holding a lock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType
from typing import Final, Literal

import click

from daybreak.api.locks import SHORTEST_LEASE, Lock
from daybreak.api.store_sessions import Sessions
from daybreak.cli import completions
from daybreak.cli.errors import fail
from daybreak.cli.options import NAME, Duration, PriorityType
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import BadInput, LeaseLost, LockTimeout, StoreUnavailable
from daybreak.core.text import lasted, safe
from daybreak.stores import store_for
from daybreak.system import platform
from daybreak.system.ports import RealWorld

WAITED_TOO_LONG: Final = 75
LOST: Final = 76
NOT_EXECUTABLE: Final = 126
NO_SUCH_COMMAND: Final = 127
PASSED_ON: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)


@click.command(
    "lock", short_help="Run a command while holding a lock.", context_settings={"allow_interspersed_args": True}
)
@click.argument("name", type=NAME, shell_complete=completions.locks)
@click.argument("argv", metavar="-- COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--also", type=NAME, metavar="NAME", multiple=True, help="Take this lock too; all of them or none. May be repeated."
)
@click.option(
    "--wait", type=Duration(), default="5m", show_default=True, help="Give up after this time, with exit code 75."
)
@click.option(
    "--priority", type=PriorityType(), default="normal", help="Waiters with a more urgent priority get the lock first."
)
@click.option(
    "--lease", type=Duration(), default="10s", show_default=True, help="How long a crashed holder keeps the lock."
)
@click.option(
    "--if-lost",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help="If the lock is lost while the command runs: stop it and exit with 76, or only print a warning.",
)
@click.option(
    "--kill-after",
    type=Duration(),
    default="10s",
    show_default=True,
    help="If the lock is lost: send SIGINT at once, SIGTERM after half of this time, SIGKILL after all of it.",
)
def command(
    name: str,
    argv: tuple[str, ...],
    also: tuple[str, ...],
    wait: timedelta,
    priority: int,
    lease: timedelta,
    if_lost: Literal["stop", "warn"],
    kill_after: timedelta,
) -> int:
    """Run a command while holding a lock. The command finds the fence in DAYBREAK_FENCE and receives all signals. The
    exit code is that of the command; 75 if the lock was not free in time; 76 if the lock was lost and the command, with
    all processes it had started, was stopped.

    Examples:
      daybreak lock prod/network -- terraform apply
      daybreak lock prod --wait 30m --priority high -- ./deploy.sh

    """
    if lease < SHORTEST_LEASE:
        raise BadInput(f"--lease: the shortest lease is {lasted(SHORTEST_LEASE)}; write for example 10s")
    settings = session().settings
    if session().absent is not None:
        note(f"creating the store {safe(settings.store)}")
    world = RealWorld()
    connecting = ConnectTimeout(world)
    sessions = Sessions(lambda: store_for(settings.url, connecting), world, platform.whoami(), connecting)
    running = _Running(if_lost, kill_after)
    held = Lock(
        lambda: sessions, (name, *also), priority=priority, wait=wait, lease=lease, on_lost=lambda _: running.lost()
    )
    try:
        with leaving_on_signals():
            held.acquire()
        return running.run(argv, held)
    except LockTimeout as error:
        fail(str(error).replace("wait=...", "--wait"))
        return WAITED_TOO_LONG
    finally:
        sessions.close()


store_options(command)


def handled_signals() -> list[int]:
    """The signals to handle: all that are passed on, except those that are ignored, as SIGHUP is under nohup."""
    return [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """End the wait for a lock on SIGTERM and SIGHUP as on Ctrl-C, so that a process that is gone does not stay in the
    queue."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise SystemExit(128 + number)

    numbers = [number for number in handled_signals() if number in (signal.SIGTERM, getattr(signal, "SIGHUP", None))]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Running:
    """The command that runs under the lock. If the lock is lost, it is stopped, or only a warning is printed."""

    def __init__(self, if_lost: Literal["stop", "warn"], kill_after: timedelta) -> None:
        self._if_lost = if_lost
        self._kill_after = kill_after.total_seconds()
        self._starting = threading.Lock()
        self._ending: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_lost = False
        self._is_group = False
        self._early: list[int] = []  # signals that arrived before the command was started

    def lost(self) -> None:
        """The lock was lost. Called by the thread that extends the lease."""
        self._is_lost = True
        if self._if_lost == "warn":
            note("the lock was lost, and someone else may hold it now. The command continues (--if-lost warn).")
            return
        note("the lock was lost. Stopping the command.")
        self._end_if_running()

    def _end_if_running(self) -> None:
        with self._starting:
            if self._child is not None and self._ending is None:
                self._ending = threading.Thread(target=self._end, name="daybreak-lock-lost", daemon=True)
                self._ending.start()

    def _end(self) -> None:
        """Send SIGINT, SIGTERM and SIGKILL in turn, until the command and all processes of its group have ended: any of
        them may ignore a signal."""
        for number, wait in ((signal.SIGINT, self._kill_after / 2), (signal.SIGTERM, self._kill_after / 2)):
            if not wait:
                break
            with contextlib.suppress(OSError, ValueError):  # the command has ended, or Windows has no such signal
                self._send(number)
                self._send(
                    getattr(signal, "SIGCONT", number)
                )  # a stopped process handles the signal only when it continues
            until = time.monotonic() + wait
            while time.monotonic() < until:
                if not self._is_alive():
                    return
                time.sleep(0.02)
            note(f"the command still runs after {signal.Signals(number).name}")
        self._kill()

    def _is_alive(self) -> bool:
        """Whether the command, or any process of its group, still runs."""
        assert self._child is not None
        if self._child.poll() is None:
            return True
        if not self._is_group:
            return False
        try:
            platform.signal_group(self._child.pid, 0)
        except OSError:
            return False
        return True

    def _kill(self) -> None:
        assert self._child is not None
        if self._is_group:
            with contextlib.suppress(OSError):
                platform.signal_group(self._child.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        else:
            platform.end_family(self._child)

    def _send(self, number: int) -> None:
        """Send a signal to the command and the processes it started. A script would continue if only its current step
        were interrupted."""
        assert self._child is not None
        if self._is_group:
            platform.signal_group(self._child.pid, number)
        else:
            self._child.send_signal(number)

    def run(self, argv: tuple[str, ...], held: Lock) -> int:
        """Run the command, release the lock, and return the exit code."""
        environment = {**os.environ, "DAYBREAK_FENCE": str(held.fence), "DAYBREAK_LOCK": ",".join(held.names)}
        try:
            with self._passing_on():
                with self._starting:
                    self._child = self._start(argv, environment)
                for number in self._early:
                    with contextlib.suppress(ProcessLookupError):
                        self._send(number)
                if self._is_lost and self._if_lost == "stop":
                    self._end_if_running()
                code = self._child.wait()
                if self._ending is not None:
                    self._ending.join()
        except FileNotFoundError:
            fail(f"{safe(argv[0])}: command not found")
            code = NO_SUCH_COMMAND
        except OSError as error:
            fail(f"cannot run {safe(argv[0])}: {error.strerror}")
            code = NOT_EXECUTABLE
        self._release(held)
        if self._is_lost and self._if_lost == "stop":
            return LOST
        return 128 - code if code < 0 else code

    def _start(self, argv: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # In the foreground of a terminal the command shares our process group: in another group it could not read from
        # the terminal. Ctrl-C reaches the whole group there anyway.
        self._is_group = platform.HAS_PROCESS_GROUPS and not platform.is_in_foreground()
        group = 0 if self._is_group else None
        with platform.default_signals_for_children():
            return subprocess.Popen(argv, env=environment, process_group=group)  # noqa: S603 - the user asked for this command

    def _release(self, held: Lock) -> None:
        try:
            held.release()
        except LeaseLost:
            if not self._is_lost:
                self._is_lost = True
                note("the lock was lost before the command ended")
        except StoreUnavailable as error:
            note(f"could not release the lock: {error}; it becomes free when its lease ends")

    @contextlib.contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Pass signals on to the command. This process ends when the command has ended."""
        before = {number: signal.signal(number, self._pass_on) for number in handled_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._child is None:
            self._early.append(number)
        elif not (number == signal.SIGINT and platform.is_in_foreground()):
            with contextlib.suppress(ProcessLookupError):
                self._send(number)
