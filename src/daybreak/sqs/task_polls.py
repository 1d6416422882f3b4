"""Receives task messages: the most urgent queue first while there is work, and all of them at once while there is none.

Short polls in the order of urgency cost up to one request per queue. Only when all are empty, one long poll per queue
waits. What several of them receive at once beyond the room is handed back after a moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from daybreak.core.errors import StoreError
from daybreak.sqs import queue_names as names
from daybreak.sqs.queues import BATCH, Received, SqsQueues

_log = logging.getLogger("daybreak.sqs")

PAUSE: Final = 1.0  # seconds after a request that failed


class TaskPolls:
    """`on_received` is called when a long poll received something. Visibility is in seconds."""

    def __init__(
        self, queues: SqsQueues, *, visibility: int, on_received: Callable[[], None], wait: int = names.LONG_POLL
    ) -> None:
        self._queues = queues
        self._names = names.task_queues(queues.address.prefix)
        self._visibility = visibility
        self._on_received = on_received
        self._wait = wait
        self._found: list[tuple[int, Received]] = []
        self._wanted = 0
        self._hungry = asyncio.Event()
        self._polling = asyncio.Lock()
        self.received_at = time.monotonic()

    async def take(self, most: int) -> list[Received]:
        """Up to so many messages, the most urgent first, without waiting for new ones."""
        async with self._polling:
            if len(self._found) < most:
                await self._poll_in_order(most)
            self._found.sort(key=lambda found: found[0])
            taken, self._found = self._found[:most], self._found[most:]
            self._wanted = most - len(taken)
            if self._wanted:
                self._hungry.set()
            else:
                self._hungry.clear()
            return [message for _, message in taken]

    def take_rest(self) -> list[Received]:
        """What was received and is not wanted any more."""
        rest, self._found = self._found, []
        return [message for _, message in rest]

    async def _poll_in_order(self, most: int) -> None:
        for place, name in enumerate(self._names):
            while (missing := most - len(self._found)) > 0:
                received = await self._receive(name, missing, wait=0)
                self._found += [(place, message) for message in received]
                if len(received) < min(missing, BATCH):
                    break

    async def _receive(self, name: str, most: int, *, wait: int) -> list[Received]:
        received = await self._queues.receive(name, most=most, wait=wait, visibility=self._visibility)
        if received:
            self.received_at = time.monotonic()
        return received

    async def run(self) -> None:
        """Wait for messages in every queue, as long as there is room."""
        async with asyncio.TaskGroup() as group:
            for place, name in enumerate(self._names):
                group.create_task(self._wait_for(place, name))

    async def _wait_for(self, place: int, name: str) -> None:
        while True:
            await self._hungry.wait()
            try:
                received = await self._receive(name, max(1, self._wanted // len(self._names)), wait=self._wait)
            except StoreError as error:
                _log.warning("%s: %s; trying again in %g s", name, error, PAUSE)
                await asyncio.sleep(PAUSE)
                continue
            if received:
                self._found += [(place, message) for message in received]
                self._hungry.clear()
                self._on_received()
