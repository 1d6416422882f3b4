"""The upload service. In pyWATS this is `pywats_client.service`."""

from __future__ import annotations

from .pending import AsyncPendingQueue, AsyncPendingQueueState

__all__ = ["AsyncPendingQueue", "AsyncPendingQueueState"]
