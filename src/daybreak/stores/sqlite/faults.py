"""Faults of the disk and of SQLite, as errors that say what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from daybreak.core.errors import DaybreakError, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_FAULTS = (apsw.Error, OSError)


class Translated:
    """Faults that come up inside are raised as what they mean to the caller."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        # A time-out is no fault of the disk, but of a signal handler that interrupts its thread.
        if isinstance(error, _FAULTS) and not isinstance(error, TimeoutError):
            raise translate(self._path, error) from error


def translate(path: Path, error: Exception) -> Exception:
    """What a fault of the disk or of SQLite means to the caller, and what to do."""
    match error:
        case DaybreakError():
            return error
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS):
            return StoreReadOnly(f"{path} cannot be written: check its permissions and those of its folder")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return StoreFull(f"{path}: the disk is full, nothing of this was written; free some space and ask again")
        case OSError():
            return StoreUnavailable(f"{path}: {error.strerror or error}")
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full, nothing of this was written; free some space and ask again")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(f"{path} cannot be written: check its permissions and those of its folder")
        case apsw.NotADBError():
            return StoreCorrupt(f"{path} is no SQLite file: choose another path, or restore it from a backup")
        case apsw.CorruptError():
            return StoreCorrupt(f"{path} is damaged ({error}): stop its workers and restore it from a backup")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{path} cannot be opened: check that it exists and may be written")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is held by another program that is not Daybreak: close it there")
        case apsw.IOError():
            return StoreUnavailable(f"{path}: the disk failed ({error}); nothing of this was written")
        case apsw.Error():
            return StoreError(f"{path}: SQLite could not do it ({error})")
        case _:
            return error
