"""Contents of files: the query of a download."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from daybreak.server.bodies.base import Request


class BlobQuery(Request, frozen=True):
    """How a download is named."""

    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
