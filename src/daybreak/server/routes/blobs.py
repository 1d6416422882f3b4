"""`GET /blobs/{digest}`: the bytes of a file or of a large result."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from litestar.response import Stream

from daybreak.server.bodies.blobs import BlobQuery
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may
from daybreak.system.file_content import pieces_of

routes = Routes("blobs")

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")


@routes.get(
    "/blobs/{digest}", may("read", needs_all_queues=True), query=BlobQuery, answer=str,
    answer_type="application/octet-stream", refuses=(404,), summary="The bytes of a file or a large result",
)  # fmt: skip
async def show_blob(call: Call[BlobQuery, None]) -> Any:
    """The content with this sha256 digest, which a job's arguments or result name. It is verified before it is sent.
    `name` is the file name that a browser offers."""
    digest = call.path["digest"]
    files = await call.server.app.file_store()
    found = await files.info(digest) if _DIGEST.fullmatch(digest) else None
    if found is None:
        raise Problem(NOT_FOUND, f"no content has the digest {digest[:100]!r}", hint="take it from a job's result")
    path = await files.path(digest)
    headers = {
        "content-disposition": disposition(call.query.name or f"{digest}.bin"),
        "content-length": str(found.size),
        "cache-control": "private, max-age=31536000, immutable",
        "etag": f'"{digest}"',
    }
    return Stream(_pieces(path), media_type="application/octet-stream", headers=headers)


def disposition(name: str) -> str:
    """The header that names a download. Whatever the name holds, it cannot end the header or the quotes."""
    return f"attachment; filename=\"{_NOT_PLAIN.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    source = pieces_of(path, must_not_change=False)
    while (piece := await asyncio.to_thread(next, source, None)) is not None:
        yield piece
