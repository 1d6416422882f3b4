"""The interface of every queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .items import DEFAULT_PRIORITY, QueueItem
from .stats import QueueStats


class BaseQueue(ABC):
    """What every queue can do."""

    @abstractmethod
    def add(
        self,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueueItem:
        """Add an item and return it."""

    @abstractmethod
    def get(self, item_id: str) -> QueueItem | None:
        """Return the item with this id; None if there is none."""

    @abstractmethod
    def update(self, item: QueueItem) -> None:
        """Make what was marked on the item true."""

    @abstractmethod
    def remove(self, item_id: str) -> bool:
        """Delete an item. False if there is none with this id."""

    @abstractmethod
    def list_pending(self) -> list[QueueItem]:
        """The items that wait, in the order in which they are processed."""

    @abstractmethod
    def list_processing(self) -> list[QueueItem]:
        """The items that somebody works on."""

    @abstractmethod
    def list_completed(self) -> list[QueueItem]:
        """The completed items that are still kept."""

    @abstractmethod
    def list_failed(self) -> list[QueueItem]:
        """The items that failed for good."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many items there are, in any status."""

    @property
    @abstractmethod
    def stats(self) -> QueueStats:
        """How many items there are in each status."""
