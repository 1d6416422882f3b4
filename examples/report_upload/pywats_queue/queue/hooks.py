"""Hooks: functions that a queue calls after a change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .items import QueueItem

_log = logging.getLogger("pywats_queue")


@dataclass
class QueueHooks:
    """Called in the thread that made the change, after it is stored. An error in a hook is logged; the change stays."""

    on_add: Callable[[QueueItem], object] | None = None
    on_update: Callable[[QueueItem], object] | None = None
    on_remove: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        """A subclass may have the hooks as methods."""
        for name in ("on_add", "on_update", "on_remove"):
            if getattr(self, name) is None and getattr(type(self), name, None) is not None:
                delattr(self, name)


def call_hook(hooks: Any, name: str, told: object, item_id: str) -> None:
    hook = getattr(hooks, name, None)
    if hook is None:
        return
    try:
        hook(told)
    except Exception:  # noqa: BLE001 - a hook is the caller's own code, and may raise anything
        _log.exception("hook %s failed for item %s; the item itself is stored", name, item_id)
