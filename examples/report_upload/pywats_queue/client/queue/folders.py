"""The folders that queues of this process use: one store for each, whatever the number of queues on it.

A folder is released when its last queue is garbage. The garbage collector may run anywhere, also in the midst of a call
that holds locks of the store, so a thread of its own closes the store then."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from pathlib import Path

from daybreak.stores.directory import WATS, DirectoryStore
from pywats_queue.queue.errors import QueueError
from pywats_queue.queue.item_store import ItemStore

_guard = threading.Lock()
_folders: weakref.WeakValueDictionary[str, Folder] = weakref.WeakValueDictionary()
_open: set[ItemStore] = set()
_closing: set[threading.Thread] = set()


class Folder:
    """A folder of items, which the queues on it share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._release: weakref.finalize[[ItemStore], Folder] | None = None
        self.items: ItemStore | None = None

    def load(self, *, delete_completed: bool) -> ItemStore:
        """Read the folder as the start of a program does: what queues of this process were processing is pending again,
        with its attempt counted, and files that others wrote or renamed are taken over."""
        with self._lock:
            self.close()
            items = ItemStore(DirectoryStore(self._path, layout=WATS, delete_completed=delete_completed))
            items.open()
            _open.add(items)
            self._release = weakref.finalize(self, _close_later, items)
            self._release.atexit = False
            items.recover()
            self.items = items
            return items

    def close(self) -> None:
        with self._lock:
            self.items = None
            released = None if self._release is None else self._release.detach()
            if released is not None:
                [items] = released[2]
                _close(items)


def folder_of(path: str | os.PathLike[str]) -> Folder:
    """The folder, shared with the other queues of this process that use it."""
    wait_until_closed()
    place = Path(path).expanduser().resolve()
    with _guard:
        folder = _folders.get(str(place))
        if folder is None:
            folder = _folders[str(place)] = Folder(place)
        return folder


def wait_until_closed() -> None:
    """Wait until the folders of queues that are garbage are released."""
    for thread in list(_closing):
        thread.join()
        _closing.discard(thread)


def _close_later(items: ItemStore) -> None:
    thread = threading.Thread(target=_close, args=(items,), name="close a queue folder")
    _closing.add(thread)
    thread.start()


def _close(items: ItemStore) -> None:
    _open.discard(items)
    items.close()


@atexit.register
def _close_all() -> None:
    for items in list(_open):
        with contextlib.suppress(QueueError):  # the journal has everything
            _close(items)
