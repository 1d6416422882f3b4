"""Wake-ups when something changes in a folder. They only make it quick: the scan finds everything without them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from watchfiles import awatch

from daybreak.core.text import safe
from daybreak.feeds.drop_folder.entry_name import SIDECAR, priority_folders
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.watch")
logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs a line for every batch of changes

LIMIT: Final = 20_000  # paths that are kept between two looks; if there are more, the next look is a scan
TRY_AGAIN_EVERY: Final = timedelta(minutes=5)
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "vboxsf", "vmhgfs"})


class Arrivals:
    """Collects the paths that changed. `is_polling` says that nobody tells, so that scans must be frequent."""

    def __init__(self, folder: Path, marker: str | None, wake: Callable[[], None], world: World) -> None:
        self._folder = folder
        self._marker = marker
        self._wake = wake
        self._world = world
        self._paths: set[str] = set()
        self._too_many = False
        self.is_polling = True

    def take(self) -> set[str] | None:
        """The paths that changed since the last call, relative to the folder; None if there were too many."""
        found, self._paths = self._paths, set()
        if self._too_many:
            self._too_many = False
            return None
        return found

    async def run(self) -> None:
        """Collect until cancelled. If the system cannot tell of changes, say so once, and try again now and then."""
        said = False
        while True:
            reason = "its mount is shared with other machines" if is_remote(self._folder) else ""
            if not reason:
                try:
                    await self._follow()
                    reason = "the folder was replaced"
                except Exception as error:  # noqa: BLE001 - whatever is wrong with notifications, polling works
                    reason = str(error)
            self.is_polling = True
            self._wake()
            if not said:
                said = True
                _log.info("folder %s is polled: %s", safe(str(self._folder)), safe(reason))
            await self._world.sleep(TRY_AGAIN_EVERY)

    async def _follow(self) -> None:
        paths = [self._folder, *self._priority_folders()]
        async for changes in awatch(
            *paths, watch_filter=None, debounce=200, step=20, recursive=False, ignore_permission_denied=True,
            rust_timeout=1000, yield_on_timeout=True,
        ):  # fmt: skip
            if self.is_polling:
                self.is_polling = False
                self._too_many = True  # what came before the first wake-up is found by a scan
                self._wake()
            for _, path in changes:
                self._add(path)
            if changes:
                self._wake()
            if any(os.path.basename(path).lower() in priority_folders() for _, path in changes):  # noqa: PTH119
                return

    def _priority_folders(self) -> list[Path]:
        found = [self._folder / name for name in os.listdir(self._folder) if name.lower() in priority_folders()]  # noqa: PTH208
        return [path for path in found if path.is_dir() and not path.is_symlink()]

    def _add(self, path: str) -> None:
        relative = os.path.relpath(path, self._folder)
        for suffix in (SIDECAR, self._marker):
            if suffix and relative.endswith(suffix):
                relative = relative.removesuffix(suffix)
        if len(self._paths) >= LIMIT:
            self._paths.clear()
            self._too_many = True
        if not self._too_many:
            self._paths.add(relative)


def is_remote(folder: Path) -> bool:
    """Whether the folder is on a network mount or in user space. Linux tells nobody of changes that others make
    there."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        path = str(folder.resolve())
    except OSError:
        return False
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        if len(point) >= len(best) and (path == point or path.startswith(point.rstrip("/") + "/")):
            best, kind = point, after.split(" ")[0]
    return kind in _REMOTE or kind.startswith("fuse")
