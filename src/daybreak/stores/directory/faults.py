"""Translates errors of the file system into Daybreak's errors, which say what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from daybreak.core.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable


def translate(folder: Path, error: OSError) -> StoreError:
    """The error for an operation of which nothing was written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{folder}: the disk is full, nothing was written; free some space and try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"{folder} cannot be written: {error.strerror}; check its owner and permissions")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StoreUnavailable(f"{folder} is not a folder: name a folder, which is created if it does not exist")
    return StoreUnavailable(f"{folder}: {error.strerror or error}")
