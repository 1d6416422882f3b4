"""One upload queue at a time works on a folder, over all processes of the machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from daybreak.system import platform
from pywats_queue.queue.errors import QueueError

_BYTE: Final = 0
_guard = threading.Lock()
_taken: set[str] = set()  # a process does not see its own record locks


class FolderLock:
    """A record lock on a file in the folder. The kernel releases it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> None:
        """QueueError, naming the holder, if another queue works on the folder."""
        with _guard:
            if str(self._folder.resolve()) in _taken:
                raise QueueError(f"another queue of this process works on {self._folder}: stop it first")
            descriptor = os.open(self._folder / ".pywats_queue.lock", os.O_RDWR | os.O_CREAT, 0o600)
            if not platform.lock_byte(descriptor, _BYTE, wait=False):
                holder = platform.lock_holder(descriptor, _BYTE)
                os.close(descriptor)
                named = "another process" if holder is None else f"process {holder}"
                raise QueueError(f"a queue of {named} works on {self._folder}: stop it first")
            self._descriptor = descriptor
            _taken.add(str(self._folder.resolve()))

    def release(self) -> None:
        with _guard:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)
                _taken.discard(str(self._folder.resolve()))
