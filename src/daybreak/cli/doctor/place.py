"""The settings, the file and the disk it lies on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daybreak import config, platform
from daybreak.cli.doctor.finding import Finding, well
from daybreak.cli.session import Session
from daybreak.cli.text import bytes_text
from daybreak.client import Client
from daybreak.errors import DaybreakError
from daybreak.model import Put

LEAST_SPACE: Final = 500 * 1024**2
LARGE_LOG: Final = 256 * 1024**2
_GONE_AT_BOOT: Final = frozenset({"tmpfs", "ramfs"})


def about_settings(session: Session) -> Iterator[Finding]:
    """Which store, where it was named, and whether an app's code names another."""
    project = session.project
    yield well(f"store {session.settings.store}")
    if project.file is not None:
        yield well(f"settings in {project.file}")
    target = session.target
    if target is None:
        return
    try:
        with session.said():
            found = getattr(session.loaded, "settings", None)
    except DaybreakError as trouble:
        yield Finding(
            f"the app {target} (from {project.origins.get('app', '')}): {trouble}", cure="mend it, or name another app"
        )
        return
    if isinstance(found, config.Settings) and found.url != session.settings.url:
        yield Finding(
            f"the app {target} names the store {found.store} in its code; commands without --app look at another one",
            cure=f'write url = "{found.path or found.url}" into daybreak.toml, and no URL into the code',
        )
    else:
        yield well(f"app {target}")


def about_file(path: Path) -> Iterator[Finding]:
    """The file system, the space on it, the log. Looks from outside only: a descriptor of the file, closed, would
    drop the locks that SQLite holds in this process."""
    yield from _file_system(path)
    yield from _space(path)
    log = Path(f"{path}-wal")
    if log.exists() and (size := log.stat().st_size) > LARGE_LOG:
        yield Finding(
            f"the write-ahead log {log} has grown to {bytes_text(size)}",
            cure="look for a program that holds the file open in a long transaction, or a process that was stopped",
        )
    if hasattr(os, "getuid") and path.exists() and path.stat().st_mode & 0o077:
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
        yield well(f"file system {kind or 'local'}")


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_SPACE:
        yield Finding(
            f"only {bytes_text(free)} are free on the disk of {path}", cure="free some space, or move the store"
        )
    else:
        yield well(f"{bytes_text(free)} free on the disk")


def about_library() -> Iterator[Finding]:
    import apsw  # noqa: PLC0415 - only where the store is a SQLite file

    yield well(f"SQLite {apsw.sqlite_lib_version()}")


async def about_writing(client: Client) -> Finding:
    """Whether the store takes a write: one is made and taken back."""
    await client.store.put([Put(kind="doctor", name="probe", value=b"{}")])
    await client.store.put([Put(kind="doctor", name="probe", value=None)])
    return well(f"the store can be read and written; {client.store.traits.durable}")
