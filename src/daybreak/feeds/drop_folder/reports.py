"""Entries that were left alone: each is reported once, with the reason."""

from __future__ import annotations

import logging
from typing import Final

from daybreak.core.text import safe

_log = logging.getLogger("daybreak.watch")

REMEMBERED: Final = 10_000
SHOWN: Final = 20


class Reports:
    """What one watcher has left alone. `add` is called from threads, too."""

    def __init__(self, watch: str) -> None:
        self._watch = watch
        self._reasons: dict[str, str] = {}
        self.count = 0

    def add(self, path: str, why: str) -> None:
        """Say once that an entry is left alone, and why."""
        if self._reasons.get(path) == why:
            return
        if len(self._reasons) >= REMEMBERED:
            self._reasons.clear()
        self._reasons[path] = why
        self.count += 1
        _log.warning("watch %s: %s is left alone: %s", safe(self._watch), safe(path), safe(why))

    def last(self) -> tuple[tuple[str, str], ...]:
        """The latest ones, safe to show."""
        found = list(self._reasons.items())[-SHOWN:]
        return tuple((safe(path)[:300], safe(why)[:300]) for path, why in found)
