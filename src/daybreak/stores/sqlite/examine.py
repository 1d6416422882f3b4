"""How a file is: its disk, its log, who may read it. Seen from outside: a descriptor of the file, closed, would drop
the locks that SQLite holds in this process."""

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

LEAST_SPACE: Final = 500 * 1024**2
LARGE_LOG: Final = 256 * 1024**2
_GONE_AT_BOOT: Final = frozenset({"tmpfs", "ramfs"})


def examine(path: Path) -> Iterator[Finding]:
    yield ok_finding(f"SQLite {apsw.sqlite_lib_version()}")
    yield from _file_system(path)
    yield from _space(path)
    log = Path(f"{path}-wal")
    if log.exists() and (size := log.stat().st_size) > LARGE_LOG:
        yield Finding(
            f"the write-ahead log {log} has grown to {bytes_text(size)}",
            cure="look for a program that holds the file open in a long transaction, or a process that was stopped",
        )
    if hasattr(os, "getuid") and path.is_file() and path.stat().st_mode & 0o077:
        yield Finding(
            f"others on this machine can read {path}, arguments and results included", cure=f"chmod 600 {path}"
        )


def _file_system(path: Path) -> Iterator[Finding]:
    kind = platform.file_system(path.parent)
    if kind in platform.NETWORK_FILE_SYSTEMS:
        yield Finding(
            f"{path} lies on a network file system ({kind}), where locks cannot be trusted",
            cure="move it to a local disk",
        )
    elif kind in _GONE_AT_BOOT:
        yield Finding(f"{path} lies in memory ({kind}): it is gone at the next boot", cure="move it to a disk")
    else:
        yield ok_finding(f"file system {kind or 'local'}")


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_SPACE:
        yield Finding(
            f"only {bytes_text(free)} are free on the disk of {path}", cure="free some space, or move the store"
        )
    else:
        yield ok_finding(f"{bytes_text(free)} free on the disk")
