"""The Redis protocol, by the library hiredis: packs commands and parses replies, in C. The sockets are Daybreak's own,
so that it is always known what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daybreak.core.errors import StoreUnsuitable

try:
    import hiredis as _hiredis
except ImportError:
    _hiredis = None  # type: ignore[assignment]

Command = Sequence[bytes | str | int]
_pack: Any = getattr(_hiredis, "pack_command", None)


class ErrorReply(Exception):
    """An error reply. It is returned, not raised: the caller decides what it means."""


class ProtocolError(Exception):
    """The server sent something that is not a reply."""


def require_library() -> None:
    if _pack is None:
        raise StoreUnsuitable("the Redis store needs hiredis: pip install 'daybreak[redis]'")


def pack(command: Command) -> bytes:
    return _pack(tuple(command))  # type: ignore[no-any-return]


def reader() -> Any:
    """A parser: feed it bytes, and it returns replies, or False while none is complete."""
    return _hiredis.Reader(protocolError=ProtocolError, replyError=ErrorReply)
