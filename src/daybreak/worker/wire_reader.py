"""Hears the other end of the wire on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from daybreak.worker.wire import Frames

_AT_ONCE: Final = 1 << 16  # bytes


class WireReader(asyncio.BufferedProtocol):
    """`hear` gets each message, `lost` is called once nothing more will come. It reads into one buffer: a new one for
    each message, as large as the loop would make it, can cost more than all the rest of reading."""

    def __init__(
        self, decoder: msgspec.msgpack.Decoder[Any], hear: Callable[[Any], None], lost: Callable[[], None]
    ) -> None:
        self._frames = Frames(decoder)
        self._buffer = memoryview(bytearray(_AT_ONCE))
        self._hear = hear
        self._lost = lost

    def get_buffer(self, _hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, n: int) -> None:
        for message in self._frames.feed(self._buffer[:n]):
            self._hear(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._lost()
