"""Findings for `daybreak doctor`: the file system, free space, the log, permissions.

Nothing here opens the file: closing its descriptor would drop the locks that SQLite holds in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from daybreak.core.units import bytes_text
from daybreak.store.protocol import Finding, ok_finding
from daybreak.system import platform

MIN_FREE_BYTES: Final = 500 * 1024**2
MAX_LOG_BYTES: Final = 256 * 1024**2
_GONE_AT_BOOT: Final = frozenset({"tmpfs", "ramfs"})


def examine(path: Path) -> Iterator[Finding]:
    yield ok_finding(f"SQLite {apsw.sqlite_lib_version()}")
    yield from _file_system(path)
    yield from _space(path)
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > MAX_LOG_BYTES:
        yield Finding(
            f"the write-ahead log {log} has grown to {bytes_text(size)}",
            cure="look for a program with a long read transaction, or a stopped process",
        )
    if hasattr(os, "getuid") and path.is_file() and path.stat().st_mode & 0o077:
        yield Finding(
            f"other users of this machine can read {path}, including arguments and results", cure=f"chmod 600 {path}"
        )


def _file_system(path: Path) -> Iterator[Finding]:
    kind = platform.file_system(path.parent)
    if kind in platform.NETWORK_FILE_SYSTEMS:
        yield Finding(
            f"{path} is on a network file system ({kind}), where locks are not reliable",
            cure="move it to a local disk",
        )
    elif kind in _GONE_AT_BOOT:
        yield Finding(f"{path} is in memory ({kind}) and will be lost at the next boot", cure="move it to a disk")
    else:
        yield ok_finding(f"file system {kind or 'local'}")


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < MIN_FREE_BYTES:
        yield Finding(f"the disk of {path} has only {bytes_text(free)} free", cure="free some space, or move the store")
    else:
        yield ok_finding(f"{bytes_text(free)} free on the disk")
