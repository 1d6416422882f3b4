"""What a bridge needs of a message broker: receive many, acknowledge, dead-letter, publish."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.text import first_line, safe
from daybreak.core.units import counted

REASON: Final = "daybreak-reason"
TOPIC: Final = "daybreak-topic"
POSITION: Final = "daybreak-position"
ID: Final = "daybreak-id"
LEFT_OUT: Final = "daybreak-left-out"
MAX_REASON: Final = 500
MAX_ID: Final = 200


class ChannelError(Exception):
    """The broker cannot be reached, or refused something. Whoever sees it opens a new channel and tries again."""


class MessageTooLarge(ChannelError):
    """The broker takes no message of this size."""


class Topics(Struct, frozen=True, kw_only=True):
    """The topics of a bridge. Every process of one `group` gets its share of the messages of `incoming`."""

    group: str
    incoming: str = ""
    outgoing: str = ""
    dead: str = ""


class Message(Struct, frozen=True, kw_only=True):
    """A message that was received. `id` is the one that its sender gave it, and `position` says where in its topic it
    stands: neither changes when the broker delivers the message once more. `receipt` is what the channel needs to
    acknowledge it."""

    body: bytes
    id: str | None = None
    position: str | None = None
    headers: Mapping[str, str] = {}
    receipt: Any = None


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to publish. Messages with the same `key` keep their order where a topic has several parts."""

    body: bytes
    id: str
    key: str = ""
    headers: Mapping[str, str] = {}
    content_type: str = "application/json"


class Channel(ABC):
    """One connection to a broker, for one event loop. It does not reconnect: after a ChannelError, open a new one. What
    was received and not acknowledged is delivered again, to this or to another process of the group."""

    extra: ClassVar[str]

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the incoming topic if it is missing. The group starts with the oldest message."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. Never raises."""

    @abstractmethod
    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        """Up to `limit` messages, or none if there is none within `wait`."""

    @abstractmethod
    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Messages of this channel need not be delivered again. If this is lost, they are."""

    @abstractmethod
    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        """Publish to a topic, which is created if it is missing. Returns when the broker has confirmed every message.
        If it raises, some of them may be published."""

    async def hold(self, messages: Sequence[Message]) -> None:  # noqa: B027 - most brokers need nothing
        """Messages of this channel are still being worked on. Called every few seconds."""

    async def dead_letter(self, topic: str, message: Message, reason: str, source: str) -> None:
        """Publish a message to a topic, unchanged but for the reason in its headers; then acknowledge it. If the broker
        does not take it with the reason, because it is too large, the letter has no body: it must not block all
        messages behind it."""
        notes = {TOPIC: source, REASON: header_text(reason), POSITION: message.position or "", ID: message.id or ""}
        notes = {name: text for name, text in notes.items() if text}
        letter = Outgoing(
            body=message.body,
            id=_letter_id(message),
            headers={**message.headers, **notes},
            content_type="application/octet-stream",
        )
        try:
            await self.publish(topic, [letter])
        except MessageTooLarge:
            left_out = {LEFT_OUT: f"body of {counted(len(message.body), 'byte')}"}
            notes = {name: first_line(text, MAX_REASON) for name, text in notes.items()}
            await self.publish(topic, [replace(letter, body=b"", headers={**notes, **left_out})])
        await self.acknowledge([message])


def _letter_id(message: Message) -> str:
    """RabbitMQ takes ids of 255 bytes."""
    identity = message.id or message.position or ""
    if len(identity.encode("utf-8", "surrogatepass")) > MAX_ID:
        identity = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"dead {identity}"


def header_text(text: str) -> str:
    """A text as it can be in a header of every broker: one line of ASCII."""
    return safe(first_line(text, MAX_REASON)).encode("ascii", "backslashreplace").decode()


@contextlib.contextmanager
def translated(*kinds: type[BaseException]) -> Iterator[None]:
    """Raise errors of these kinds, which are those of a broker's library, as ChannelError."""
    errors: tuple[type[BaseException], ...] = (*kinds, OSError, TimeoutError)
    try:
        yield
    except ChannelError:
        raise
    except errors as error:
        raise ChannelError(f"{type(error).__name__}: {first_line(str(error)) or 'no details'}") from error
