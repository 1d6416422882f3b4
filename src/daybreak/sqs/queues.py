"""Messages in and out of SQS, in batches. Every error of the network or of the service is `StoreUnavailable`."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from msgspec import Struct

from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.sqs.address import Address

BATCH: Final = 10  # messages in one request
MAX_BATCH_BYTES: Final = 250_000  # of one request; SQS allows 256 KiB, and counts attributes too
_MISSING: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class Received(Struct, frozen=True):
    """A message as it was received. `count` is how often it was, approximately; `age` is how many seconds ago it was
    sent, by the clock of SQS."""

    queue: str
    id: str
    receipt: str
    body: str
    count: int = 1
    age: float = 0.0


class QueueMissing(StoreUnavailable):
    """The queue does not exist."""


class SqsQueues:
    """The queues of one address. `requests` counts the requests that were sent, by operation."""

    def __init__(self, address: Address, client: Any) -> None:
        self.address = address
        self.requests: Counter[str] = Counter()
        self._client = client
        self._urls: dict[str, str] = {}

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One request, under the name that aiobotocore has for it."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        self.requests[operation] += 1
        try:
            return await getattr(self._client, operation)(**parameters)  # type: ignore[no-any-return]
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING:
                raise QueueMissing(
                    f"{self.address}: a queue is missing; run `daybreak sqs init --prefix {self.address.prefix}`"
                ) from error
            raise StoreUnavailable(f"{self.address}: SQS refused {operation}: {error}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"{self.address}: SQS cannot be reached: {error}") from error

    async def url(self, name: str) -> str:
        if name not in self._urls:
            self._urls[name] = (await self.call("get_queue_url", QueueName=name))["QueueUrl"]
        return self._urls[name]

    def forget(self, name: str) -> None:
        """Look its URL up again: the queue was deleted, and may be created anew."""
        self._urls.pop(name, None)

    async def exists(self, name: str) -> bool:
        try:
            await self.url(name)
        except QueueMissing:
            return False
        return True

    # -- messages ------------------------------------------------------------------------------------------------------

    async def send(self, name: str, bodies: Sequence[str], *, delay: int = 0) -> None:
        """Send messages, in as few requests as possible. When this returns, SQS has stored all of them; after an error,
        some may be."""
        url = await self.url(name)
        for batch in _batches(bodies):
            entries = [
                {"Id": str(n), "MessageBody": body, **({"DelaySeconds": delay} if delay else {})}
                for n, body in enumerate(batch)
            ]
            reply = await self.call("send_message_batch", QueueUrl=url, Entries=entries)
            if failed := reply.get("Failed"):
                raise StoreUnavailable(f"{self.address}: SQS did not accept a message: {failed[0].get('Message')}")

    async def receive(
        self, name: str, *, most: int = BATCH, wait: int = 0, visibility: int | None = None
    ) -> list[Received]:
        reply = await self.call(
            "receive_message",
            QueueUrl=await self.url(name),
            MaxNumberOfMessages=max(1, min(most, BATCH)),
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
            **({} if visibility is None else {"VisibilityTimeout": visibility}),
        )
        now = _server_time(reply)
        return [_received(name, message, now) for message in reply.get("Messages", [])]

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete messages. A receipt that is no longer valid is no error: the message is received again, or is gone."""
        for name, batch in _by_queue(messages):
            entries = [{"Id": str(n), "ReceiptHandle": message.receipt} for n, message in enumerate(batch)]
            await self.call("delete_message_batch", QueueUrl=await self.url(name), Entries=entries)

    async def extend(self, messages: Sequence[Received], seconds: int) -> list[Received]:
        """Keep messages invisible for so long from now. Returns those that SQS refused."""
        refused: list[Received] = []
        for name, batch in _by_queue(messages):
            entries = [
                {"Id": str(n), "ReceiptHandle": message.receipt, "VisibilityTimeout": seconds}
                for n, message in enumerate(batch)
            ]
            reply = await self.call("change_message_visibility_batch", QueueUrl=await self.url(name), Entries=entries)
            refused += [batch[int(failed["Id"])] for failed in reply.get("Failed", [])]
        return refused


def _batches(bodies: Sequence[str]) -> list[list[str]]:
    batches: list[list[str]] = []
    size = 0
    for body in bodies:
        length = len(body.encode())
        if not batches or len(batches[-1]) == BATCH or size + length > MAX_BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += length
    return batches


def _by_queue(messages: Sequence[Received]) -> list[tuple[str, list[Received]]]:
    found: list[tuple[str, list[Received]]] = []
    for message in sorted(messages, key=lambda message: message.queue):
        if not found or found[-1][0] != message.queue or len(found[-1][1]) == BATCH:
            found.append((message.queue, []))
        found[-1][1].append(message)
    return found


def _server_time(reply: dict[str, Any]) -> float:
    """The time by the clock of SQS, so that the clock of this machine does not matter."""
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if date is not None:
        with contextlib.suppress(ValueError):
            return parsedate_to_datetime(date).timestamp()
    return datetime.now(UTC).timestamp()


def _received(name: str, message: dict[str, Any], now: float) -> Received:
    attributes = message.get("Attributes", {})
    return Received(
        queue=name,
        id=message.get("MessageId", ""),
        receipt=message["ReceiptHandle"],
        body=message.get("Body", ""),
        count=int(attributes.get("ApproximateReceiveCount", 1)),
        age=max(0.0, now - int(attributes.get("SentTimestamp", now * 1000)) / 1000),
    )


@functools.cache
def _session() -> Any:
    """One for all clients of this process: it reads the large description of the service once."""
    try:
        from aiobotocore.session import get_session  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError:
        raise BadInput("SQS needs aiobotocore: pip install 'daybreak[sqs]'") from None
    return get_session()


@contextlib.asynccontextmanager
async def open_queues(address: Address) -> AsyncIterator[SqsQueues]:
    """Connect by the credentials of the environment, as every AWS program does."""
    session = _session()
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    config = AioConfig(
        retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=40, max_pool_connections=50
    )
    async with session.create_client(
        "sqs", region_name=address.region, endpoint_url=address.endpoint, config=config
    ) as client:
        yield SqsQueues(address, client)
