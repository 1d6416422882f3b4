"""The files beside a database: those of SQLite, and one folder of ours.

`daybreak.db-wal` and `daybreak.db-shm` are SQLite's log and its index: they hold committed jobs and belong to the
database. `daybreak.db-locks/` holds nothing that lasts: the file of the write lock, and the sockets by which processes
wake one another. It may be deleted while no program has the database open."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SQLITE_SUFFIXES: Final = ("-wal", "-shm", "-journal")


def locks_folder(database: Path) -> Path:
    return database.with_name(database.name + "-locks")


def write_lock_file(database: Path) -> Path:
    return locks_folder(database) / "write.lock"


def wake_folder(database: Path) -> Path:
    return locks_folder(database) / "wake"


def belongs_to(database: Path, path: Path) -> bool:
    """Whether SQLite or this store keeps a file of its own at this path."""
    folder = locks_folder(database)
    return path == folder or folder in path.parents or path in sqlite_files(database)


def sqlite_files(database: Path) -> list[Path]:
    return [database.with_name(database.name + suffix) for suffix in SQLITE_SUFFIXES]
