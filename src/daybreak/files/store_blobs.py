"""Contents in the store itself, in parts.

| kind | name | value |
|---|---|---|
| `blob` | the digest | size, number of parts, `copy`, and when it was last touched |
| `blob DIGEST` | `COPY 000000`, `COPY 000001`, ... | one part, at most 1 MiB |
| `blob copy` | `COPY` | digest and number of parts, while the parts of this copy are written or deleted |

A content is there once its `blob` record is. Parts belong to a copy: two programs that store the same content write two
copies, and the one whose `blob` record comes second deletes its own. The `blob copy` record is written before the first
part and before a deletion, so that `tidy` finds the parts that a crash left behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadFile
from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.files.blobs import BlobInfo, missing, pieces_of_content
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.values.file import Content

INDEX: Final = "blob"
COPY: Final = "blob copy"
PART: Final = 1024 * 1024
TOUCH_AGAIN_AFTER: Final = timedelta(minutes=10)
_CHUNK: Final = 100


class _Index(Struct, frozen=True):
    size: int
    parts: int
    copy: str
    touched_at: datetime


class _Copy(Struct, frozen=True):
    digest: str
    parts: int
    begun_at: datetime


class StoreBlobs:
    """Contents in parts, as records of a store."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world

    @property
    def location(self) -> str:
        return f"the {self._store.traits.name} store"

    def _now(self) -> datetime:
        return moment(self._world.wall())

    async def _index(self, digest: str) -> tuple[Record, _Index] | None:
        found = await self._store.records(INDEX, digest)
        return (found[0], msgspec.json.decode(found[0].value, type=_Index)) if found else None

    # -- writing -------------------------------------------------------------------------------------------------------

    async def put(self, content: Content) -> None:
        """Store a content, unless it is there; either way it counts as touched now."""
        if await self.touch(content.digest):
            return
        copy = secrets.token_hex(8)
        parts = -(-content.size // PART)
        note = _Copy(content.digest, parts, self._now())
        await self._store.put([Put(kind=COPY, name=copy, value=msgspec.json.encode(note))])
        hashed, number = hashlib.sha256(), 0
        source = pieces_of_content(content)
        while (piece := await asyncio.to_thread(next, source, None)) is not None:
            hashed.update(piece)
            for at in range(0, len(piece), PART):
                await self._store.put([
                    Put(kind=_kind(content.digest), name=_part(copy, number), value=piece[at : at + PART])
                ])  # fmt: skip
                number += 1
        if hashed.hexdigest() != content.digest or number != parts:
            await self._delete_copy(copy, msgspec.structs.replace(note, parts=max(parts, number)))
            raise BadFile(f"{content.data!r} has changed since it was first used: make a new File of it")
        index = _Index(content.size, parts, copy, self._now())
        [written] = await self._store.put([
            Put(kind=INDEX, name=content.digest, value=msgspec.json.encode(index), expect=0)
        ])  # fmt: skip
        if written is not None:
            await self._store.put([Put(kind=COPY, name=copy, value=None)])
        else:
            await self._delete_copy(copy, note)
            await self.put(content)  # another program was faster; this touches its copy

    async def touch(self, digest: str) -> bool:
        """Say that this content is needed. False if it is not there."""
        while True:
            found = await self._index(digest)
            if found is None:
                return False
            record, index = found
            now = self._now()
            if now - index.touched_at < TOUCH_AGAIN_AFTER:
                return True
            touched = msgspec.structs.replace(index, touched_at=now)
            put = Put(kind=INDEX, name=digest, value=msgspec.json.encode(touched), expect=record.revision)
            if (await self._store.put([put]))[0] is not None:
                return True

    # -- reading -------------------------------------------------------------------------------------------------------

    async def pieces(self, digest: str) -> AsyncIterator[bytes]:
        """The content, part by part, unverified."""
        found = await self._index(digest)
        if found is None:
            raise missing(digest, self.location)
        for number in range(found[1].parts):
            part = await self._store.records(_kind(digest), _part(found[1].copy, number))
            if not part:
                raise missing(digest, self.location)
            yield part[0].value

    async def info(self, digest: str) -> BlobInfo | None:
        found = await self._index(digest)
        return None if found is None else BlobInfo(digest, found[1].size, found[1].touched_at)

    async def infos(self) -> list[BlobInfo]:
        found = [
            (record.name, msgspec.json.decode(record.value, type=_Index)) for record in await self._store.records(INDEX)
        ]
        return [BlobInfo(digest, index.size, index.touched_at) for digest, index in found]

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def delete(self, digest: str, before: datetime) -> bool:
        """Delete a content unless it was touched since `before`."""
        found = await self._index(digest)
        if found is None or found[1].touched_at >= before:
            return False
        record, index = found
        note = _Copy(digest, index.parts, self._now())
        await self._store.put([Put(kind=COPY, name=index.copy, value=msgspec.json.encode(note))])
        [gone] = await self._store.put([Put(kind=INDEX, name=digest, value=None, expect=record.revision)])
        if gone is None:  # touched meanwhile
            await self._store.put([Put(kind=COPY, name=index.copy, value=None)])
            return False
        await self._delete_copy(index.copy, note)
        return True

    async def _delete_copy(self, copy: str, note: _Copy) -> None:
        names = [_part(copy, number) for number in range(note.parts)]
        for at in range(0, len(names), _CHUNK):
            await self._store.put([
                Put(kind=_kind(note.digest), name=name, value=None) for name in names[at : at + _CHUNK]
            ])  # fmt: skip
        await self._store.put([Put(kind=COPY, name=copy, value=None)])

    async def tidy(self, before: datetime) -> None:
        """Delete what programs that were ended left behind before this time."""
        for record in await self._store.records(COPY):
            note = msgspec.json.decode(record.value, type=_Copy)
            if note.begun_at >= before:
                continue
            found = await self._index(note.digest)
            if found is not None and found[1].copy == record.name:  # complete, or its deletion was given up
                await self._store.put([Put(kind=COPY, name=record.name, value=None, expect=record.revision)])
            else:
                await self._delete_copy(record.name, note)


def _kind(digest: str) -> str:
    return f"{INDEX} {digest}"


def _part(copy: str, number: int) -> str:
    return f"{copy} {number:06}"
