"""Contents in a bucket (S3 and what is like it), with obstore.

    content/DIGEST   the bytes
    touched/DIGEST   empty; its modification time is when the content was last stored or submitted
    old/DIGEST       a content that is being deleted

A file is copied to the cache of this machine first and uploaded from there, because it must not change during the
upload. Whoever reads a content reads it from the cache, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from daybreak.core.errors import StoreUnavailable, StoreUnsuitable
from daybreak.core.text import first_line
from daybreak.files.blobs import BlobInfo, damaged, missing, verify_pieces
from daybreak.files.folder import FolderBlobs
from daybreak.files.machine_cache import cached_path, machine_cache, trim_machine_cache
from daybreak.system.file_content import PIECE
from daybreak.values.file import Content

try:
    import obstore
    from obstore.exceptions import BaseError
except ImportError as _missing:
    raise StoreUnsuitable("files in a bucket need obstore: pip install 'daybreak[s3]'") from _missing


class BucketBlobs:
    """Contents in a bucket. `bucket` is a store of obstore; without it, the location says which."""

    def __init__(self, location: str, bucket: Any = None, cache: FolderBlobs | None = None) -> None:
        self.location = location
        self._own_cache = cache
        try:
            self._bucket = obstore.store.from_url(location) if bucket is None else bucket
        except (BaseError, ValueError) as error:
            raise self._unusable(error) from None

    @property
    def _cache(self) -> FolderBlobs:
        return self._own_cache or machine_cache()

    def _unusable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"files in {self.location} cannot be reached: {first_line(str(error))}")

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, OSError, TimeoutError) as error:
            raise self._unusable(error) from None

    def _modified(self, key: str) -> datetime | None:
        found = self._head(key)
        return None if found is None else found["last_modified"]

    def _head(self, key: str) -> Any:
        try:
            with self._asking():
                return obstore.head(self._bucket, key)
        except FileNotFoundError:
            return None

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, content: Content) -> None:
        if self.touch(content.digest):
            return
        self._cache.put(content)
        with self._asking():
            obstore.put(self._bucket, f"content/{content.digest}", self._cache.path(content.digest, "content"))

    def touch(self, digest: str) -> bool:
        # First the touch, then the look: a deletion that has begun meanwhile sees the touch and restores the content.
        with self._asking():
            obstore.put(self._bucket, f"touched/{digest}", b"")
        return self._head(f"content/{digest}") is not None

    # -- reading -------------------------------------------------------------------------------------------------------

    def path(self, digest: str, name: str) -> Path:
        cache = self._cache
        found = cached_path(cache, digest, name)
        if found is not None:
            return found
        new = cache.new_file()
        try:
            for piece in self.pieces(digest):
                new.write(piece)
        except BaseException:
            new.discard()
            raise
        if new.finish() != digest:
            new.discard()
            raise damaged(digest, self.location)
        cache.take_in(new, digest)
        return cache.path(digest, name)

    def pieces(self, digest: str) -> Iterator[bytes]:
        try:
            with self._asking():
                for piece in obstore.get(self._bucket, f"content/{digest}").stream(min_chunk_size=PIECE):
                    yield bytes(piece)
        except FileNotFoundError:
            raise missing(digest, self.location) from None

    def info(self, digest: str) -> BlobInfo | None:
        content = self._head(f"content/{digest}")
        if content is None:
            return None
        touched = self._modified(f"touched/{digest}")
        return BlobInfo(digest, content["size"], max(content["last_modified"], touched or content["last_modified"]))

    def infos(self) -> Iterator[BlobInfo]:
        touched = {_digest(entry): entry["last_modified"] for entry in self._list("touched/")}
        for entry in self._list("content/"):
            digest, stored = _digest(entry), entry["last_modified"]
            yield BlobInfo(digest, entry["size"], max(stored, touched.get(digest, stored)))

    def _list(self, prefix: str) -> Iterator[Any]:
        with self._asking():
            for page in obstore.list(self._bucket, prefix=prefix):
                yield from page

    def verify(self, digest: str) -> None:
        """Compare a content with its digest. Raises StoreCorrupt if it is missing or damaged."""
        verify_pieces(digest, self.pieces(digest), self.location)

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete(self, digest: str, before: datetime) -> bool:
        found = self.info(digest)
        if found is None or found.touched_at >= before:
            return False
        try:
            with self._asking():
                obstore.rename(self._bucket, f"content/{digest}", f"old/{digest}")
        except FileNotFoundError:
            return False
        return not self._restore_if_touched(digest, before)

    def _restore_if_touched(self, digest: str, before: datetime) -> bool:
        touched = self._modified(f"touched/{digest}")
        with contextlib.suppress(FileNotFoundError), self._asking():
            if touched is not None and touched >= before:
                obstore.rename(self._bucket, f"old/{digest}", f"content/{digest}")
                return True
            obstore.delete(self._bucket, [f"old/{digest}", f"touched/{digest}"])
        return False

    def tidy(self, before: datetime) -> None:
        for entry in list(self._list("old/")):  # the program that deleted these was ended
            self._restore_if_touched(_digest(entry), before)
        trim_machine_cache(before + timedelta(days=1))


def _digest(entry: Any) -> str:
    return str(entry["path"]).rpartition("/")[2]
