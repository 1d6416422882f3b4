"""What a command needs: the settings, the app, the store and a client."""

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
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, DaybreakError, StoreUnavailable, TargetNotFound
from daybreak.core.model import Job
from daybreak.core.text import safe
from daybreak.files import FileStore, open_blobs
from daybreak.store.protocol import Store
from daybreak.stores import store_for
from daybreak.system.platform import whoami
from daybreak.system.ports import RealWorld
from daybreak.tasks.command_tasks import COMMAND_TASKS

T = TypeVar("T")


class Session:
    """One call of the program. `url` and `app` are the options of its command line."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app: str | None = None

    # -- settings ------------------------------------------------------------------------------------------------------

    @cached_property
    def project(self) -> config.Settings:
        """The settings, without loading an app."""
        with self.command_line():
            return config.resolve()

    @cached_property
    def settings(self) -> config.Settings:
        """The settings in force. An app named on the command line is loaded, because its code may name the store."""
        if self.app is None or self.url is not None:
            return self.project
        found = getattr(self.loaded, "settings", None)
        return found if isinstance(found, config.Settings) else self.project

    @contextlib.contextmanager
    def command_line(self) -> Any:
        """Resolve settings inside this block with `--url` and `--app` of this call."""
        with config.command_line(url=self.url, app=self.app):
            yield

    # -- the app -------------------------------------------------------------------------------------------------------

    @property
    def target(self) -> str | None:
        """Where the app is: from the command line or the settings; None if neither names one."""
        target = self.project.app
        if target is None or self.app is None:
            return target
        # A file on the command line is relative to the current folder. If it is not there, try the project folder.
        of_project = config.from_folder(target, self.project.folder)
        return of_project if not _is_file(target) and _is_file(of_project) else target

    @cached_property
    def loaded(self) -> Any:
        """The app. If the user's code fails while it is loaded, the error names the file and the line."""
        if (target := self.target) is None:
            raise BadInput(
                "no app is set: add --app tasks.py:app, set DAYBREAK_APP, "
                'or write app = "tasks.py:app" in daybreak.toml'
            )
        return self.load(target)

    def load(self, target: str) -> Any:
        """Import the app. The project folder is added to the import path first."""
        from daybreak.worker.target import load  # noqa: PLC0415 - only commands that need an app load all of this

        folder = str(self.project.folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            # What the user's modules print while they are imported must not mix with the output of the command.
            with self.command_line(), contextlib.redirect_stdout(sys.stderr):
                return load(target)
        except DaybreakError:
            raise
        except SystemExit:
            raise TargetNotFound(
                f'{target} calls sys.exit() while it is imported: put that call under if __name__ == "__main__":'
            ) from None
        except Exception as error:
            raise TargetNotFound(
                f"cannot load {target}: {type(error).__name__}: {error}{_location(error)}; "
                "set DAYBREAK_DEBUG=1 to see the traceback"
            ) from error

    # -- the store -----------------------------------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        return store_for(self.settings.url)

    @property
    def absent(self) -> str | None:
        """The error message if the store does not exist, else None. For a server only a connection can tell."""
        return None if is_there(self.settings) else missing(self.settings)

    def run(self, do: Callable[[Client], Awaitable[T]], *, create: bool = False) -> T:
        """Open the store, call `do` with a client, close the store. Without `create`, a store that does not exist is an
        error."""

        async def opened() -> T:
            async with self.client(create=create) as client:
                return await do(client)

        return asyncio.run(opened())

    @contextlib.asynccontextmanager
    async def client(self, *, create: bool = False) -> AsyncIterator[Client]:
        store = self.store
        if not store.traits.persistent:
            raise BadInput(
                f"{self.settings.store} is in the memory of one process and ends with this command: name another "
                "store, for example --url jobs.db"
            )
        absent = self.absent
        if absent is not None and not create:
            raise StoreUnavailable(absent)
        await store.open()
        try:
            if absent is not None:
                note(f"created the store {safe(self.settings.store)}")
            yield Client(store, by=whoami())
        finally:
            await store.close()

    @property
    def files_setting(self) -> tuple[str | None, str]:
        """By which the contents of files are found: the setting, and the URL of the store."""
        return self.settings.files, self.settings.url

    async def files(self, client: Client) -> FileStore:
        """The contents of files and large results."""
        blobs = await open_blobs(*self.files_setting, client.store)
        return FileStore(blobs, client.store, RealWorld())

    async def with_result(self, client: Client, job: Job) -> Job:
        """The job with its whole result, also if that is large."""
        return await (await self.files(client)).with_result(job)

    def command(self, *words: str) -> str:
        """A command to type next, on the same store as this one unless the words name another. Words after `--` belong
        to another program."""
        ours = words.index("--") if "--" in words else len(words)
        app = shlex.join(["--app", self.app]) if self.app else ""
        url = "" if "--url" in words[:ours] else self._url_option()
        parts = [shlex.join(["daybreak", *words[:ours]]), url, app, shlex.join(words[ours:])]
        return safe(" ".join(part for part in parts if part))

    def _url_option(self) -> str:
        """`--url` as it was given, but without a password."""
        if not self.url:
            return ""
        masked = self.url if self.project.path is not None else config.shown(self.url)
        if masked != self.url and self.url == os.environ.get("DAYBREAK_URL"):
            return '--url "$DAYBREAK_URL"'
        return shlex.join(["--url", masked])

    def start_worker(self, *words: str) -> str:
        """The command that starts a worker. If the settings name no app, it contains the placeholder TARGET."""
        return self.command("worker", *(() if self.project.app else ("TARGET",)), *words)

    def start_for(self, task: str, *queues: str) -> str:
        """The command that starts a worker for this task's jobs in these queues. A worker for command lines needs no
        app, and serves only the default queue unless `--queues` names others; other tasks name their queues
        themselves."""
        if task not in COMMAND_TASKS:
            return self.start_worker()
        named = ("--queues", ",".join(sorted({*queues}))) if {*queues} - {"default"} else ()
        return self.command("worker", "--allow-commands", *named)


def _is_file(target: str) -> bool:
    try:
        return Path(target.rpartition(":")[0] or target).is_file() or Path(target).is_file()
    except OSError:  # no permission to enter the folder: loading the file will report that
        return False


def is_there(settings: config.Settings) -> bool:
    """False if the store's file is missing or empty. StoreUnavailable if there is no permission to check. Always True
    for a server: only a connection can tell."""
    path = settings.path
    try:
        return path is None or (path.exists() and not (path.is_file() and path.stat().st_size == 0))
    except OSError as error:
        raise StoreUnavailable(
            f"cannot access {settings.store}: {error.strerror}; check the path and the permissions of its "
            "folder, or name another store with --url"
        ) from error


def missing(settings: config.Settings) -> str:
    """The error message for a store that does not exist."""
    path = settings.path
    assert path is not None
    message = (
        f"there is no store at {settings.store}: submit a job or start a worker to create it, or name another store "
        "with --url"
    )
    here = Path.cwd() / path.name
    if here != path and os.path.exists(here):  # noqa: PTH110 - unlike Path.exists, it never raises
        message += f"; did you mean {here}? Relative paths start at the project folder, {settings.folder}"
    return message


def _location(error: Exception) -> str:
    """The file and line in the user's code where the error was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def session() -> Session:
    """The session of the command that runs now."""
    return click.get_current_context().ensure_object(Session)
