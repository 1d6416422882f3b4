"""The cache of this machine: contents that were fetched from a bucket or from the store, shared by all its workers."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

from daybreak.core.errors import BadInput, StoreCorrupt
from daybreak.files.folder import FolderBlobs

VARIABLE: Final = "DAYBREAK_FILES_CACHE"
SIZE_LIMIT: Final = 10 * 1024**3
# A job may hold the path of a content for so long without a touch, so younger ones are kept even above the limit.
KEPT_FOR: Final = timedelta(days=1)


def cache_folder() -> Path:
    """DAYBREAK_FILES_CACHE, else the user's cache folder, else a private folder beside the temporary files."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    try:
        return _platform_folder() / "daybreak" / "files"
    except (RuntimeError, OSError):  # a service user without a home
        return _private_folder()


def _platform_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    (folder / "daybreak").mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(folder / "daybreak", os.W_OK):
        raise PermissionError
    return folder


def _private_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"daybreak-files-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != user):
        raise BadInput(f"{folder} belongs to another user: set DAYBREAK_FILES_CACHE to a folder of your own")
    return folder


@lru_cache(maxsize=8)
def machine_cache(folder: Path | None = None) -> FolderBlobs:
    """The cache of this machine. One object per process, because it remembers what it has verified."""
    return FolderBlobs(folder or cache_folder())


def cached_path(cache: FolderBlobs, digest: str, name: str) -> Path | None:
    """The cached content as a file of this name, verified and touched; None if it must be fetched."""
    if not cache.touch(digest):
        return None
    try:
        return cache.path(digest, name)
    except StoreCorrupt:  # a damaged copy: the original may be well
        cache.delete(digest, datetime.max.replace(tzinfo=UTC))
        return None


def trim_machine_cache(now: datetime, limit: int = SIZE_LIMIT) -> None:
    """Delete what was not used for the longest time, until the cache is within its limit."""
    cache = machine_cache()
    before = now - KEPT_FOR
    found = sorted(cache.infos(), key=lambda info: info.touched_at)
    total = sum(info.size for info in found)
    for info in found:
        if total <= limit or info.touched_at >= before:
            break
        if cache.delete(info.digest, before):
            total -= info.size
    cache.tidy(before)
