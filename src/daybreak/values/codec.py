"""How a value of one annotation is written, read, and parsed from the command line; and what has no annotation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from daybreak.core.errors import BadArguments, NotEncodable
from daybreak.values.equality import difference
from daybreak.values.errors import Refusal, short, unfit
from daybreak.values.secret import HIDDEN
from daybreak.values.tagged_json import plain, read_json, rich


class Codec:
    """Writes what its annotation means and refuses anything else; reads that, and what other languages' JSON says.

    `safe`: what is read is known to be what was written, so nobody needs to compare. `kinds`: the types that it
    writes and reads unchanged. `is_class`: its JSON does not show what it is, so a union must name it."""

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

    def parse(self, given: str) -> Any:
        """Read what was typed: JSON, unless a scalar knows better."""
        try:
            raw = read_json(given)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise self.unfit(given) from None
        return self.read(raw)

    def inner(self) -> Iterable[Codec]:
        """Who writes and reads the parts."""
        return ()

    def unfit(self, value: object, hint: str = "") -> Refusal:
        """The value is not what the annotation says. Where that says Secret, a value in its place is one too."""
        if not holds_secrets(self):
            return unfit(value, self.name + hint)
        return Refusal(BadArguments, f"{HIDDEN}, a {type(value).__name__}, is no {self.name}")

    def checked(self, value: Any, depth: int, /) -> object:
        """What to write, once it is certain that it comes back equal."""
        written = self.write(value, depth)
        if self.safe:
            return written
        try:
            found = difference(value, self.read(written))
        except Refusal as refusal:
            raise Refusal(NotEncodable, f"would not come back: {refusal.told}", refusal.path) from None
        if found is None:
            return written
        told = "would not come back equal"
        if not holds_secrets(self):
            told = f"{short(found.sent)} {told}: it would be {short(found.back)}"
        raise Refusal(NotEncodable, told, found.path)


def holds_secrets(codec: Codec) -> bool:
    seen: set[Codec] = set()
    left = [codec]
    while left:
        found = left.pop()
        if found.is_secret:
            return True
        if found not in seen:
            seen.add(found)
            left.extend(found.inner())
    return False


class Anything(Codec):
    """No annotation, or none that says more: values say themselves what they are."""

    takes_any_text = True

    def __init__(self, note: str = "") -> None:
        super().__init__("Any")
        self._note = note

    def write(self, value: Any, depth: int, /) -> object:
        try:
            return plain(value, depth)
        except Refusal as refusal:
            refusal.told += self._note
            raise

    def read(self, raw: Any) -> Any:
        return rich(raw)

    def parse(self, given: str) -> Any:
        try:
            return read_json(given)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return given


class Instance(Codec):
    """A class that is not known here, a protocol say: plain values that are instances of it."""

    def __init__(self, name: str, kind: type) -> None:
        super().__init__(name)
        self.kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if not self._is_one(value):
            raise self.unfit(value)
        return plain(value, depth)

    def read(self, raw: Any) -> Any:
        if not self._is_one(value := rich(raw)):
            raise self.unfit(value)
        return value

    def _is_one(self, value: object) -> bool:
        try:
            return isinstance(value, self.kind)
        except TypeError:  # a protocol that cannot be asked
            return True
