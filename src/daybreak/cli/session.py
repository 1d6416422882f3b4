"""What all commands of one call share: the settings, the app, the store, and who asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click

from daybreak import config
from daybreak.cli.output import note
from daybreak.cli.text import safe
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, DaybreakError, StoreUnavailable, TargetNotFound
from daybreak.store.protocol import Store
from daybreak.stores import store_for
from daybreak.system.platform import whoami

T = TypeVar("T")
COMMANDS = "exec"  # the task of command lines, which only workers with --allow-commands run


class Session:
    """One call of the program. `url` and `app` are what its command line says."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app: str | None = None

    # -- settings ------------------------------------------------------------------------------------------------------

    @cached_property
    def project(self) -> config.Settings:
        """The settings without a look into any app's code."""
        with self.said():
            return config.resolve()

    @cached_property
    def settings(self) -> config.Settings:
        """The settings that hold. An app named on the command line is loaded for them: its code may name the store."""
        if self.app is None or self.url is not None:
            return self.project
        found = getattr(self.loaded, "settings", None)
        return found if isinstance(found, config.Settings) else self.project

    @contextlib.contextmanager
    def said(self) -> Any:
        with config.command_line(url=self.url, app=self.app):
            yield

    # -- the app -------------------------------------------------------------------------------------------------------

    @property
    def target(self) -> str | None:
        """Where the app is, as far as anyone said."""
        target = self.project.app
        if target is None or self.app is None:
            return target
        # A file of the command line lies here; one of the project may be named from anywhere in it.
        of_project = config.from_folder(target, self.project.folder)
        return of_project if not _is_file(target) and _is_file(of_project) else target

    @cached_property
    def loaded(self) -> Any:
        """The app. An error in the user's own code is told with its file and line."""
        if (target := self.target) is None:
            raise BadInput(
                "no app is named: add --app tasks.py:app, set DAYBREAK_APP, "
                'or write app = "tasks.py:app" into daybreak.toml'
            )
        return self.load(target)

    def load(self, target: str) -> Any:
        from daybreak.worker.target import load  # noqa: PLC0415 - only commands that need an app load all of this

        folder = str(self.project.folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            # What the user's modules print while they are loaded must not stand before what was asked for.
            with self.said(), contextlib.redirect_stdout(sys.stderr):
                return load(target)
        except DaybreakError:
            raise
        except SystemExit:
            raise TargetNotFound(
                f"{target} ends the program while it is loaded: put what calls sys.exit() under "
                'if __name__ == "__main__":'
            ) from None
        except Exception as error:
            raise TargetNotFound(
                f"{target} cannot be loaded: {type(error).__name__}: {error}{_place(error)}; "
                "DAYBREAK_DEBUG=1 shows the traceback"
            ) from error

    # -- the store -----------------------------------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        return store_for(self.settings.url)

    @property
    def absent(self) -> str | None:
        """What to say of a store that is not there, where that can be seen."""
        return None if is_there(self.settings) else missing(self.settings)

    def run(self, do: Callable[[Client], Awaitable[T]], *, create: bool = False) -> T:
        """Open the store, do it, close the store. Only what writes may make a store that was not there."""

        async def opened() -> T:
            async with self.client(create=create) as client:
                return await do(client)

        return asyncio.run(opened())

    @contextlib.asynccontextmanager
    async def client(self, *, create: bool = False) -> AsyncIterator[Client]:
        store = self.store
        if not store.traits.shared:
            raise BadInput(
                f"{self.settings.store} lives inside one process and ends with it: name a store that outlives this "
                "command, such as --url jobs.db"
            )
        absent = self.absent
        if absent is not None and not create:
            raise StoreUnavailable(absent)
        await store.open()
        try:
            if absent is not None:
                note(f"made the store {safe(self.settings.store)}")
            yield Client(store, by=whoami())
        finally:
            await store.close()

    def command(self, *words: str) -> str:
        """A command to type next: on the same store as this one. What stands behind `--` belongs to another program."""
        ours = words.index("--") if "--" in words else len(words)
        said = [self._named_url(), shlex.join(["--app", self.app]) if self.app else ""]
        parts = [shlex.join(["daybreak", *words[:ours]]), *said, shlex.join(words[ours:])]
        return safe(" ".join(part for part in parts if part))

    def _named_url(self) -> str:
        """`--url` as it was given; a password that was typed is not repeated."""
        if not self.url:
            return ""
        if self.project.path is not None or (told := config.shown(self.url)) == self.url:
            return shlex.join(["--url", self.url])
        return '--url "$DAYBREAK_URL"' if self.url == os.environ.get("DAYBREAK_URL") else shlex.join(["--url", told])

    def start_worker(self, *words: str) -> str:
        """The command that starts a worker; the settings may know for which app."""
        return self.command("worker", *(() if self.project.app else ("TARGET",)), *words)

    def start_for(self, task: str, *queues: str) -> str:
        """The command that starts a worker for this task's jobs in these queues. One for command lines needs no app and
        serves only the default queue unless it is told otherwise; other tasks bring their queues along."""
        if task != COMMANDS:
            return self.start_worker()
        named = ("--queues", ",".join(sorted({*queues}))) if {*queues} - {"default"} else ()
        return self.command("worker", "--allow-commands", *named)


def _is_file(target: str) -> bool:
    try:
        return Path(target.rpartition(":")[0] or target).is_file() or Path(target).is_file()
    except OSError:  # a folder that may not be entered: whoever loads it says so
        return False


def is_there(settings: config.Settings) -> bool:
    """False for a file that is missing or empty; StoreUnavailable for one at which nobody may look. Of a server, the
    next who connects can say."""
    path = settings.path
    try:
        return path is None or (path.exists() and not (path.is_file() and path.stat().st_size == 0))
    except OSError as error:
        raise StoreUnavailable(
            f"{settings.store} cannot be looked at: {error.strerror}; check its path and the permissions of its "
            "folder, or name another with --url"
        ) from error


def missing(settings: config.Settings) -> str:
    """What to say of a store that is not there."""
    path = settings.path
    assert path is not None
    told = (
        f"there is no store at {settings.store}: submit a job or start a worker to make one, or name another with --url"
    )
    here = Path.cwd() / path.name
    if here != path and os.path.exists(here):  # noqa: PTH110 - unlike Path.exists, it never raises
        told += f"; did you mean {here}? Relative paths count from the project folder, {settings.folder}"
    return told


def _place(error: Exception) -> str:
    """Where in the user's code it happened."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def session() -> Session:
    """The session of the command that runs now."""
    return click.get_current_context().ensure_object(Session)
