"""What the ledger asks of this worker: cancel, suspend, preempt or drop a delivery, through the worker's own queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from daybreak.core.errors import BadInput, StoreError
from daybreak.sqs import queue_names as names
from daybreak.sqs.messages import Request, read_request
from daybreak.sqs.queues import SqsQueues
from daybreak.sqs.set_aside import set_aside
from daybreak.store.protocol import Extended

_log = logging.getLogger("daybreak.sqs")

MAX_REQUESTS: Final = 10_000
PAUSE: Final = 1.0  # seconds after a request that failed
_REPLIES: Final = {
    "cancel": Extended(held=True, cancel=True),
    "suspend": Extended(held=True, suspend=True),
    "preempt": Extended(held=True, preempt=True),
    "drop": Extended(held=False),
}
_HELD: Final = Extended(held=True)


class ControlQueue:
    """The control queue of one worker. `on_request` is called when a request has arrived."""

    def __init__(
        self, queues: SqsQueues, worker: str, on_request: Callable[[], None], *, wait: int = names.LONG_POLL
    ) -> None:
        self._queues = queues
        self._name = names.control_queue(queues.address.prefix, worker)
        self._on_request = on_request
        self._wait = wait
        self._requests: dict[str, Request] = {}  # by nonce

    async def open(self) -> None:
        attributes = {
            "MessageRetentionPeriod": str(names.CONTROL_RETENTION),
            "ReceiveMessageWaitTimeSeconds": str(names.LONG_POLL),
        }
        await self._queues.call("create_queue", QueueName=self._name, Attributes=attributes)

    async def close(self) -> None:
        await self._queues.call("delete_queue", QueueUrl=await self._queues.url(self._name))

    def reply_for(self, nonce: str) -> Extended:
        """What a heartbeat of this delivery is answered."""
        request = self._requests.get(nonce)
        return _HELD if request is None else _REPLIES[request.what]

    def forget(self, nonce: str) -> None:
        self._requests.pop(nonce, None)

    async def run(self) -> None:
        """Receive requests, for ever. The same one may arrive repeatedly; one for an unknown delivery does nothing."""
        while True:
            try:
                await self._receive()
            except StoreError as error:
                _log.warning("%s: %s; trying again in %g s", self._name, error, PAUSE)
                await asyncio.sleep(PAUSE)

    async def _receive(self) -> None:
        messages = await self._queues.receive(self._name, wait=self._wait)
        refused = []
        for message in messages:
            try:
                request = read_request(message.body)
            except BadInput as error:
                refused.append((message, str(error)))
                continue
            if len(self._requests) < MAX_REQUESTS:
                self._requests[request.nonce] = request
        if messages:
            self._on_request()
            await set_aside(self._queues, refused)
            await self._queues.delete(messages)
