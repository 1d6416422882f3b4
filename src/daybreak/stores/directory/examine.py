"""Findings for `daybreak doctor`: the file system, free space, files that were set aside, permissions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daybreak.core.units import bytes_text, counted
from daybreak.store.protocol import Finding, ok_finding
from daybreak.system import platform

MIN_FREE_BYTES: Final = 500 * 1024**2
NAMED: Final = 5
_GONE_AT_BOOT: Final = frozenset({"tmpfs", "ramfs"})


def examine(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        return
    yield from _file_system(folder)
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        yield Finding(f"the disk of {folder} has only {bytes_text(free)} free", cure="free some space")
    else:
        yield ok_finding(f"{bytes_text(free)} free on the disk")
    yield from _set_aside(folder / "corrupt")
    if hasattr(os, "getuid") and folder.stat().st_mode & 0o077:
        yield Finding(
            f"other users of this machine can look into {folder}: the names of its files show the ids of jobs",
            cure=f"chmod 700 {folder}",
        )


def _file_system(folder: Path) -> Iterator[Finding]:
    kind = platform.file_system(folder)
    if kind in platform.NETWORK_FILE_SYSTEMS:
        yield Finding(
            f"{folder} is on a network file system ({kind}), where locks are not reliable",
            cure="move it to a local disk",
        )
    elif kind in _GONE_AT_BOOT:
        yield Finding(f"{folder} is in memory ({kind}) and will be lost at the next boot", cure="move it to a disk")
    else:
        yield ok_finding(f"file system {kind or 'local'}")


def _set_aside(corrupt: Path) -> Iterator[Finding]:
    names = sorted(path.name for path in corrupt.iterdir()) if corrupt.is_dir() else []
    if names:
        shown = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
        yield Finding(
            f"{counted(len(names), 'damaged file')} set aside in {corrupt}: {shown}",
            cure="repair them and move them back while the store is closed, or delete them",
        )
