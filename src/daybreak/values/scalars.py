"""How single values are written and read: numbers, text, dates, paths."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from daybreak.core.units import duration
from daybreak.values.codec import Codec
from daybreak.values.errors import unfit
from daybreak.values.tagged_json import HIGHEST, LOWEST, TAG, big, from_numpy, opened, plain, rich, text


class Scalar(Codec):
    """A type whose values JSON has, or a tag."""

    kind: type = object

    def __init__(self) -> None:
        super().__init__(self.kind.__name__)
        self.kinds = (self.kind,)

    def write(self, value: Any, depth: int, /) -> object:
        return plain(value if type(value) is self.kind else self.lowered(value), depth)

    def read(self, raw: Any) -> Any:
        if type(raw) is self.kind:
            return raw
        value = rich(raw)
        return value if type(value) is self.kind else self.foreign(value)

    def foreign(self, value: Any) -> Any:
        """From JSON that was not written here."""
        raise self.unfit(value)

    def lowered(self, value: Any) -> Any:
        """An equal value of exactly this type, of a subclass or a numpy scalar: an IntEnum for an int, say."""
        found = from_numpy(value)
        if type(found) is self.kind:
            return found
        if isinstance(found, self.kind):
            try:
                if (base := self.base(found)) == found:
                    return base
            except (ValueError, TypeError, ArithmeticError):
                pass  # pandas.NaT is a datetime to isinstance, and to nothing else
        raise self.unfit(value)

    def base(self, value: Any) -> Any:
        """The value of a subclass as one of this type; what it raises, or that it is not equal, is a refusal."""
        return self.kind(value)


class Nothing(Scalar):
    kind = type(None)

    def __init__(self) -> None:
        super().__init__()
        self.name = "None"

    def parse(self, given: str) -> Any:
        if given.lower() in {"null", "none"}:
            return None
        raise self.unfit(given)


class Bool(Scalar):
    kind = bool
    _WORDS: Final = {
        "true": True, "yes": True, "on": True, "1": True,
        "false": False, "no": False, "off": False, "0": False,
    }  # fmt: skip

    def parse(self, given: str) -> Any:
        if (found := self._WORDS.get(given.lower())) is None:
            raise self.unfit(given, ": write true or false")
        return found


class Int(Scalar):
    kind = int

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not int:
            value = self.lowered(value)
        return value if LOWEST <= value <= HIGHEST else big(value)

    def base(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise TypeError
        return int.__int__(value)

    def parse(self, given: str) -> Any:
        return parsed(int, given, self.name)


class Float(Scalar):
    """A whole number is welcome, if a float can hold it: 24 for a float is 24.0."""

    kind = float

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not float:
            value = self.lowered(value)
        return value if math.isfinite(value) else {TAG: ["float", repr(value)]}

    def lowered(self, value: Any) -> Any:
        found = from_numpy(value)
        return self.foreign(found) if isinstance(found, int) else super().lowered(value)

    def base(self, value: Any) -> Any:
        return float.__float__(value)

    def foreign(self, value: Any) -> Any:
        try:
            if isinstance(value, int) and not isinstance(value, bool) and float(value) == value:
                return float(value)
        except OverflowError:
            pass
        raise self.unfit(value)

    def parse(self, given: str) -> Any:
        return parsed(float, given, self.name)


class Str(Scalar):
    kind = str
    takes_any_text = True

    def write(self, value: Any, _depth: int, /) -> object:
        if type(value) is not str:
            value = self.lowered(value)
        return value if value.isascii() else text(value)

    def base(self, value: Any) -> Any:
        return str.__str__(value)

    def parse(self, given: str) -> Any:
        return given


class Worded(Scalar):
    """A type that is written with a tag, and read from the words that other languages write for it."""

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

    def base(self, value: Any) -> Any:
        return self._read(value.isoformat()) if hasattr(value, "isoformat") else self.kind(str(value))

    def foreign(self, value: Any) -> Any:
        if type(value) not in self._words:
            raise self.unfit(value)
        return parsed(self._read, value, self.name + self._hint)

    def parse(self, given: str) -> Any:
        return self.foreign(given)


class Bytes(Worded):
    """As JSON from elsewhere it is base64; typed on the command line it is the text itself."""

    takes_any_text = True

    def __init__(self, kind: type) -> None:
        super().__init__(kind, lambda given: kind(base64.b64decode(given, validate=True)), hint=" in base64")

    def base(self, value: Any) -> Any:
        return self.kind(value)

    def parse(self, given: str) -> Any:
        return self.kind(given.encode())


class PathLike(Codec):
    safe = False
    takes_any_text = True

    def __init__(self, name: str, kind: type[PurePath]) -> None:
        super().__init__(name)
        self._kind = kind
        self.kinds = (type(kind()), PurePath)  # of which all share one tag

    def write(self, value: Any, _depth: int, /) -> object:
        if not isinstance(value, PurePath):
            raise self.unfit(value)
        return {TAG: ["path", text(str(value))]}

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        if name not in {None, "path"} or type(inner) is not str:
            raise self.unfit(rich(raw))
        return self._kind(inner)

    def parse(self, given: str) -> Any:
        return self._kind(given)


class NumpyScalar(Codec):
    """Written as the number it is, read as the annotation says."""

    safe = False

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.unfit(value)
        return plain(value, depth)

    def read(self, raw: Any) -> Any:
        return parsed(self._kind, rich(raw), self.name)


def parsed(read: Callable[[Any], Any], given: Any, name: str) -> Any:
    try:
        return read(given)
    except (ValueError, TypeError, ArithmeticError):
        raise unfit(given, name) from None


SCALARS: Final[Mapping[Any, Scalar]] = {
    codec.kind: codec
    for codec in (
        Nothing(),
        Bool(),
        Int(),
        Float(),
        Str(),
        Bytes(bytes),
        Bytes(bytearray),
        Worded(datetime, datetime.fromisoformat),
        Worded(date, date.fromisoformat),
        Worded(time, time.fromisoformat),
        Worded(timedelta, duration, hint="; write '90s', '10m', '1h30m'"),
        Worded(UUID, UUID),
        Worded(Decimal, Decimal, words=(str, int)),
    )
}
