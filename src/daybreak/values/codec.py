"""The codec of one annotation: writes, reads and parses its values; and the codecs of values without an annotation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from daybreak.core.errors import BadArguments, DaybreakError, NotEncodable, TooLarge
from daybreak.values.equality import difference
from daybreak.values.errors import Refusal, mismatch, short_repr
from daybreak.values.secret import HIDDEN
from daybreak.values.tagged_json import TAG, from_tagged, read_json, to_tagged


class Codec:
    """Writes values of its annotation and refuses all others. Reads what it wrote, and plain JSON of other programs.

    `safe`: a value is always read as it was written, so no comparison is needed. `kinds`: the types that it writes and
    reads unchanged. `is_class`: the JSON does not show the class, so a union must write its name."""

    safe: bool = True
    kinds: tuple[type, ...] = ()
    is_class: bool = False
    is_secret: bool = False
    takes_any_text: bool = False  # on the command line

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, value: Any, depth: int, /) -> object:
        raise NotImplementedError

    def read(self, raw: Any) -> Any:
        raise NotImplementedError

    def accept(self, value: object) -> Any:
        """The value, or what its plain form means: a dict for a dataclass, a string for a date."""
        try:
            self.write(value, 1)
        except Refusal as refusal:
            if issubclass(refusal.error, TooLarge):
                raise
            return self.read(to_tagged(value, 1))
        return value

    def parse(self, text: str) -> Any:
        """Parse a value from the command line: as JSON, unless the codec overrides this."""
        try:
            raw = read_json(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise self.mismatch(text) from None
        return self.read(raw)

    def inner(self) -> Iterable[Codec]:
        """The codecs of the parts."""
        return ()

    def unwritten(self) -> Mapping[str, object]:
        """What decides a value beside what is stored of it: defaults that were left out, values of enum members."""
        return {}

    def mismatch(self, value: object, hint: str = "") -> Refusal:
        """The refusal of a value of another type. Where the annotation contains a Secret, the value is not shown."""
        if not holds_secrets(self):
            return mismatch(value, self.name + hint)
        return Refusal(BadArguments, f"{HIDDEN}, of type {type(value).__name__}, is not a valid {self.name}")

    def write_checked(self, value: Any, depth: int, /) -> object:
        """As `write`, for codecs that are not `safe`: also checks that the value is read back equal."""
        written = self.write(value, depth)
        if self.safe:
            return written
        try:
            found = difference(value, self.read(written))
        except Refusal as refusal:
            raise Refusal(NotEncodable, f"cannot be decoded again: {refusal.message}", refusal.path) from None
        if found is None:
            return written
        message = "would not be decoded equal"
        if not holds_secrets(self):
            message = f"{short_repr(found.sent)} {message}: it would be {short_repr(found.back)}"
        raise Refusal(NotEncodable, message, found.path)


def holds_secrets(codec: Codec) -> bool:
    return any(found.is_secret for found in codecs_in(codec))


def codecs_in(codec: Codec) -> Iterator[Codec]:
    """A codec and those of its parts, each once."""
    seen: set[Codec] = set()
    left = [codec]
    while left:
        found = left.pop()
        if found not in seen:
            seen.add(found)
            yield found
            left.extend(found.inner())


def written_if_possible(value: object, write: Callable[[Any, int], object] = to_tagged) -> object:
    """A value as it would be stored; of one that cannot be stored, its class."""
    try:
        return write(value, 1)
    except (Refusal, DaybreakError):
        return {TAG: ["instance", f"{type(value).__module__}.{type(value).__qualname__}"]}


class AnyCodec(Codec):
    """No annotation, or one that does not restrict the type: values are written with tags."""

    takes_any_text = True

    def __init__(self, note: str = "") -> None:
        super().__init__("Any")
        self._note = note

    def write(self, value: Any, depth: int, /) -> object:
        try:
            return to_tagged(value, depth)
        except Refusal as refusal:
            refusal.message += self._note
            raise

    def read(self, raw: Any) -> Any:
        return from_tagged(raw)

    def parse(self, text: str) -> Any:
        try:
            return read_json(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return text


class InstanceCodec(Codec):
    """A class without a codec of its own, such as a protocol: plain values that are instances of it."""

    def __init__(self, name: str, kind: type) -> None:
        super().__init__(name)
        self.kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if not self._is_one(value):
            raise self.mismatch(value)
        return to_tagged(value, depth)

    def read(self, raw: Any) -> Any:
        if not self._is_one(value := from_tagged(raw)):
            raise self.mismatch(value)
        return value

    def _is_one(self, value: object) -> bool:
        try:
            return isinstance(value, self.kind)
        except TypeError:  # a protocol that isinstance does not support
            return True
