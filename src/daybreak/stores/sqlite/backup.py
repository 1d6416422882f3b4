"""Copies a file that is in use. The copy is consistent, and gets its name only after it was checked."""

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

PAGES_PER_STEP: Final = 4096  # 16 MiB between two progress reports


def backup(
    source: Path, target: Path, *, overwrite: bool = False, on_progress: Callable[[float], None] | None = None
) -> int:
    """Copy the store as it is at one instant, and return the copy's size. Writers continue meanwhile; the copy does not
    contain what they write after the start. `overwrite` replaces a regular file only. `on_progress` gets the part that
    is done, from 0 to 1."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        _check(source, target, overwrite=overwrite)
        try:
            schema.create(partial)  # readable only by its owner, like the store itself
            _copy(source, partial, on_progress or (lambda _: None))
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
        raise StoreUnavailable(f"there is no store at {source}: check the path")
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
    # The next program that opens the copy would apply a log that lies beside it.
    if Path(f"{target}-wal").exists():
        raise BadInput(f"{target} is in use as a store (there is {target.name}-wal): choose another name")


def _refuse_special(target: Path) -> None:
    """Refuse links, FIFOs and devices: a link would be replaced and not followed, a FIFO or device would be deleted."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "device or other special file"
        if stat.S_ISLNK(mode):
            kind = "symbolic link"
        elif stat.S_ISFIFO(mode):
            kind = "FIFO"
        raise BadInput(f"{target} is a {kind}, which is never overwritten: name a regular file")


def _taken(target: Path) -> BadInput:
    return BadInput(f"{target} exists already: choose another name, or overwrite it (--force)")


def _copy(source: Path, partial: Path, on_progress: Callable[[float], None]) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE  # a reader of a write-ahead log also writes to its index
    with contextlib.closing(apsw.Connection(str(source), flags=flags)) as live:
        live.set_busy_timeout(5000)
        # One read transaction for all pages: otherwise every commit of another process would restart the copy.
        live.execute("BEGIN")
        schema.refuse_newer(live, source)
        if not live.pragma("user_version"):
            raise StoreUnavailable(f"{source} is empty: no store has been created there yet")
        with contextlib.closing(apsw.Connection(str(partial))) as copy:
            with copy.backup("main", live, "main") as pages:
                while not pages.done:
                    pages.step(PAGES_PER_STEP)
                    on_progress(1 - pages.remaining / max(pages.page_count, 1))
            copy.pragma("journal_mode", "delete")  # one file, without a log beside it
            [(found,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                problem = str(found).rpartition("\n")[2]
                raise StoreCorrupt(f"{source} is damaged ({problem}): the copy was deleted; restore an older backup")
        live.execute("ROLLBACK")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _name(partial: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite:
        _refuse_special(target)  # it may have been created since the first check
        partial.replace(target)
    else:
        try:
            os.link(partial, target)  # unlike a rename, a link never replaces a file that was created meanwhile
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            partial.rename(target)
    with contextlib.suppress(OSError):  # Windows cannot open a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
