"""Translates errors of the disk and of SQLite into Daybreak's errors, which say what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from daybreak.core.errors import DaybreakError, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_FAULTS = (apsw.Error, OSError)


class Translated:
    """A context that translates the errors raised inside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        # A TimeoutError is an OSError, but does not come from the disk: a signal handler raised it in this thread.
        if isinstance(error, _FAULTS) and not isinstance(error, TimeoutError):
            raise translate(self._path, error) from error


def translate(path: Path, error: Exception) -> Exception:
    """The error to raise instead: what happened, and what to do."""
    match error:
        case DaybreakError():
            return error
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS):
            return StoreReadOnly(f"{path} cannot be written: check its permissions and those of its folder")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return StoreFull(f"{path}: the disk is full, nothing was written; free some space and try again")
        case OSError():
            return StoreUnavailable(f"{path}: {error.strerror or error}")
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full, nothing was written; free some space and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(f"{path} cannot be written: check its permissions and those of its folder")
        case apsw.NotADBError():
            return StoreCorrupt(f"{path} is not a SQLite file: choose another path, or restore it from a backup")
        case apsw.CorruptError():
            return StoreCorrupt(f"{path} is damaged ({error}): stop its workers, then restore it from a backup")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{path} cannot be opened: check that it exists and is writable")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is locked by a program other than Daybreak: close it there")
        case apsw.IOError():
            return StoreUnavailable(f"{path}: the disk failed ({error}); nothing was written")
        case apsw.Error():
            return StoreError(f"{path}: SQLite failed ({error})")
        case _:
            return error
