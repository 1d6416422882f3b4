"""The clients of WATS, for tasks: `Wats` blocks, `AsyncWats` is for async tasks. Every error says whether a retry
helps."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import weakref
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from daybreak.adapters.wats import calls
from daybreak.adapters.wats.address import check_token, check_url
from daybreak.adapters.wats.answers import Answer, Receipt
from daybreak.adapters.wats.calls import Request
from daybreak.adapters.wats.connection import Settings, check_limit, open_async_client, open_client, send, send_async
from daybreak.adapters.wats.errors import WatsError
from daybreak.adapters.wats.reports import Report, report_of
from daybreak.values.secret import Secret

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class _Server:
    """Where the server is. Connections are opened on first use, in the process that uses them, so that a client can be
    made when a module is imported."""

    def __init__(
        self,
        url: str,
        token: Secret[str] | str,
        *,
        connect_timeout: timedelta | str = "10s",
        timeout: timedelta | str = "30s",
        proxy: str | None = None,
        verify: bool | str | ssl.SSLContext = True,
    ) -> None:
        limits = check_limit(connect_timeout, "connect_timeout"), check_limit(timeout, "timeout")
        self._settings = Settings(check_url(url), check_token(token), *limits, proxy, verify)

    @property
    def url(self) -> str:
        return self._settings.url

    def __repr__(self) -> str:
        return f"<WATS at {self.url}>"


class Wats(_Server):
    """The WATS server at an address. Threads can share this object.

    `timeout` is for each wait: for a connection, for sending, and for the answer. `proxy` is the address of a proxy; by
    default the environment's is used. `verify` is a file of certificates, or an `ssl.SSLContext`."""

    _client: httpx.Client | None = None
    _process: int = 0
    _opening = threading.Lock()

    def submit(self, report: Report | Mapping[str, Any] | bytes | os.PathLike[str]) -> Receipt:
        """Upload a report: a file, its bytes, or a dict. It is returned when the server has the report. Uploading it
        again replaces it, so that the server has it once."""
        return self._run(calls.submit(report_of(report)))

    def fetch(self, report_id: str) -> dict[str, Any] | None:
        """The report as the server has it; None if it has no such report."""
        return self._run(calls.fetch(report_id))

    def has_report(self, report_id: str) -> bool:
        return self.fetch(report_id) is not None

    def version(self) -> str:
        """The version of the server."""
        return self._run(calls.version())

    def is_available(self) -> bool:
        """Whether the server answers now, and accepts the token."""
        try:
            self.version()
        except WatsError:
            return False
        return True

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Generator[Request, Answer, T]) -> T:
        client = self._open()
        try:
            request = next(steps)
            while True:
                try:
                    answer = send(client, self._settings, request)
                except WatsError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _open(self) -> httpx.Client:
        with self._opening:
            if self._client is None or self._process != os.getpid():  # connections cannot be shared with a fork
                self._client, self._process = open_client(self._settings), os.getpid()
                weakref.finalize(self, _close_in, self._process, self._client)
            return self._client


class AsyncWats(_Server):
    """As `Wats`, for async tasks: five uploads at a time need one process. Each event loop has its own connections."""

    _client: httpx.AsyncClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def submit(self, report: Report | Mapping[str, Any] | bytes | os.PathLike[str]) -> Receipt:
        """As `Wats.submit`. Files are read in a thread."""
        if isinstance(report, os.PathLike):
            report = await asyncio.to_thread(report_of, report)
        return await self._run(calls.submit(report_of(report)))

    async def fetch(self, report_id: str) -> dict[str, Any] | None:
        return await self._run(calls.fetch(report_id))

    async def has_report(self, report_id: str) -> bool:
        return await self.fetch(report_id) is not None

    async def version(self) -> str:
        return await self._run(calls.version())

    async def is_available(self) -> bool:
        try:
            await self.version()
        except WatsError:
            return False
        return True

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Generator[Request, Answer, T]) -> T:
        client = self._open()
        try:
            request = next(steps)
            while True:
                try:
                    answer = await send_async(client, self._settings, request)
                except WatsError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _open(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = open_async_client(self._settings), loop
        return self._client


def _close_in(process: int, client: httpx.Client) -> None:
    """Close a client that nobody uses any more; after a fork, leave the connections to the parent."""
    if os.getpid() == process:
        client.close()
