"""A folder that this process has open: one book of data and one journal for all stores and event loops of the process.

The order of every change: catch up with files that could not be written before; reserve space in the journal; change
the data; write the after-images to the journal and sync it; write the files of the changed jobs. An error before the
journal is synced forgets the data and loads the folder again. An error after that changes nothing for the caller:
the journal has the change, and the files follow before the next one."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from daybreak.core.errors import OutcomeUnknown, StoreError, StoreUnavailable, StoreUnsuitable
from daybreak.core.model import State
from daybreak.core.units import span
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.faults import translate
from daybreak.stores.directory.layout import Layout
from daybreak.stores.directory.owner_lock import OwnerLock
from daybreak.stores.directory.persistence import Persistence
from daybreak.stores.directory.tracked_book import Now, TrackedBook
from daybreak.stores.kernel import moves, resource_queue
from daybreak.stores.wakeups import Wakeups
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.directory")
KEYS_FOR: Final = span(timedelta(hours=24))  # the key of a deleted job is spent for this long
RESERVED: Final = 64 * 1024  # bytes of the journal for an operation, beside the arguments and results it brings


class FolderOptions(Struct, frozen=True):
    """How a folder is used. See DirectoryStore."""

    path: Path
    layout: Layout | None = None
    delete_completed: bool = False
    queue: str = "default"

    @property
    def hidden(self) -> Path:
        """The folder of what is not a job file."""
        return self.path / ".daybreak"


class OpenFolder:
    """The data of a folder and its files. `lock` is held by whoever reads or changes the data; `anchor` is the
    store's steady time less that of `world`."""

    def __init__(self, options: FolderOptions, world: World, disk: Disk) -> None:
        self.options = options
        self.world = world
        self.lock = threading.RLock()
        self.hub = Wakeups()
        self.anchor = 0
        self.users = 0
        self._path = options.path
        self._owner_lock = OwnerLock(options.path, options.hidden / "owner.lock")
        self._persistence = Persistence(disk, options.path, options.hidden, options.layout, queue=options.queue)
        self._opened: TrackedBook | None = None
        self._is_stale = False

    # -- open and close ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder and load it."""
        try:
            self._owner_lock.take()
        except OSError as error:
            raise translate(self._path, error) from error
        try:
            self._load()
        except BaseException:
            self._owner_lock.release()
            raise

    def _load(self) -> None:
        try:
            now = self._persistence.read(self.world.wall())
            if self._opened is None:
                self.anchor = now.steady - self.world.steady()
            else:  # loaded again: time goes on as before
                now = Now(now.wall, self.anchor + self.world.steady())
            book = self._persistence.load(now)
            self._drop_completed(book, book.jobs, now)
            self._persistence.commit(book, now)
            self._persistence.checkpoint(book, now)
        except OSError as error:
            self._persistence.close()
            raise translate(self._path, error) from error
        self._opened, self._is_stale = book, False

    def close(self, now: Now) -> None:
        """Write what is still missing, and release the folder."""
        book, self._opened = self._opened, None
        try:
            if book is not None and not self._is_stale:
                self._persistence.checkpoint(book, now)
        except OSError as error:
            _log.warning("%s: %s; the next start takes what is missing from the journal", self._path, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the folder as it is, as the death of the process would."""
        self._opened = None
        self._persistence.close()
        self._owner_lock.release()

    @property
    def book(self) -> TrackedBook:
        if self._opened is None:
            raise StoreUnavailable(f"the store in {self._path} is not open: open it first")
        if self._is_stale or self._persistence.is_broken:
            self._persistence.close()
            self._load()
        return self._opened

    def suits(self, options: FolderOptions) -> bool:
        """Whether a store with these options can share this folder."""
        has_layout = options.layout in (None, self._persistence.layout)
        own = (self.options.delete_completed, self.options.queue)
        return has_layout and own == (options.delete_completed, options.queue)

    # -- changes -------------------------------------------------------------------------------------------------------

    def prepare(self, size: int, *, may_lag: bool) -> TrackedBook:
        """Make sure that a change can be written. `size` is about how many bytes it brings. One that `may_lag` is not
        refused because files of earlier ones could not be written."""
        book = self.book
        try:
            if not may_lag:
                self._persistence.catch_up(book)
            self._persistence.reserve(RESERVED + size)
        except OSError as error:
            raise translate(self._path, error) from error
        return book

    @contextlib.contextmanager
    def undone_on_error(self, book: TrackedBook) -> Iterator[None]:
        """Around a change of the data and its `commit`: after an error the folder is loaded again before it is
        used."""
        try:
            yield
        except StoreError:
            self._is_stale = True
            raise
        except Exception:
            self._is_stale = book.is_changed or bool(book.beaten)
            raise
        except BaseException:
            self._is_stale = True
            raise

    def commit(self, book: TrackedBook, now: Now) -> None:
        """Make a change durable."""
        self._drop_completed(book, book.changed, now)
        try:
            self._persistence.commit(book, now)
        except OSError as error:
            if self._persistence.withdraw():
                raise translate(self._path, error) from error
            raise OutcomeUnknown(
                f"{self._path}: {error.strerror or error}; it is not known whether the change was written"
            ) from error

    def follow(self, book: TrackedBook, now: Now) -> None:
        """After a commit: bring the files up to date."""
        self._persistence.follow(book, now)

    def _drop_completed(self, book: TrackedBook, seqs: Iterable[int], now: Now) -> None:
        completed = [seq for seq in seqs if book.jobs[seq].state is State.COMPLETED]
        if self.options.delete_completed and completed:
            tx = book.begin(now)
            for row in tx.load(completed).values():
                moves.drop(tx, row, keys_for=KEYS_FOR)
            resource_queue.offer_freed(tx)
            tx.commit()


# -- the folders of this process ---------------------------------------------------------------------------------------

_folders: dict[tuple[int, int], OpenFolder] = {}
_guard = threading.Lock()


def opened(options: FolderOptions, world: World, disk: Disk) -> OpenFolder:
    """The folder, opened by this call or by an earlier one. Every call needs its own `closed`."""
    try:
        for path in (options.path, options.hidden, options.hidden / "scratch"):
            disk.make_folder(path)
        place = _place(options)
    except OSError as error:
        raise translate(options.path, error) from error
    with _guard:
        folder = _folders.get(place)
        if folder is None:
            folder = OpenFolder(options, world, disk)
            folder.open()
            _folders[place] = folder
        elif not folder.suits(options):
            raise StoreUnsuitable(
                f"{options.path} is already open in this process (pid {os.getpid()}) with other options: use the same"
            )
        folder.users += 1
    return folder


def closed(folder: OpenFolder, now: Now) -> None:
    """Give back what `opened` returned. The last caller closes the folder."""
    with _guard:
        folder.users -= 1
        if folder.users == 0:
            forget(folder)
            with folder.lock:
                folder.close(now)


def forget(folder: OpenFolder) -> None:
    """Let the next `opened` open the folder anew."""
    for place in [place for place, known in _folders.items() if known is folder]:
        del _folders[place]


def _place(options: FolderOptions) -> tuple[int, int]:
    about = options.hidden.stat()
    return about.st_dev, about.st_ino


def _after_fork() -> None:
    """The folders belong to the parent. Closing their descriptors here does not affect its locks."""
    global _guard  # noqa: PLW0603 - a thread of the parent may hold the old one
    _guard = threading.Lock()
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
