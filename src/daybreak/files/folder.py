"""Contents in a folder: one subfolder per digest.

ab/abcd.../content          the bytes, read-only; written to a file in `new/`, synced, and renamed
ab/abcd.../touched          its modification time is when the content was last stored or submitted
ab/abcd.../as/model.plecs   a hard link to the content (a copy where links are not supported), which jobs read
new/                        files that are being written; a crash leaves them, `tidy` deletes them
old/                        subfolders that are being deleted
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from daybreak.core.errors import BadFile
from daybreak.files.blobs import BlobInfo, damaged, missing, pieces_of_content, safe_name
from daybreak.system.file_content import NewFile, digest_of, pieces_of, sync_folder, write_error, write_new
from daybreak.values.file import Content

_PREFIX: Final = re.compile("[0-9a-f]{2}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_TRIES: Final = 5  # of a write that a deletion interrupts


class FolderBlobs:
    """Contents in a folder of a file system that all programs share which use them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: set[tuple[object, ...]] = set()

    @property
    def location(self) -> str:
        return self.root.as_uri()

    def _folder(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, content: Content) -> None:
        for _ in range(_TRIES):
            if self.touch(content.digest):
                return
            new, digest = write_new(self.root / "new", pieces_of_content(content))
            if digest != content.digest:
                new.discard()
                raise BadFile(f"{content.data!r} has changed since it was first used: make a new File of it")
            if self.take_in(new, digest):
                return
        raise missing(content.digest, str(self.root))

    def new_file(self) -> NewFile:
        """A file to write a content to, for `take_in`."""
        return NewFile(self.root / "new")

    def take_in(self, new: NewFile, digest: str) -> bool:
        """Move a finished file to its place. False if its folder was deleted meanwhile."""
        folder = self._folder(digest)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "touched").touch()
            new.path.replace(folder / "content")
            for changed in (folder, folder.parent, self.root):
                sync_folder(changed)
        except FileNotFoundError:
            new.discard()
            return False
        except OSError as error:
            new.discard()
            raise write_error(self.root, error) from None
        return True

    def touch(self, digest: str) -> bool:
        folder = self._folder(digest)
        # First the touch, then the look: a deletion that has begun meanwhile sees the touch and restores the folder.
        try:
            (folder / "touched").touch()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise write_error(self.root, error) from None
        return (folder / "content").exists()

    # -- reading -------------------------------------------------------------------------------------------------------

    def path(self, digest: str, name: str) -> Path:
        folder = self._folder(digest)
        named = folder / "content" if name == "content" else folder / "as" / safe_name(name)
        try:
            if not named.exists():
                self._link(folder / "content", named)
            self._verify(digest, named)
        except (FileNotFoundError, BadFile):
            raise missing(digest, str(self.root)) from None
        return named

    def _link(self, content: Path, named: Path) -> None:
        named.parent.mkdir(exist_ok=True)
        try:
            os.link(content, named)
        except FileExistsError:
            pass
        except FileNotFoundError:
            raise
        except OSError:  # this file system has no hard links
            new, _ = write_new(self.root / "new", pieces_of(content, must_not_change=False))
            new.path.replace(named)

    def _verify(self, digest: str, path: Path) -> None:
        """Compare the content with its digest, once per process, and again when the file has changed."""
        status = path.stat()
        # Without the change time: a new link changes it too.
        seen = (digest, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if seen in self._verified:
            return
        if digest_of(path, must_not_change=False)[0] != digest:
            raise damaged(digest, str(self._folder(digest)))
        if len(self._verified) > 10_000:
            self._verified.clear()
        self._verified.add(seen)

    def pieces(self, digest: str) -> Iterator[bytes]:
        try:
            yield from pieces_of(self._folder(digest) / "content", must_not_change=False)
        except BadFile:
            raise missing(digest, str(self.root)) from None

    def info(self, digest: str) -> BlobInfo | None:
        folder = self._folder(digest)
        try:
            size = (folder / "content").stat().st_size
            touched = (folder / "touched").stat().st_mtime
        except OSError:
            return None
        return BlobInfo(digest, size, datetime.fromtimestamp(touched, UTC))

    def infos(self) -> Iterator[BlobInfo]:
        for prefix in _names(self.root, _PREFIX):
            for digest in _names(self.root / prefix, _DIGEST):
                found = self.info(digest)
                if found is not None:
                    yield found

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete(self, digest: str, before: datetime) -> bool:
        found = self.info(digest)
        if found is None or found.touched_at >= before:
            return False
        return self._delete(digest, self._folder(digest), before)

    def _delete(self, digest: str, folder: Path, before: datetime) -> bool:
        # Moved away first: whoever looks from now on does not find it and stores it again. Whoever found it before has
        # touched it, and then it is moved back.
        away = self.root / "old" / f"{digest}-{secrets.token_hex(4)}"
        try:
            away.parent.mkdir(exist_ok=True)
            folder.rename(away)
        except FileNotFoundError:
            return False
        return not self._restore_if_touched(away, before)

    def _restore_if_touched(self, away: Path, before: datetime) -> bool:
        digest = away.name[:64]
        with contextlib.suppress(OSError):
            if (away / "touched").stat().st_mtime >= before.timestamp() and (away / "content").exists():
                away.rename(self._folder(digest))  # fails if it was stored again meanwhile
                return True
        shutil.rmtree(away, ignore_errors=True)
        return False

    def tidy(self, before: datetime) -> None:
        for path in _entries(self.root / "new"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before.timestamp():
                    path.unlink()
        for path in _entries(self.root / "old"):  # the program that deleted these was ended
            self._restore_if_touched(path, before)

    def verify(self, digest: str) -> None:
        """Compare a content with its digest. Raises StoreCorrupt if it is missing or damaged."""
        folder = self._folder(digest)
        for path in (folder / "content", *_entries(folder / "as")):
            try:
                if digest_of(path, must_not_change=False)[0] != digest:
                    raise damaged(digest, str(folder))
            except BadFile:
                raise missing(digest, str(self.root)) from None


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    return sorted(path.name for path in _entries(folder) if pattern.fullmatch(path.name))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
