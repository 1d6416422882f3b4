"""Reads messages from a socket on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from daybreak.worker.wire import Frames

_BUFFER_BYTES: Final = 1 << 16


class WireReader(asyncio.BufferedProtocol):
    """Calls `on_message` for each message and `on_disconnect` once, after the last one.

    It reads into one buffer: allocating a new one per read, as asyncio does by default, can cost more than the rest of
    the read."""

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[Any],
        on_message: Callable[[Any], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._frames = Frames(decoder)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._on_message = on_message
        self._on_disconnect = on_disconnect

    def get_buffer(self, _hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, n: int) -> None:
        for message in self._frames.feed(self._buffer[:n]):
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._on_disconnect()
