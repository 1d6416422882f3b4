"""Which leases have been reported: a report may be repeated, and must not be counted again."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import Lease

REMEMBERED: Final = 10_000  # at least


class ReportedLeases:
    """The latest of them, in two halves: the older is forgotten at once when the newer is full."""

    def __init__(self) -> None:
        self._newer: set[tuple[int, int]] = set()
        self._older: set[tuple[int, int]] = set()

    def __contains__(self, lease: Lease) -> bool:
        key = (lease.seq, lease.fence)
        return key in self._newer or key in self._older

    def add(self, lease: Lease) -> None:
        if len(self._newer) >= REMEMBERED:
            self._older, self._newer = self._newer, set()
        self._newer.add((lease.seq, lease.fence))
