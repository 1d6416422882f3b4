"""Copies contents from one store's place to another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from daybreak.files.file_store import FileStore
from daybreak.values.file import Content, File


async def copy_contents(source: FileStore, target: FileStore, digests: Iterable[str]) -> None:
    """Copy these contents, unless the target has them; there they count as touched now. Raises StoreCorrupt if one is
    missing or damaged in the source."""
    for digest in sorted(digests):
        if await target.touch(digest):
            continue
        path = await source.path(digest)
        size = (await asyncio.to_thread(path.stat)).st_size
        await target.put(Content(digest, size, File(path)))
