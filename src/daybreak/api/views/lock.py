"""Locks as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from daybreak.api.locks.lock_job import Waiter
from daybreak.core.model import Lease


def lock_view(waiter: Waiter) -> dict[str, Any]:
    """A holder of a lock, or a waiter for it."""
    return msgspec.to_builtins(waiter)  # type: ignore[no-any-return]


def owned_lock_view(lease: Lease, names: Sequence[str], owner: str, hold_for: timedelta) -> dict[str, Any]:
    """Locks that an owner has just taken or extended."""
    return {"locks": list(names), "owner": owner, "fence": lease.fence, "for": hold_for.total_seconds()}
