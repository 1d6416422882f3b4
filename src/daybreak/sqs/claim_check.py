"""Payloads that are too large for a message go to the place of contents, and the message carries their digest."""

from __future__ import annotations

import asyncio
import hashlib

from daybreak.core.errors import TooLarge
from daybreak.files import Blobs
from daybreak.sqs.messages import MAX_INLINE_BYTES, Payload
from daybreak.values.file import Content


class ClaimCheck:
    """`blobs` is a folder or bucket that both sides reach; None if there is none."""

    def __init__(self, blobs: Blobs | None) -> None:
        self._blobs = blobs

    async def check_in(self, data: bytes | None) -> Payload | None:
        """The payload of these bytes. Raises TooLarge if they need a place of contents and there is none."""
        if data is None:
            return None
        if len(data) <= MAX_INLINE_BYTES:
            return Payload(data)
        if self._blobs is None:
            raise TooLarge(
                f"{len(data):,} B do not fit into a message: name a bucket or folder that the dispatcher and the "
                "workers reach, for example DAYBREAK_FILES=s3://bucket/prefix"
            )
        digest = hashlib.sha256(data).hexdigest()
        await asyncio.to_thread(self._blobs.put, Content(digest, len(data), data))
        return Payload(digest=digest)

    async def check_out(self, payload: Payload | None) -> bytes | None:
        """The bytes of a payload, verified. Raises StoreCorrupt if they are missing."""
        if payload is None or payload.digest is None:
            return None if payload is None else payload.data
        if self._blobs is None:
            raise TooLarge(
                "the payload of a message is in a place of contents that this program does not know: set DAYBREAK_FILES"
            )
        path = await asyncio.to_thread(self._blobs.path, payload.digest, "payload")
        return await asyncio.to_thread(path.read_bytes)
