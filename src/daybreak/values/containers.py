"""How lists, tuples, sets, dicts and unions of annotated values are written and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from daybreak.core.errors import BadArguments, TooLarge
from daybreak.values.choices import Choice
from daybreak.values.codec import Codec
from daybreak.values.errors import DEPTH_LIMIT, Refusal, step, too_deep
from daybreak.values.scalars import Nothing, Scalar
from daybreak.values.tagged_json import TAG, items, members, named_class, opened, pairs, rich


class Many(Codec):
    """Any number of one type: a list, a tuple, a set or a frozenset."""

    def __init__(self, name: str, kind: Any, item: Codec) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind
        self._item = item
        self._tag = None if kind is list else kind.__name__
        self.safe = item.safe

    def inner(self) -> Iterable[Codec]:
        return (self._item,)

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, self._kind):
            raise self.unfit(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        if isinstance(value, set | frozenset):
            return members(value, self._item.write, depth)
        written = items(value, self._item.write, depth)
        return written if self._tag is None else {TAG: [self._tag, written]}

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        if name not in {None, self._tag} or type(inner) is not list:
            raise self.unfit(rich(raw))
        found = read_items(inner, [self._item] * len(inner))
        try:
            return found if self._kind is list else self._kind(found)
        except TypeError:  # not hashable
            raise self.unfit(rich(raw)) from None


class Row(Codec):
    """A tuple of so many, each of its own type."""

    kinds = (tuple,)

    def __init__(self, name: str, parts: Sequence[Codec]) -> None:
        super().__init__(name)
        self._parts = parts
        self.safe = all(part.safe for part in parts)

    def inner(self) -> Iterable[Codec]:
        return self._parts

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, tuple) or len(value) != len(self._parts):
            raise self.unfit(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        written: list[object] = []
        try:
            for part, codec in zip(value, self._parts, strict=True):
                written.append(codec.write(part, depth + 1))
        except Refusal as refusal:
            raise refusal.at(f"[{len(written)}]") from None
        return {TAG: ["tuple", written]}

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        if name not in {None, "tuple"} or type(inner) is not list or len(inner) != len(self._parts):
            raise self.unfit(rich(raw))
        return tuple(read_items(inner, self._parts))


class Table(Codec):
    """A dict. Keys that are no texts are read from texts too, as other languages can write no others."""

    kinds = (dict,)

    def __init__(self, name: str, key: Codec, item: Codec) -> None:
        super().__init__(name)
        self._key = key
        self._item = item
        self.safe = key.safe and item.safe

    def inner(self) -> Iterable[Codec]:
        return (self._key, self._item)

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, dict):
            raise self.unfit(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        return pairs(value, self._key.write, self._item.write, depth)

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        try:
            if name == "map":
                return self._of((self._key.read(key), key, item) for key, item in inner)
            if name in {None, "dict"} and type(inner) is dict:
                return self._of((self._read_text(key), key, item) for key, item in inner.items())
        except (TypeError, ValueError):  # no pairs, or keys that cannot be keys
            pass
        raise self.unfit(rich(raw))

    def _of(self, found: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
        read: dict[Any, Any] = {}
        for key, written, item in found:
            try:
                read[key] = self._item.read(item)
            except Refusal as refusal:
                raise refusal.at(step(written)) from None
        return read

    def _read_text(self, key: str) -> Any:
        try:
            return self._key.read(key)
        except Refusal:
            return self._key.parse(key)


class OneOf(Codec):
    """A union. What the value is decides first, the order of the annotation only then."""

    def __init__(self, name: str, choices: Sequence[Codec]) -> None:
        super().__init__(name)
        # An alias of a union within a union is part of it.
        self._choices = [each for codec in choices for each in (codec.inner() if isinstance(codec, OneOf) else [codec])]
        by_kind: dict[type, list[Codec]] = {}
        for codec in self._choices:
            for kind in codec.kinds:
                by_kind.setdefault(kind, []).append(codec)
        self.kinds = tuple(by_kind)
        self.safe = all(codec.safe and codec.kinds for codec in self._choices)
        # First whoever writes this very type, then whoever takes anything, then whoever may convert it, secrets last.
        rest = sorted(self._choices, key=lambda codec: (bool(codec.kinds), codec.is_secret))
        self._order = {kind: list(dict.fromkeys([*first, *rest])) for kind, first in by_kind.items()}
        self._usual = list(dict.fromkeys(rest))
        # Beside None alone a class need not be named: whatever is not null is of it.
        alone = sum(not isinstance(codec, Nothing) for codec in self._choices) == 1
        self._named = {codec for codec in self._choices if not alone and _needs_name(codec, by_kind)}

    def inner(self) -> Iterable[Codec]:
        return self._choices

    def write(self, value: Any, depth: int, /) -> object:
        refusals: list[Refusal] = []
        for codec in self._order.get(type(value), self._usual):
            try:
                written = codec.write(value, depth)
            except Refusal as refusal:
                if issubclass(refusal.error, TooLarge):
                    raise  # whoever else looked would look as deep
                refusals.append(refusal)
            else:
                return {TAG: ["as", [codec.name, written]]} if codec in self._named else written
        raise self._summed_up(value, refusals)

    def read(self, raw: Any) -> Any:
        name, inner = opened(raw)
        candidates = self._order.get(_kind_of(name, inner), self._usual)
        if name == "as":
            label, raw = named_class(raw)
            candidates = [codec for codec in self._choices if codec.name == label]
            if label is not None and not candidates:
                raise Refusal(BadArguments, f"a {label} is no {self.name}")
        refusals: list[Refusal] = []
        for codec in candidates:
            try:
                return codec.read(raw)
            except Refusal as refusal:
                refusals.append(refusal)
        raise self._summed_up(rich(raw), refusals)

    def _summed_up(self, value: Any, refusals: list[Refusal]) -> Refusal:
        """The one refusal that says more than that the value is of another type."""
        if grave := [refusal for refusal in refusals if not issubclass(refusal.error, BadArguments)]:
            return grave[0]
        inside = [refusal for refusal in refusals if refusal.path]
        return inside[0] if len(inside) == 1 else self.unfit(value)

    def parse(self, given: str) -> Any:
        """Whoever takes any text comes last: 5 is 5 for str | int, and null is None for Path | None."""
        for codec in sorted(self._choices, key=lambda codec: codec.takes_any_text):
            with suppress(Refusal):
                return codec.parse(given)
        raise self.unfit(given)


def read_items(raws: list[Any], codecs: Sequence[Codec]) -> list[Any]:
    found: list[Any] = []
    try:
        for raw, codec in zip(raws, codecs, strict=True):
            found.append(codec.read(raw))
    except Refusal as refusal:
        raise refusal.at(f"[{len(found)}]") from None
    return found


def _needs_name(codec: Codec, by_kind: dict[type, list[Codec]]) -> bool:
    """Whether a union must say that it is this one: a class, or a holder of a type that another one holds too."""
    if isinstance(codec, Scalar | Choice):
        return False
    return codec.is_class or any(len(by_kind[kind]) > 1 for kind in codec.kinds)


def _kind_of(name: str | None, inner: Any) -> type:
    """The type that JSON with tags shows, as far as it can be seen without reading all of it."""
    if name is None:
        return type(inner)
    return _HOLDERS.get(name) or type(rich({TAG: [name, inner]}))


_HOLDERS: dict[str, type] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "map": dict,
    "as": object,
}
