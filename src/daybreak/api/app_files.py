"""The files of an app: stored when a job is submitted, found when a result is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import Job
from daybreak.core.units import span
from daybreak.files import Blobs, FileStore, open_blobs
from daybreak.values.file import MARK, Content, File, collecting, contents_in, digests_in, opening

if TYPE_CHECKING:
    from daybreak.api.store_sessions import Sessions

# How long a content counts as touched. Unneeded contents are deleted after a day, so a job that is inserted within this
# time finds its content.
TOUCHED_FOR: Final = timedelta(hours=1)
_TOUCHED_FOR: Final = span(TOUCHED_FOR)
_KNOWN: Final = 100_000


class AppFiles:
    """Where the contents of an app's files are. Opened on first use."""

    def __init__(self, sessions: Sessions, setting: str | None, store_url: str) -> None:
        self._sessions = sessions
        self._setting = setting
        self._store_url = store_url
        self._opened: tuple[Blobs | None] | None = None
        self._touched: dict[str, int] = {}  # by digest: when it was last touched

    async def store(self) -> FileStore:
        """The contents, for use on the running event loop."""
        client = await self._sessions.client()
        return FileStore(await self.blobs(), client.store, self._sessions.world)

    async def blobs(self) -> Blobs | None:
        """The folder or the bucket; None if contents are in the store."""
        if self._opened is None:
            client = await self._sessions.client()
            self._opened = (await open_blobs(self._setting, self._store_url, client.store),)
        return self._opened[0]

    # -- encoding ------------------------------------------------------------------------------------------------------

    def knows(self, encoded: bytes) -> bool:
        """Whether everything that these arguments refer to was stored or touched a short while ago."""
        since = self._sessions.world.steady() - _TOUCHED_FOR
        return all(self._touched.get(digest, since - 1) >= since for digest in digests_in(encoded))

    def encode(self, encode: Callable[[], bytes]) -> bytes:
        """Encode arguments with files, and store what they refer to. Blocks."""
        with collecting() as contents:
            encoded = encode()
        self._sessions.portal.run(self._put(contents.values()))
        return encoded

    async def aencode(self, encode: Callable[[], bytes]) -> bytes:
        """As `encode`. The files are read in another thread."""

        def collect() -> tuple[bytes, list[Content]]:
            with collecting() as contents:
                return encode(), list(contents.values())

        encoded, contents = await asyncio.to_thread(collect)
        await self._sessions.here(self._put(contents))
        return encoded

    async def put(self, contents: Iterable[Content]) -> None:
        """Store contents before something refers to them."""
        await self._put_into_store(contents)

    async def _put(self, contents: Iterable[Content]) -> None:
        spool = self._sessions.spool
        if spool is None:
            await self._put_into_store(contents)
            return
        kept = list(contents)
        await asyncio.to_thread(spool.keep, kept)
        if await spool.open_client([]) is not None:
            with contextlib.suppress(StoreUnavailable):  # then the job goes into the spool
                await self._put_into_store(kept)

    async def _put_into_store(self, contents: Iterable[Content]) -> None:
        now = self._sessions.world.steady()
        store = await self.store()
        for content in contents:
            await store.put(content)
            if len(self._touched) >= _KNOWN:
                self._touched.clear()
            self._touched[content.digest] = now

    # -- decoding ------------------------------------------------------------------------------------------------------

    async def whole(self, job: Job) -> tuple[Job, Decode]:
        """The job with its whole result, and what decodes it: large parts are fetched now, Files on first use."""
        if MARK not in (job.result or b"") and MARK not in job.spec.args:
            return job, decode_plain
        job, loaded = await self._sessions.here(self._load(job))

        def decode(decode: Callable[[bytes], Any], data: bytes) -> Any:
            with opening(self._path, loaded.__getitem__):
                return decode(data)

        return job, decode

    async def _load(self, job: Job) -> tuple[Job, dict[str, bytes]]:
        store = await self.store()
        job = await store.with_result(job)
        needed = contents_in(job.result or b"") | contents_in(job.spec.args)
        return job, {digest: await asyncio.to_thread((await store.path(digest)).read_bytes) for digest in needed}

    def _path(self, file: File) -> Path:
        return self._sessions.portal.run(self._fetch(file.digest, file.name))

    async def _fetch(self, digest: str, name: str) -> Path:
        return await (await self.store()).path(digest, name)


Decode = Callable[[Callable[[bytes], Any], bytes], Any]


def decode_plain(decode: Callable[[bytes], Any], data: bytes) -> Any:
    return decode(data)
