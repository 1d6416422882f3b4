"""The async face of the place where contents are kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from daybreak.core.model import Job
from daybreak.files.blobs import BlobInfo, Blobs, damaged
from daybreak.files.folder import FolderBlobs
from daybreak.files.machine_cache import KEPT_FOR, cached_path, machine_cache, trim_machine_cache
from daybreak.files.store_blobs import StoreBlobs
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.values.file import Content, File
from daybreak.values.result import spilled_digest


class FileStore:
    """Stores and finds contents without blocking the event loop. `blobs` is None if they are in the store itself."""

    def __init__(self, blobs: Blobs | None, store: Store, world: World) -> None:
        self._blobs = blobs
        self._in_store = StoreBlobs(store, world)

    @property
    def location(self) -> str:
        return self._in_store.location if self._blobs is None else self._blobs.location

    async def put(self, content: Content) -> None:
        """Store a content durably, unless it is there; either way it counts as touched now."""
        if self._blobs is None:
            await self._in_store.put(content)
        else:
            await asyncio.to_thread(self._blobs.put, content)

    async def path(self, digest: str, name: str = "content") -> Path:
        """A read-only local file with this content, verified."""
        if self._blobs is not None:
            return await asyncio.to_thread(self._blobs.path, digest, name)
        cache = await asyncio.to_thread(machine_cache)
        found = await asyncio.to_thread(cached_path, cache, digest, name)
        if found is None:
            await self._fetch_to(cache, digest)
            found = await asyncio.to_thread(cache.path, digest, name)
        return found

    async def with_result(self, job: Job) -> Job:
        """The job with its whole result, also if that is stored as a content."""
        digest = None if job.result is None else spilled_digest(job.result)
        if digest is None:
            return job
        path = await self.path(digest)
        return msgspec.structs.replace(job, result=await asyncio.to_thread(path.read_bytes))

    async def download(self, digest: str) -> None:
        """Copy a content from the store to the cache of this machine."""
        await self.path(digest)

    async def upload(self, digest: str) -> None:
        """Copy a content from the cache of this machine to the store."""
        cache = await asyncio.to_thread(machine_cache)
        source = await asyncio.to_thread(cache.path, digest, "content")
        size = (await asyncio.to_thread(source.stat)).st_size
        await self.put(Content(digest, size, File(source)))

    async def _fetch_to(self, cache: FolderBlobs, digest: str) -> None:
        new = await asyncio.to_thread(cache.new_file)
        try:
            async for piece in self._in_store.pieces(digest):
                await asyncio.to_thread(new.write, piece)
        except BaseException:
            new.discard()
            raise
        if await asyncio.to_thread(new.finish) != digest:
            new.discard()
            raise damaged(digest, self.location)
        await asyncio.to_thread(cache.take_in, new, digest)

    async def pieces(self, digest: str) -> AsyncIterator[bytes]:
        """The content, piece by piece, unverified."""
        if self._blobs is None:
            async for piece in self._in_store.pieces(digest):
                yield piece
            return
        source: Iterator[bytes] = self._blobs.pieces(digest)
        while (found := await asyncio.to_thread(next, source, None)) is not None:
            yield found

    async def touch(self, digest: str) -> bool:
        """Say that this content is needed. False if it is not there."""
        if self._blobs is None:
            return await self._in_store.touch(digest)
        return await asyncio.to_thread(self._blobs.touch, digest)

    async def info(self, digest: str) -> BlobInfo | None:
        if self._blobs is None:
            return await self._in_store.info(digest)
        return await asyncio.to_thread(self._blobs.info, digest)

    async def infos(self) -> list[BlobInfo]:
        """Every stored content, sorted by digest."""
        if self._blobs is None:
            return sorted(await self._in_store.infos())
        blobs = self._blobs
        return await asyncio.to_thread(lambda: sorted(blobs.infos()))

    async def verify(self, digest: str) -> None:
        """Compare a content with its digest. Raises StoreCorrupt if it is missing or damaged."""
        if self._blobs is not None:
            await asyncio.to_thread(self._blobs.verify, digest)
            return
        hashed = hashlib.sha256()
        async for piece in self._in_store.pieces(digest):
            hashed.update(piece)
        if hashed.hexdigest() != digest:
            raise damaged(digest, self.location)

    async def delete(self, digest: str, before: datetime) -> bool:
        """Delete a content unless it was touched since `before`."""
        if self._blobs is None:
            return await self._in_store.delete(digest, before)
        return await asyncio.to_thread(self._blobs.delete, digest, before)

    async def tidy(self, before: datetime) -> None:
        """Delete what programs that were ended left behind before this time."""
        if self._blobs is None:
            await self._in_store.tidy(before)
            await asyncio.to_thread(trim_machine_cache, before + KEPT_FOR)
        else:
            await asyncio.to_thread(self._blobs.tidy, before)
