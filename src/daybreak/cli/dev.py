"""`daybreak dev`: a worker that restarts when the code changes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from daybreak.cli.options import NAME, Whole
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.cli.text import safe
from daybreak.cli.worker import words_of, worker_options
from daybreak.system import platform

LOOK_EVERY: Final = 0.5
MOST_FILES: Final = 5000
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages"})


@click.command("dev", short_help="Run a worker that restarts when the code changes.")
@click.argument("target", type=NAME, required=False)
@click.option("--serve", "with_server", is_flag=True, help="Serve the REST API too, on this machine.")
@click.option("--port", type=Whole(0), help="With --serve: the port [default: 8765].")
@worker_options
def command(target: str | None, with_server: bool, port: int | None, how: dict[str, Any]) -> int:
    """Run a worker that restarts when a Python file or the settings file in the project folder changes. Jobs that run
    at that moment get the worker's grace time, and are handed back uncharged if they need longer.

    Examples:
      daybreak dev tasks.py
      daybreak dev tasks.py --serve

    """
    here = session()
    if target is not None:
        here.app = target
    if here.target is None:
        here.loaded  # noqa: B018 - says how an app is named
    program = [sys.executable, "-m", "daybreak.cli"]
    words = [*program, "worker", *words_of(how), *_said(here)]
    if port is not None and not with_server:
        raise click.UsageError("--port is for the server: add --serve", click.get_current_context())
    on_port = [] if port is None else ["--port", str(port)]
    server = [*program, "serve", *on_port, *_said(here)] if with_server else None
    return _serve(words, server, here.project.folder)


store_options(command)


def _said(here: Session) -> list[str]:
    said = ["--url", here.url] if here.url else []
    return [*said, "--app", str(here.target)] if here.app else said


def _serve(words: list[str], server: list[str] | None, folder: Path) -> int:
    """A worker of its own process, replaced at every change; a broken program is tried again once it is mended. The
    server, if there is to be one, is replaced with it."""
    _heed_signals()
    before = _stamps(folder)
    while True:
        with contextlib.ExitStack() as stack:
            worker = stack.enter_context(_running(words))
            if server is not None:
                stack.enter_context(_running(server))
            while worker.poll() is None and not (seen := _changed(before, _stamps(folder))):
                time.sleep(LOOK_EVERY)
            if worker.poll() is not None:
                if worker.returncode in (0, -signal.SIGTERM):
                    return 0
                note(f"the worker ended with code {worker.returncode}; it starts again when the code changes")
                while not (seen := _changed(before, _stamps(folder))):
                    time.sleep(LOOK_EVERY)
        then, before = before, _stamps(folder)
        _forget_compiled([*seen, *_changed(then, before)])  # also what was written while the worker ended
        note(f"{safe(str(Path(seen[0]).relative_to(folder)))} changed: the worker starts again")


def _heed_signals() -> None:
    """As Ctrl-C: the worker must not be left behind. A hangup that is ignored, as under nohup, stays so."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hung_up)


def _hung_up(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    # A terminal that closes says so more than once, and a second Ctrl-C would end the worker while it drains.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    # A group of its own: a terminal's Ctrl-C reaches us alone, and the worker hears of it once. Twice would mean: now.
    group = None if os.name == "nt" else 0
    worker = subprocess.Popen(words, process_group=group, preexec_fn=platform.follows_parent())  # noqa: S603, PLW1509
    try:
        yield worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.terminate()
        with contextlib.suppress(KeyboardInterrupt):
            worker.wait()
        if worker.poll() is None:
            worker.kill()
            worker.wait()


def _stamps(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py") or name in ("daybreak.toml", "pyproject.toml"):
                path = os.path.join(place, name)  # noqa: PTH118 - thousands of them, twice a second
                with contextlib.suppress(OSError):
                    found[path] = os.stat(path).st_mtime_ns  # noqa: PTH116
        if len(found) > MOST_FILES:
            break
    return found


def _changed(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """The files that were written, made or deleted."""
    return [path for path in {**before, **now} if before.get(path) != now.get(path)]


def _forget_compiled(changed: list[str]) -> None:
    """Python takes what it compiled for current when the second of the change and the length agree: too coarse here."""
    for path in changed:
        if path.endswith(".py"):
            with contextlib.suppress(OSError):
                Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
