"""`daybreak dev`: a worker that restarts when the code changes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from daybreak.cli.code_changes import changed, looks, stamps
from daybreak.cli.options import NAME, Whole
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.cli.worker import words_of, worker_options
from daybreak.core.text import safe
from daybreak.system import platform


@click.command("dev", short_help="Run a worker that restarts when the code changes.")
@click.argument("target", type=NAME, required=False)
@click.option("--serve", "with_server", is_flag=True, help="Serve the REST API too, on this machine.")
@click.option("--port", type=Whole(0), help="With --serve: the port [default: 8765].")
@worker_options
def command(target: str | None, with_server: bool, port: int | None, how: dict[str, Any]) -> int:
    """Run a worker that restarts when a Python file or the settings file in the project folder changes. Running jobs
    may continue for the grace time of the worker; after that they are released, and no attempt is charged.

    Examples:
      daybreak dev tasks.py
      daybreak dev tasks.py --serve

    """
    here = session()
    if target is not None:
        here.app = target
    if here.target is None:
        here.loaded  # noqa: B018 - raises the error that says how to name an app
    program = [sys.executable, "-m", "daybreak.cli"]
    words = [*program, "worker", *words_of(how), *_store_words(here)]
    if port is not None and not with_server:
        raise click.UsageError("--port is for the server: add --serve", click.get_current_context())
    on_port = [] if port is None else ["--port", str(port)]
    server = [*program, "serve", *on_port, *_store_words(here)] if with_server else None
    return _serve(words, server, here.project.folder)


store_options(command)


def _store_words(here: Session) -> list[str]:
    """`--url` and `--app` as they were given to this command."""
    words = []
    if here.url:
        words += ["--url", here.url]
    if here.app:
        words += ["--app", str(here.target)]
    return words


def _serve(words: list[str], server: list[str] | None, folder: Path) -> int:
    """Run the worker in a child process and restart it at every change. A worker that failed to start is started again
    after the next change. The server, if one is wanted, is restarted with the worker."""
    _handle_signals()
    before, look = stamps(folder), looks(folder)
    while True:
        with contextlib.ExitStack() as stack:
            worker = stack.enter_context(_running(words))
            if server is not None:
                stack.enter_context(_running(server))
            found = _wait(before, folder, look, worker)
            if not found:
                if worker.returncode in (0, -signal.SIGTERM):
                    return 0
                note(f"the worker exited with code {worker.returncode}; it will be restarted when a file changes")
                found = _wait(before, folder, look)
        then, before = before, stamps(folder)
        _forget_compiled([*found, *changed(then, before)])  # including files that were written while the worker stopped
        note(f"{safe(str(Path(found[0]).relative_to(folder)))} changed; restarting the worker")


def _wait(
    before: dict[str, int], folder: Path, look: Iterator[bool], worker: subprocess.Popen[bytes] | None = None
) -> list[str]:
    """Wait until files have changed, and return them; none if the worker ended before."""
    for may_have_changed in look:
        if worker is not None and worker.poll() is not None:
            return []
        found = changed(before, stamps(folder)) if may_have_changed else []
        if found:
            return found
    return []


def _handle_signals() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that the worker is stopped too. An ignored SIGHUP, as under nohup, stays
    ignored."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _on_hangup)


def _on_hangup(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    # A terminal that closes may send SIGHUP more than once, and a second interrupt would kill the draining worker.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    # The worker gets its own process group, so that Ctrl-C reaches only this process, which stops the worker once. A
    # second signal would make the worker stop at once.
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


def _forget_compiled(changed: list[str]) -> None:
    """Delete the compiled files. Python reuses one if the source has the same size and the same modification time in
    whole seconds, which is too coarse for a restart within a second."""
    for path in changed:
        if path.endswith(".py"):
            with contextlib.suppress(OSError):
                Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
