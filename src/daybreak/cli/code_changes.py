"""Which Python and settings files of a project have changed: the operating system says when to look."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from watchfiles import Change, watch

logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs a line for every batch of changes

INTERVAL: Final = 0.5  # seconds
MAX_FILES: Final = 5000
MAX_FOLDERS: Final = 2000
_SETTINGS: Final = ("daybreak.toml", "pyproject.toml")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages"})


def looks(folder: Path) -> Iterator[bool]:
    """Yields about twice a second, and at once after a change: whether something may have changed since the last time.
    Where the system tells of no changes, that is always so."""
    while True:
        try:
            is_first = True
            for changes in watch(
                *_folders(folder), watch_filter=None, recursive=False, debounce=200, rust_timeout=int(INTERVAL * 1000),
                yield_on_timeout=True, ignore_permission_denied=True,
            ):  # fmt: skip
                yield is_first or any(_counts(os.path.basename(path)) for _, path in changes)  # noqa: PTH119
                is_first = False
                if any(change is Change.added and _is_watched(path) for change, path in changes):
                    break  # a new folder
        except (OSError, RuntimeError):  # no inotify instances are left, or the project folder was replaced
            yield True
            time.sleep(INTERVAL)


def stamps(folder: Path) -> dict[str, int]:
    """The modification times of the Python and settings files below the folder."""
    found: dict[str, int] = {}
    for parent, _, files in _walk(folder):
        for name in files:
            if _counts(name):
                path = os.path.join(parent, name)  # noqa: PTH118 - thousands of them
                with contextlib.suppress(OSError):
                    found[path] = os.stat(path).st_mtime_ns  # noqa: PTH116
        if len(found) > MAX_FILES:
            break
    return found


def changed(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """The files that were written, created or deleted."""
    return [path for path in {**before, **now} if before.get(path) != now.get(path)]


def _counts(name: str) -> bool:
    return name.endswith(".py") or name in _SETTINGS


def _is_watched(path: str) -> bool:
    name = os.path.basename(path)  # noqa: PTH119
    return not name.startswith(".") and name not in _SKIPPED and os.path.isdir(path)  # noqa: PTH112


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        yield parent, folders, files


def _folders(folder: Path) -> list[str]:
    found = []
    for parent, _, _ in _walk(folder):
        found.append(parent)
        if len(found) >= MAX_FOLDERS:
            break
    return found
