"""The files of the jobs of one child: inputs are fetched and checked before a job starts, outputs are stored before its
outcome is reported.

A child reads and writes a folder or a bucket itself. Contents in the store go through the cache of this machine: the
supervisor, which has the store, copies them between the two (`TaskReporter.move_file`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from daybreak.core.errors import BadFile, Permanent, StoreCorrupt
from daybreak.files import Blobs, blobs_at
from daybreak.files.machine_cache import machine_cache
from daybreak.system.file_content import digest_of
from daybreak.tasks.context import Context
from daybreak.values.file import Content, File, collecting, digests_in, opening
from daybreak.values.result import SPILL_ABOVE, spilled

T = TypeVar("T")

_log = logging.getLogger("daybreak.job")


class JobFiles:
    """`location` is the URL of a folder or a bucket; empty if contents are in the store."""

    def __init__(self, location: str) -> None:
        self._in_store = not location
        self._location = location
        self._opened: Blobs | None = None

    @property
    def _local(self) -> Blobs:
        """Where contents are, or where they are cached."""
        if self._opened is None:
            self._opened = machine_cache() if self._in_store else blobs_at(self._location)
        return self._opened

    # -- inputs --------------------------------------------------------------------------------------------------------

    def fetch(self, encoded: bytes, ctx: Context) -> None:
        """Fetch what the arguments refer to."""
        if self._in_store:
            for digest in digests_in(encoded):
                ctx.move_file(digest, up=False)

    async def afetch(self, encoded: bytes, ctx: Context) -> None:
        """As `fetch`, for async tasks."""
        if self._in_store:
            for digest in digests_in(encoded):
                await ctx.amove_file(digest, up=False)
            return
        try:
            for digest in digests_in(encoded):
                await asyncio.to_thread(self._local.path, digest, "content")
        except StoreCorrupt as error:
            raise Permanent(str(error)) from error

    def decode(self, decode: Callable[[bytes], T], encoded: bytes, ctx: Context) -> T:
        """The decoded arguments, with every File checked and on disk."""
        try:
            with opening(self._path, self._load) as files:
                decoded = decode(encoded)
            for file in files:
                self._prepare(file, ctx)
        except StoreCorrupt as error:
            raise Permanent(str(error)) from error
        return decoded

    def _path(self, file: File) -> Path:
        return self._local.path(file.digest, file.name)

    def _load(self, digest: str) -> bytes:
        return self._local.path(digest, "content").read_bytes()

    def _prepare(self, file: File, ctx: Context) -> None:
        if file.on_change == "pin" or file.original is None:
            file.path  # noqa: B018 - found and verified now, not in the middle of the work
            return
        try:
            digest, size = digest_of(file.original)
        except BadFile as error:
            digest, size, found = "", 0, f"cannot be read ({error})"
        else:
            found = f"has other content now (sha256:{digest})"
        if digest != file.digest:
            self._on_other_content(file, digest, size, found, ctx)
        file.path  # noqa: B018

    def _on_other_content(self, file: File, digest: str, size: int, found: str, ctx: Context) -> None:
        what = f"{file.name}: the original {file.original} {found}"
        if file.on_change == "fail":
            raise Permanent(f"{what}; it was submitted as sha256:{file.digest} with on_change='fail'")
        if file.on_change == "newest" and digest:
            newest = File(file.original or "")
            content = Content(digest, size, newest)
            self._local.put(content)
            used = f"{file.name}: used its newest content, sha256:{digest}"
            ctx.log.warning("%s: using it (on_change='newest'), not sha256:%s", what, file.digest)
            ctx.note = f"{ctx.note}; {used}" if ctx.note else used
            file.use(self._local.path(digest, file.name), digest, size)
            return
        ctx.log.warning("%s; using the submitted content, sha256:%s", what, file.digest)

    # -- outputs -------------------------------------------------------------------------------------------------------

    def encode(self, encode: Callable[[Any], bytes], returned: object, ctx: Context) -> bytes:
        """The encoded result, once everything that it refers to is stored."""
        encoded, contents = _collect(encode, returned)
        for content in contents:
            self._local.put(content)
            if self._in_store:
                ctx.move_file(content.digest, up=True)
        return encoded

    async def aencode(self, encode: Callable[[Any], bytes], returned: object, ctx: Context) -> bytes:
        """As `encode`, for async tasks."""
        encoded, contents = await asyncio.to_thread(_collect, encode, returned)
        for content in contents:
            await asyncio.to_thread(self._local.put, content)
            if self._in_store:
                await ctx.amove_file(content.digest, up=True)
        return encoded


def _collect(encode: Callable[[Any], bytes], returned: object) -> tuple[bytes, Iterable[Content]]:
    with collecting() as contents:
        encoded = encode(returned)
        if len(encoded) > SPILL_ABOVE:
            encoded = spilled(encoded)
        return encoded, list(contents.values())
