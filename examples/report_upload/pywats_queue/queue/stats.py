"""The numbers of a queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class QueueStats:
    """How many items there are in each status."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    suspended: int = 0

    @property
    def active(self) -> int:
        """Items that are not finished."""
        return self.pending + self.processing + self.suspended

    @property
    def total(self) -> int:
        return self.active + self.completed + self.failed

    @property
    def success_rate(self) -> float:
        """The share of completed items among the finished ones; 0 if none is finished."""
        finished = self.completed + self.failed
        return self.completed / finished if finished else 0.0

    def to_dict(self) -> dict[str, int | float]:
        return {
            "pending": self.pending,
            "processing": self.processing,
            "completed": self.completed,
            "failed": self.failed,
            "suspended": self.suspended,
            "active": self.active,
            "total": self.total,
            "success_rate": self.success_rate,
        }
