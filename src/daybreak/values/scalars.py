"""Codecs of single values: numbers, strings, dates, paths."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from daybreak.core.units import duration
from daybreak.values.codec import Codec
from daybreak.values.errors import mismatch
from daybreak.values.file import File, read_file
from daybreak.values.tagged_json import (
    HIGHEST,
    LOWEST,
    TAG,
    check_text,
    from_numpy,
    from_tagged,
    split_tag,
    tag_big_int,
    to_tagged,
)


class Scalar(Codec):
    """A type with values that are plain JSON or have a tag."""

    kind: type = object

    def __init__(self) -> None:
        super().__init__(self.kind.__name__)
        self.kinds = (self.kind,)

    def write(self, value: Any, depth: int, /) -> object:
        return to_tagged(value if type(value) is self.kind else self.to_exact_type(value), depth)

    def read(self, raw: Any) -> Any:
        if type(raw) is self.kind:
            return raw
        value = from_tagged(raw)
        return value if type(value) is self.kind else self.read_foreign(value)

    def read_foreign(self, value: Any) -> Any:
        """The value for plain JSON of another program."""
        raise self.mismatch(value)

    def to_exact_type(self, value: Any) -> Any:
        """An equal value of exactly this type, from a value of a subclass (such as an IntEnum) or a numpy scalar."""
        found = from_numpy(value)
        if type(found) is self.kind:
            return found
        if isinstance(found, self.kind):
            try:
                if (downcast := self.downcast(found)) == found:
                    return downcast
            except (ValueError, TypeError, ArithmeticError):
                pass  # pandas.NaT is a datetime only for isinstance
        raise self.mismatch(value)

    def downcast(self, value: Any) -> Any:
        """The value of a subclass as one of this type. If this raises or the result is not equal, it is refused."""
        return self.kind(value)


class NoneScalar(Scalar):
    kind = type(None)

    def __init__(self) -> None:
        super().__init__()
        self.name = "None"

    def parse(self, text: str) -> Any:
        if text.lower() in {"null", "none"}:
            return None
        raise self.mismatch(text)


class BoolScalar(Scalar):
    kind = bool
    _WORDS: Final = {
        "true": True, "yes": True, "on": True, "1": True,
        "false": False, "no": False, "off": False, "0": False,
    }  # fmt: skip

    def parse(self, text: str) -> Any:
        if (found := self._WORDS.get(text.lower())) is None:
            raise self.mismatch(text, "; write true or false")
        return found


class IntScalar(Scalar):
    kind = int

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not int:
            value = self.to_exact_type(value)
        return value if LOWEST <= value <= HIGHEST else tag_big_int(value)

    def downcast(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise TypeError
        return int.__int__(value)

    def parse(self, text: str) -> Any:
        return parsed(int, text, self.name)


class FloatScalar(Scalar):
    """Accepts an integer that a float can represent exactly: 24 is read as 24.0."""

    kind = float

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not float:
            value = self.to_exact_type(value)
        return value if math.isfinite(value) else {TAG: ["float", repr(value)]}

    def to_exact_type(self, value: Any) -> Any:
        found = from_numpy(value)
        return self.read_foreign(found) if isinstance(found, int) else super().to_exact_type(value)

    def downcast(self, value: Any) -> Any:
        return float.__float__(value)

    def read_foreign(self, value: Any) -> Any:
        try:
            if isinstance(value, int) and not isinstance(value, bool) and float(value) == value:
                return float(value)
        except OverflowError:
            pass
        raise self.mismatch(value)

    def parse(self, text: str) -> Any:
        return parsed(float, text, self.name)


class StrScalar(Scalar):
    kind = str
    takes_any_text = True

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not str:
            value = self.to_exact_type(value)
        return value if value.isascii() else check_text(value)

    def downcast(self, value: Any) -> Any:
        return str.__str__(value)

    def parse(self, text: str) -> Any:
        return text


class TextScalar(Scalar):
    """A type that is written with a tag, and also read from the plain text (or number) that other programs write."""

    def __init__(
        self,
        kind: type,
        read: Callable[[Any], Any],
        *,
        words: tuple[type, ...] = (str,),
        hint: str = "",
    ) -> None:
        self.kind = kind
        super().__init__()
        self._read = read
        self._words = words
        self._hint = hint

    def downcast(self, value: Any) -> Any:
        return self._read(value.isoformat()) if hasattr(value, "isoformat") else self.kind(str(value))

    def read_foreign(self, value: Any) -> Any:
        if type(value) not in self._words:
            raise self.mismatch(value)
        return parsed(self._read, value, self.name + self._hint)

    def parse(self, text: str) -> Any:
        return self.read_foreign(text)


class BytesScalar(TextScalar):
    """Base64 in plain JSON of other programs; on the command line, the text itself."""

    takes_any_text = True

    def __init__(self, kind: type) -> None:
        super().__init__(kind, lambda text: kind(base64.b64decode(text, validate=True)), hint=" in base64")

    def downcast(self, value: Any) -> Any:
        return self.kind(value)

    def parse(self, text: str) -> Any:
        return self.kind(text.encode())


class PathCodec(Codec):
    safe = False
    takes_any_text = True

    def __init__(self, name: str, kind: type[PurePath]) -> None:
        super().__init__(name)
        self._kind = kind
        self.kinds = (type(kind()), PurePath)  # all paths have the same tag

    def write(self, value: Any, _depth: int, /) -> object:
        if not isinstance(value, PurePath):
            raise self.mismatch(value)
        return {TAG: ["path", check_text(str(value))]}

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        if name not in {None, "path"} or type(inner) is not str:
            raise self.mismatch(from_tagged(raw))
        return self._kind(inner)

    def parse(self, text: str) -> Any:
        return self._kind(text)


class FileCodec(Codec):
    """A File. On the command line, the path of a file."""

    kinds = (File,)

    def __init__(self) -> None:
        super().__init__("File")

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not File:
            raise self.mismatch(value, "; write File('path of the file')")
        return to_tagged(value, depth)

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        # A path in plain JSON is refused: it would be read on the machine that decodes it.
        if name in {None, "file"} and isinstance(inner, dict):
            with suppress(LookupError, TypeError, ValueError):
                return read_file(inner)
        raise self.mismatch(from_tagged(raw), "; write its sha256, size and name")

    def parse(self, text: str) -> Any:
        return File(text.removeprefix("@"))


class NumpyCodec(Codec):
    """A numpy scalar, written as a plain number and read as the annotated type."""

    safe = False

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.mismatch(value)
        return to_tagged(value, depth)

    def read(self, raw: Any) -> Any:
        return parsed(self._kind, from_tagged(raw), self.name)


def parsed(read: Callable[[Any], Any], text: Any, name: str) -> Any:
    try:
        return read(text)
    except (ValueError, TypeError, ArithmeticError):
        raise mismatch(text, name) from None


SCALARS: Final[Mapping[Any, Scalar]] = {
    codec.kind: codec
    for codec in (
        NoneScalar(),
        BoolScalar(),
        IntScalar(),
        FloatScalar(),
        StrScalar(),
        BytesScalar(bytes),
        BytesScalar(bytearray),
        TextScalar(datetime, datetime.fromisoformat),
        TextScalar(date, date.fromisoformat),
        TextScalar(time, time.fromisoformat),
        TextScalar(timedelta, duration, hint="; write '90s', '10m', '1h30m'"),
        TextScalar(UUID, UUID),
        TextScalar(Decimal, Decimal, words=(str, int)),
    )
}
