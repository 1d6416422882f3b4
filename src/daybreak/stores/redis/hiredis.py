"""The library that speaks the protocol, hiredis: packs commands and takes replies apart, in C. Sockets are our own, so
that it is always known what was sent."""

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


class Refusal(Exception):
    """An error reply. It is a value, not raised: what it means is for the asker to say."""


class Garbled(Exception):
    """What came is no reply."""


def need_library() -> None:
    if _pack is None:
        raise StoreUnsuitable("the Redis store needs a library that is not installed: pip install 'daybreak[redis]'")


def pack(command: Command) -> bytes:
    return _pack(tuple(command))  # type: ignore[no-any-return]


def reader() -> Any:
    """Fed with bytes, gives replies; False as long as none is complete."""
    return _hiredis.Reader(protocolError=Garbled, replyError=Refusal)
