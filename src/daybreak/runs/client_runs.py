"""Handles on runs for a program that has a client of its own: a command, or the server."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from daybreak.api.app_files import AppFiles
from daybreak.api.store_sessions import Sessions
from daybreak.client.client import Client
from daybreak.core.errors import RunNotFound
from daybreak.runs.record import read_run, run_names, split_label
from daybreak.runs.run import Run
from daybreak.tasks.registry import Program

R = TypeVar("R")


Place = tuple[str | None, str]


class ClientSessions(Sessions):
    """The one client of the running loop. Nothing is opened, and nothing is closed. `files` is the setting of that name
    and the address of the store, which say where the contents of files are."""

    def __init__(self, client: Client, files: Place) -> None:  # no super().__init__(): there is no store to make
        self._client = client
        self.world = client._world  # noqa: SLF001 - time passes for both alike
        self.by = client.by
        self.files = AppFiles(self, *files)

    async def here(self, work: Coroutine[Any, Any, R]) -> R:
        return await work

    async def client(self) -> Client:
        return self._client


async def find_run(client: Client, name: str, files: Place) -> Run:
    """A handle on the run of this name, of which only the async methods can be used. RunNotFound says what comes
    closest. `NAME#1` is how the run was before it was begun anew."""
    base, epoch = split_label(name)
    record, _ = await read_run(client.store, base)
    if record is None or (epoch is not None and not 1 <= epoch <= record.epoch):
        raise RunNotFound(name, await run_names(client.store))
    past = None if epoch is None or epoch == record.epoch else epoch
    return Run(ClientSessions(client, files), Program(), base, epoch=past)
