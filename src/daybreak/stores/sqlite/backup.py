"""A copy of a file that is in use: consistent, checked, and only then given its name."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from daybreak.core.errors import BadInput, StoreCorrupt, StoreUnavailable
from daybreak.stores.sqlite import schema
from daybreak.stores.sqlite.faults import translate
from daybreak.stores.sqlite.side_files import belongs_to, sqlite_files

PAGES_PER_STEP: Final = 4096  # 16 MiB: often enough to tell how far it is


def backup(source: Path, target: Path, *, overwrite: bool = False, tell: Callable[[float], None] | None = None) -> int:
    """Copy the store as it is at one instant, and answer the copy's size. Writers go on meanwhile; what they write
    after the start is not in the copy. Of what is there, only a regular file is overwritten. `tell` hears how much is
    done, from 0 to 1."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        _check(source, target, overwrite=overwrite)
        try:
            schema.create(partial)  # readable by its owner alone, as the store itself
            _copy(source, partial, tell or (lambda _: None))
            _sync(partial)
            _name(partial, target, overwrite=overwrite)
        finally:
            for leftover in (partial, *sqlite_files(partial)):
                leftover.unlink(missing_ok=True)
    except FileExistsError:
        raise _taken(target) from None
    except (apsw.Error, OSError) as error:
        raise translate(target if isinstance(error, OSError) else source, error) from error
    return target.stat().st_size


def _check(source: Path, target: Path, *, overwrite: bool) -> None:
    if not source.is_file():
        raise StoreUnavailable(f"there is no store at {source}")
    if target.is_dir():
        raise BadInput(f"{target} is a folder: name a file inside it, such as {target / source.name}")
    if not target.parent.is_dir():
        raise BadInput(f"{target}: its folder does not exist; create {target.parent} first")
    _refuse_special(target)
    if target.exists() and target.samefile(source):
        raise BadInput(f"{target} is the store itself: name another file")
    if belongs_to(source.resolve(), target.resolve()):
        raise BadInput(f"{target} belongs to the store itself: name another file")
    if target.exists() and not overwrite:
        raise _taken(target)
    # A log that lies beside would be played into the copy by the next who opens it.
    if Path(f"{target}-wal").exists():
        raise BadInput(f"{target} is in use as a store (there is {target.name}-wal): choose another name")


def _refuse_special(target: Path) -> None:
    """A link would be replaced and not followed, and what others read from a FIFO or a device would be gone."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "symbolic link" if stat.S_ISLNK(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device or the like"
        raise BadInput(f"{target} is a {kind}, no file: it is never overwritten; name a file")


def _taken(target: Path) -> BadInput:
    return BadInput(f"{target} is there already: choose another name, or have it overwritten (--force)")


def _copy(source: Path, partial: Path, tell: Callable[[float], None]) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE  # a reader of a write-ahead log writes into its index
    with contextlib.closing(apsw.Connection(str(source), flags=flags)) as live:
        live.set_busy_timeout(5000)
        # One read transaction from first to last page: otherwise every commit of others would start the copy over.
        live.execute("BEGIN")
        schema.refuse_newer(live, source)
        if not live.pragma("user_version"):
            raise StoreUnavailable(f"{source} is empty: no store was made there yet")
        with contextlib.closing(apsw.Connection(str(partial))) as copy:
            with copy.backup("main", live, "main") as pages:
                while not pages.done:
                    pages.step(PAGES_PER_STEP)
                    tell(1 - pages.remaining / max(pages.page_count, 1))
            copy.pragma("journal_mode", "delete")  # one file, without a log beside it
            [(found,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                told = str(found).rpartition("\n")[2]
                raise StoreCorrupt(f"{source} is damaged ({told}): the copy was thrown away, restore an older one")
        live.execute("ROLLBACK")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _name(partial: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite:
        _refuse_special(target)  # it may have been made since
        partial.replace(target)
    else:
        try:
            os.link(partial, target)  # unlike a rename, it never takes the place of what someone made meanwhile
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            partial.rename(target)
    with contextlib.suppress(OSError):  # Windows has no descriptors of folders
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
