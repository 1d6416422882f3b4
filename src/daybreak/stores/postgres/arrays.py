"""Lists in PostgreSQL's binary array format: encoded in one pass, with an explicit type instead of a guessed one.

`Bigints([1, None])` is a parameter of type bigint[]."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, ClassVar, Self

from psycopg.adapt import AdaptersMap, Buffer, Dumper
from psycopg.pq import Format

_header = Struct(">iiiii").pack
_length = Struct(">i").pack
_NULL = _length(-1)


class Array(bytes):
    """An encoded list. `oid` is the type of the array, `element` that of its items."""

    oid: ClassVar[int]
    element: ClassVar[int]

    def __new__(cls, values: Sequence[Any]) -> Self:
        if not values:
            return bytes.__new__(cls, _header(0, 0, cls.element, 0, 0)[:12])
        nulls = None in values
        return bytes.__new__(cls, _header(1, nulls, cls.element, len(values), 1) + cls.encode(values, nulls))

    @classmethod
    def encode(cls, values: Sequence[Any], nulls: bool) -> bytes:
        raise NotImplementedError


def _fixed_size(code: str, size: int) -> Any:
    pack = Struct(f">i{code}").pack

    def encode(cls: type[Array], values: Sequence[Any], nulls: bool) -> bytes:  # noqa: ARG001
        if nulls:
            return b"".join([_NULL if value is None else pack(size, value) for value in values])
        return b"".join([pack(size, value) for value in values])

    return classmethod(encode)


class Bigints(Array):
    oid, element, encode = 1016, 20, _fixed_size("q", 8)


class Ints(Array):
    oid, element, encode = 1007, 23, _fixed_size("i", 4)


class Smallints(Array):
    oid, element, encode = 1005, 21, _fixed_size("h", 2)


class Floats(Array):
    oid, element, encode = 1022, 701, _fixed_size("d", 8)


class Bools(Array):
    oid, element, encode = 1000, 16, _fixed_size("?", 1)


class Blobs(Array):
    oid, element = 1001, 17

    @classmethod
    def encode(cls, values: Sequence[bytes | None], nulls: bool) -> bytes:  # noqa: ARG003
        return b"".join([_NULL if value is None else _length(len(value)) + value for value in values])


class Texts(Array):
    oid, element = 1009, 25

    @classmethod
    def encode(cls, values: Sequence[str | None], nulls: bool) -> bytes:
        if nulls:
            return Blobs.encode([None if value is None else value.encode() for value in values], nulls)
        return Blobs.encode([value.encode() for value in values], nulls)  # type: ignore[union-attr]


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> Buffer:
        return obj


def register(adapters: AdaptersMap) -> None:
    for kind in (Bigints, Ints, Smallints, Floats, Bools, Blobs, Texts):
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.oid}))
