"""Codecs of lists, tuples, sets, dicts and unions of annotated values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from daybreak.core.errors import BadArguments, TooLarge
from daybreak.values.choices import LiteralCodec
from daybreak.values.codec import Codec
from daybreak.values.errors import DEPTH_LIMIT, Refusal, step, too_deep
from daybreak.values.scalars import NoneScalar, Scalar
from daybreak.values.tagged_json import TAG, from_tagged, split_class, split_tag, write_dict, write_items, write_set


class CollectionCodec(Codec):
    """Any number of values of one type: a list, a tuple, a set or a frozenset."""

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
            raise self.mismatch(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        if isinstance(value, set | frozenset):
            return write_set(value, self._item.write, depth)
        written = write_items(value, self._item.write, depth)
        return written if self._tag is None else {TAG: [self._tag, written]}

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        if name not in {None, self._tag} or type(inner) is not list:
            raise self.mismatch(from_tagged(raw))
        found = read_items(inner, [self._item] * len(inner))
        try:
            return found if self._kind is list else self._kind(found)
        except TypeError:  # not hashable
            raise self.mismatch(from_tagged(raw)) from None


class FixedTupleCodec(Codec):
    """A tuple of fixed length, with a type per position."""

    kinds = (tuple,)

    def __init__(self, name: str, parts: Sequence[Codec]) -> None:
        super().__init__(name)
        self._parts = parts
        self.safe = all(part.safe for part in parts)

    def inner(self) -> Iterable[Codec]:
        return self._parts

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, tuple) or len(value) != len(self._parts):
            raise self.mismatch(value)
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
        name, inner = split_tag(raw)
        if name not in {None, "tuple"} or type(inner) is not list or len(inner) != len(self._parts):
            raise self.mismatch(from_tagged(raw))
        return tuple(read_items(inner, self._parts))


class DictCodec(Codec):
    """A dict. Keys of other types than str are also read from strings, because plain JSON has only string keys."""

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
            raise self.mismatch(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        return write_dict(value, self._key.write, self._item.write, depth)

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        try:
            if name == "map":
                return self._read_pairs((self._key.read(key), key, item) for key, item in inner)
            if name in {None, "dict"} and type(inner) is dict:
                return self._read_pairs((self._read_text(key), key, item) for key, item in inner.items())
        except (TypeError, ValueError):  # not pairs, or keys that are not hashable
            pass
        raise self.mismatch(from_tagged(raw))

    def _read_pairs(self, found: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
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


class UnionCodec(Codec):
    """A union. The type of the value decides which codec is tried first, then the order of the annotation."""

    def __init__(self, name: str, choices: Sequence[Codec]) -> None:
        super().__init__(name)
        # The choices of an alias of a union belong to the outer union.
        self._choices = [
            each for codec in choices for each in (codec.inner() if isinstance(codec, UnionCodec) else [codec])
        ]
        by_kind: dict[type, list[Codec]] = {}
        for codec in self._choices:
            for kind in codec.kinds:
                by_kind.setdefault(kind, []).append(codec)
        self.kinds = tuple(by_kind)
        self.safe = all(codec.safe and codec.kinds for codec in self._choices)
        # First the codecs of exactly this type, then those of any type, then those that may convert it, secrets last.
        rest = sorted(self._choices, key=lambda codec: (bool(codec.kinds), codec.is_secret))
        self._order_by_type = {kind: list(dict.fromkeys([*first, *rest])) for kind, first in by_kind.items()}
        self._default_order = list(dict.fromkeys(rest))
        # A class whose only alternative is None needs no name: everything but null is of this class.
        alone = sum(not isinstance(codec, NoneScalar) for codec in self._choices) == 1
        self._named = {codec for codec in self._choices if not alone and _needs_name(codec, by_kind)}

    def inner(self) -> Iterable[Codec]:
        return self._choices

    def write(self, value: Any, depth: int, /) -> object:
        refusals: list[Refusal] = []
        for codec in self._order_by_type.get(type(value), self._default_order):
            try:
                written = codec.write(value, depth)
            except Refusal as refusal:
                if issubclass(refusal.error, TooLarge):
                    raise  # it is too large for every codec
                refusals.append(refusal)
            else:
                return {TAG: ["as", [codec.name, written]]} if codec in self._named else written
        raise self._most_specific(value, refusals)

    def read(self, raw: Any) -> Any:
        name, inner = split_tag(raw)
        candidates = self._order_by_type.get(_kind_of(name, inner), self._default_order)
        if name == "as":
            label, raw = split_class(raw)
            candidates = [codec for codec in self._choices if codec.name == label]
            if label is not None and not candidates:
                raise Refusal(BadArguments, f"a {label} is not a valid {self.name}")
        refusals: list[Refusal] = []
        for codec in candidates:
            try:
                return codec.read(raw)
            except Refusal as refusal:
                refusals.append(refusal)
        raise self._most_specific(from_tagged(raw), refusals)

    def _most_specific(self, value: Any, refusals: list[Refusal]) -> Refusal:
        """The refusal that says more than that the value has another type, if there is one."""
        if not_encodable := [refusal for refusal in refusals if not issubclass(refusal.error, BadArguments)]:
            return not_encodable[0]
        inside = [refusal for refusal in refusals if refusal.path]
        return inside[0] if len(inside) == 1 else self.mismatch(value)

    def parse(self, text: str) -> Any:
        """Codecs that accept any text come last: 5 is an int for str | int, and null is None for Path | None."""
        for codec in sorted(self._choices, key=lambda codec: codec.takes_any_text):
            with suppress(Refusal):
                return codec.parse(text)
        raise self.mismatch(text)


def read_items(raws: list[Any], codecs: Sequence[Codec]) -> list[Any]:
    found: list[Any] = []
    try:
        for raw, codec in zip(raws, codecs, strict=True):
            found.append(codec.read(raw))
    except Refusal as refusal:
        raise refusal.at(f"[{len(found)}]") from None
    return found


def _needs_name(codec: Codec, by_kind: dict[type, list[Codec]]) -> bool:
    """Whether a union must write the name of this choice: a class, or a container type that another choice has too."""
    if isinstance(codec, Scalar | LiteralCodec):
        return False
    return codec.is_class or any(len(by_kind[kind]) > 1 for kind in codec.kinds)


def _kind_of(name: str | None, inner: Any) -> type:
    """The type of a tagged JSON value, without reading what a container holds."""
    if name is None:
        return type(inner)
    return _CONTAINER_TYPES.get(name) or type(from_tagged({TAG: [name, inner]}))


_CONTAINER_TYPES: dict[str, type] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "map": dict,
    "as": object,
}
