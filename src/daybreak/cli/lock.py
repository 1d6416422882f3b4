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

from daybreak.api.locks import SHORTEST, Lock
from daybreak.api.store_sessions import Sessions
from daybreak.cli import completions
from daybreak.cli.options import NAME, Duration, PriorityType
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.text import lasted, safe
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import BadInput, LeaseLost, LockTimeout, StoreUnavailable
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
@click.option("--also", type=NAME, metavar="NAME", multiple=True, help="Another lock, all or none; may be repeated.")
@click.option("--wait", type=Duration(), default="5m", show_default=True, help="Give up after so long; exit code 75.")
@click.option("--priority", type=PriorityType(), default="normal", help="Who is more urgent stands before others.")
@click.option("--lease", type=Duration(), default="10s", show_default=True, help="How soon a dead holder loses it.")
@click.option(
    "--if-lost",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help="If the lock is lost while the command runs: end it and answer 76, or only say so.",
)
@click.option(
    "--kill-after",
    type=Duration(),
    default="10s",
    show_default=True,
    help="When the lock is lost: SIGINT at once, SIGTERM after half of this time, SIGKILL when it has passed.",
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
    """Run a command while holding a lock. The command finds the fence in DAYBREAK_FENCE; signals are passed on to it,
    and its exit code is ours. 75: the lock was not free in time. 76: the lock was lost, and the command was ended with
    all that it had started.

    Examples:
      daybreak lock prod/network -- terraform apply
      daybreak lock prod --wait 30m --priority high -- ./deploy.sh

    """
    if lease < SHORTEST:
        raise BadInput(f"--lease: a lock is kept for at least {lasted(SHORTEST)} at a time; write 10s, say")
    settings = session().settings
    if session().absent is not None:
        note(f"making the store {safe(settings.store)}")
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
        note(str(error).replace("wait=...", "--wait"))
        return WAITED_TOO_LONG
    finally:
        sessions.close()


store_options(command)


def heeded() -> list[int]:
    """What ignores a signal, as under nohup, goes on to."""
    return [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """While one waits, SIGTERM and SIGHUP end the wait as Ctrl-C does: who is gone must not stand in line."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise SystemExit(128 + number)

    heard = [number for number in heeded() if number in (signal.SIGTERM, getattr(signal, "SIGHUP", None))]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Running:
    """The command, and what becomes of it when the lock is lost."""

    def __init__(self, if_lost: Literal["stop", "warn"], kill_after: timedelta) -> None:
        self._if_lost = if_lost
        self._kill_after = kill_after.total_seconds()
        self._starting = threading.Lock()
        self._ending: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_lost = False
        self._is_group = False
        self._early: list[int] = []  # signals that came before there was a command to pass them on to

    def lost(self) -> None:
        """Called by the thread that renews the lock."""
        self._is_lost = True
        if self._if_lost == "warn":
            note("the lock was lost: someone else may hold it; the command goes on")
            return
        note("the lock was lost: the command is interrupted")
        self._end_if_running()

    def _end_if_running(self) -> None:
        with self._starting:
            if self._child is not None and self._ending is None:
                self._ending = threading.Thread(target=self._end, name="daybreak-lock-lost", daemon=True)
                self._ending.start()

    def _end(self) -> None:
        """A command may handle or ignore a signal, or have left processes behind that do: each gets the next one."""
        for number, wait in ((signal.SIGINT, self._kill_after / 2), (signal.SIGTERM, self._kill_after / 2)):
            if not wait:
                break
            with contextlib.suppress(OSError, ValueError):  # it has ended, or Windows has no such signal
                self._send(number)
                self._send(getattr(signal, "SIGCONT", number))  # one that was stopped would hear it only later
            until = time.monotonic() + wait
            while time.monotonic() < until:
                if not self._is_alive():
                    return
                time.sleep(0.02)
            note(f"the command goes on after {signal.Signals(number).name}")
        self._kill()

    def _is_alive(self) -> bool:
        """Whether anything is left of the command: itself, or of its group."""
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
        """To the command and what it started: a script goes on when only its present step is interrupted."""
        assert self._child is not None
        if self._is_group:
            platform.signal_group(self._child.pid, number)
        else:
            self._child.send_signal(number)

    def run(self, argv: tuple[str, ...], held: Lock) -> int:
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
            note(f"{safe(argv[0])}: no such command")
            code = NO_SUCH_COMMAND
        except OSError as error:
            note(f"{safe(argv[0])} cannot be run: {error.strerror}")
            code = NOT_EXECUTABLE
        self._give_back(held)
        if self._is_lost and self._if_lost == "stop":
            return LOST
        return 128 - code if code < 0 else code

    def _start(self, argv: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # In a terminal it shares ours, or it could not read from it; Ctrl-C reaches all of it there anyway.
        self._is_group = platform.HAS_PROCESS_GROUPS and not platform.is_in_foreground()
        group = 0 if self._is_group else None
        with platform.default_signals_for_children():
            return subprocess.Popen(argv, env=environment, process_group=group)  # noqa: S603 - that is what was asked for

    def _give_back(self, held: Lock) -> None:
        try:
            held.release()
        except LeaseLost:
            if not self._is_lost:
                self._is_lost = True
                note("the lock had been lost before the command ended")
        except StoreUnavailable as error:
            note(f"the lock could not be given back: {error}; it is free when its lease has run out")

    @contextlib.contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Signals are for the command; we end when it has ended."""
        before = {number: signal.signal(number, self._pass_on) for number in heeded()}
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
