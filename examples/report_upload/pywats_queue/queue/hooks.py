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

    def added(self, item: QueueItem) -> None:
        _call("on_add", self.on_add, item, item.id)

    def updated(self, item: QueueItem) -> None:
        _call("on_update", self.on_update, item, item.id)

    def removed(self, item_id: str) -> None:
        _call("on_remove", self.on_remove, item_id, item_id)


def _call(name: str, hook: Callable[[Any], object] | None, told: object, item_id: str) -> None:
    if hook is None:
        return
    try:
        hook(told)
    except Exception:  # noqa: BLE001 - a hook is the caller's own code, and may raise anything
        _log.exception("hook %s failed for item %s; the item itself is stored", name, item_id)
