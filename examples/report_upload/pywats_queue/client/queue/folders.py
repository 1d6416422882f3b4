"""The folders that queues of this process use: one store for each, whatever the number of queues on it."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path

from daybreak.stores.directory import WATS, DirectoryStore
from pywats_queue.queue.item_store import ItemStore

_guard = threading.Lock()
_folders: weakref.WeakValueDictionary[str, Folder] = weakref.WeakValueDictionary()


class Folder:
    """A folder of items. The queues on it share one store; the folder is released when the last of them is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._release: weakref.finalize[[], Folder] | None = None
        self.items: ItemStore | None = None

    def load(self, *, delete_completed: bool) -> ItemStore:
        """Read the folder as the start of a program does: what queues of this process were processing is pending again,
        with its attempt counted, and files that others wrote or renamed are taken over."""
        with self._lock:
            self.close()
            items = ItemStore(DirectoryStore(self._path, layout=WATS, delete_completed=delete_completed))
            items.open()
            self._release = weakref.finalize(self, items.close)
            items.recover()
            self.items = items
            return items

    def close(self) -> None:
        with self._lock:
            self.items = None
            if self._release is not None:
                self._release()


def folder_of(path: str | os.PathLike[str]) -> Folder:
    """The folder, shared with the other queues of this process that use it."""
    place = Path(path).expanduser().resolve()
    with _guard:
        folder = _folders.get(str(place))
        if folder is None:
            folder = _folders[str(place)] = Folder(place)
        return folder
