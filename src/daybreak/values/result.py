"""How one function's result is written and read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from daybreak.core.errors import BadArguments
from daybreak.values.errors import Refusal
from daybreak.values.lazy import once
from daybreak.values.tagged_json import TAG, Write, decode, opened, plain, read_json, write_json

if TYPE_CHECKING:
    from daybreak.values.codec import Codec


class Result:
    """Written by the annotation; and without it, if the function returned something else: the work is done, and the
    annotation is what was wrong. Only what would not come back equal is refused."""

    def __init__(self, annotation: Any) -> None:
        self._annotation: Callable[[], Any] = lambda: annotation

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """What this function returns. Its annotation may be a text, and is looked at on first use."""
        made = cls(Any)
        made._annotation = lambda: _returned_by(function)
        return made

    @once
    def _codec(self) -> Codec:
        from daybreak.values.annotations import Codecs  # noqa: PLC0415 - as in arguments.py

        return Codecs().of(self._annotation())

    @once
    def _write(self) -> Write:
        return self._codec.write if self._codec.safe else self._codec.checked

    def encode(self, value: Any) -> bytes:
        """NotEncodable or TooLarge, if it would not come back equal."""
        try:
            try:
                written = self._write(value, 0)
            except Refusal as refusal:
                if not issubclass(refusal.error, BadArguments):
                    raise
                written = {TAG: ["any", plain(value, 0)]}
        except Refusal as refusal:
            raise refusal.named("result") from None
        return write_json(written)

    def decode(self, data: bytes) -> Any:
        with suppress(Refusal):
            raw = read_json(data)
            if opened(raw)[0] != "any":
                return self._codec.read(raw)
        return decode(data)  # written without the annotation, or when it was another


def _returned_by(function: Callable[..., Any]) -> Any:
    from daybreak.values.hints import returned_by  # noqa: PLC0415

    return returned_by(function)
