"""Reports as JSON, the content of `.wsjf` files."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from pywats_queue.queue.errors import QueueError

_PLAIN: Final = (dict, list, tuple, str, int, float, type(None))
_BEFORE, _AFTER = b'{"data":', b"}"  # how an item's data stands in the arguments of its job


def to_json(what: str, value: object) -> bytes:
    """A report as JSON: plain data, an object with `to_dict()` or `model_dump()`, or a dataclass."""
    try:
        plain = msgspec.to_builtins(as_plain(value), str_keys=True, enc_hook=_plain)
        return json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise QueueError(f"{what} cannot be stored as JSON: {error}") from error


def as_plain(report: object) -> Any:
    """What a report says of itself, if it says anything: a dataclass may have another form in WSJF than its fields."""
    for name in ("to_dict", "model_dump"):
        method = None if isinstance(report, type) else getattr(report, name, None)
        if callable(method):
            told = method(mode="json", by_alias=True) if name == "model_dump" else method()
            if isinstance(told, _PLAIN):  # an object that answers to every name says something else
                return told
    return report


def _plain(value: object) -> Any:
    plain = as_plain(value)
    if plain is not value:
        return plain
    raise TypeError(f"{type(value).__name__} is neither plain data, nor has it to_dict() or model_dump()")


def to_args(report: bytes) -> bytes:
    return _BEFORE + report + _AFTER


def from_args(args: bytes) -> Any:
    """The report of a job. A file that somebody wrote by hand may hold any JSON value."""
    return json.loads(args)["data"]
