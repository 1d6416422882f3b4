"""The result of a function, encoded by its return annotation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from daybreak.core.errors import BadArguments
from daybreak.values.errors import Refusal
from daybreak.values.file import checked_digest, described_in, write_content
from daybreak.values.lazy import once
from daybreak.values.tagged_json import TAG, Write, decode, read_json, split_tag, to_tagged, write_json

if TYPE_CHECKING:
    from daybreak.values.codec import Codec

SPILLED: Final = "file result"
SPILL_ABOVE: Final = 64 * 1024  # bytes of an encoded result
_SPILL_MARK: Final = b'{"$":["file result",'


class Result:
    """Written by the annotation, or with tags if the function returned another type: the work is done, and only the
    annotation is wrong. A result that would not be decoded equal is refused."""

    def __init__(self, annotation: Any) -> None:
        self._annotation: Callable[[], Any] = lambda: annotation

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """The result of this function. Its annotation may be a string, and is read on first use."""
        result = cls(Any)
        result._annotation = lambda: _return_annotation(function)
        return result

    @once
    def _codec(self) -> Codec:
        from daybreak.values.annotations import Codecs  # noqa: PLC0415 - as in arguments.py

        return Codecs().of(self._annotation())

    @once
    def _write(self) -> Write:
        return self._codec.write if self._codec.safe else self._codec.write_checked

    def encode(self, value: Any) -> bytes:
        """Raises NotEncodable or TooLarge if the result would not be decoded equal."""
        try:
            try:
                written = self._write(value, 0)
            except Refusal as refusal:
                if not issubclass(refusal.error, BadArguments):
                    raise
                written = {TAG: ["any", to_tagged(value, 0)]}
        except Refusal as refusal:
            raise refusal.as_error("result") from None
        return write_json(written)

    def accept(self, value: object) -> Any:
        """A result that comes from outside, converted to the annotated type: it may be in its plain form, as in JSON of
        other programs. Raises BadArguments if it is not a valid result."""
        try:
            return self._codec.accept(value)
        except Refusal as refusal:
            raise refusal.as_error("result") from None

    def decode(self, data: bytes) -> Any:
        with suppress(Refusal):
            raw = read_json(data)
            if split_tag(raw)[0] != "any":
                return self._codec.read(raw)
        return decode(data)  # written with tags, or by an earlier annotation


def spilled(encoded: bytes) -> bytes:
    """What is stored of a large result: the digest of its encoded form, and those of what it refers to itself."""
    described = write_content(encoded, "a large result")
    holds = [{TAG: ["file", content]} for content in described_in(encoded)]
    return write_json({TAG: [SPILLED, {**described, "holds": holds} if holds else described]})


def spilled_digest(encoded: bytes) -> str | None:
    """The digest of a large result that is stored elsewhere; None if this is the result itself."""
    if not encoded.startswith(_SPILL_MARK):
        return None
    with suppress(Refusal, LookupError, TypeError, ValueError, msgspec.DecodeError):
        return checked_digest(split_tag(read_json(encoded))[1])
    return None


def _return_annotation(function: Callable[..., Any]) -> Any:
    from daybreak.values.hints import return_annotation  # noqa: PLC0415

    return return_annotation(function)
