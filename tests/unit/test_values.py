from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.errors import NotEncodable, TooLarge
from daybreak.values import DEPTH_LIMIT, decode, encode

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    texts,
    st.binary(),
    st.decimals(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
    st.uuids(),
    st.just(Path("/tmp/a b")),  # noqa: S108 - a value, not a file
)
keys = st.one_of(texts, st.just("$"), st.just("$$"))
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=20,
)


def same(one, two) -> bool:
    """Equal, of the same types all the way down, and NaN equal to NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, float):
        return repr(one) == repr(two)
    if isinstance(one, Decimal):
        return str(one) == str(two)
    return one == two


@given(nested)
def test_nested_values_come_back_equal(value):
    assert same(decode(encode(value)), value)


@given(nested)
def test_what_is_written_is_plain_json(value):
    msgspec.json.decode(encode(value), strict=True)


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, -0.0, 1e16, 5e-324, 0.1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000,
        -(10**5000), True, 1, 1.0, "", "\0", "🌅", b"", b"\xff\0", (), [], {}, ((),), [()], {"$": 1},
        {"$": ["tuple", [1]]}, {"$": {"$": ()}}, {"$": 1, "a": 2}, {"a": {"$": ["int", "7"]}},
        Decimal("1.10"), Decimal("-0"), Decimal("NaN"), date(2026, 1, 31), time(18, 0, 0, 1),
        datetime(2026, 1, 31, 18, 0, tzinfo=UTC), timedelta(microseconds=-1), timedelta.max, UUID(int=7), Path("a/b"),
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, int) else hex(value)[:20],
)  # fmt: skip
def test_a_value_comes_back_equal_and_of_its_type(value):
    assert same(decode(encode(value)), value)


def test_a_pure_path_of_this_system_comes_back_as_an_equal_path():
    mine = PurePosixPath("a/b") if isinstance(Path(), PurePosixPath) else PureWindowsPath("a/b")
    assert decode(encode(mine)) == mine


class Point(NamedTuple):
    x: int


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), Point(1), Level.LOW, Text("a"), bytearray(b"a"), 1j, len, Exception("x"), range(3)]
)
def test_what_would_not_come_back_equal_is_refused(value):
    with pytest.raises(NotEncodable, match="would not come back equal; pass plain data"):
        encode(value)


def test_a_path_of_another_system_is_refused():
    other = PureWindowsPath("a/b") if isinstance(Path(), PurePosixPath) else PurePosixPath("a/b")
    with pytest.raises(NotEncodable, match="would not come back equal"):
        encode(other)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"rows": [1, {"cell": {1, 2}}]}, r"args\.rows\[1\]\.cell: a builtins\.set"),
        ({"pair": (1, object())}, r"args\.pair\[1\]: a builtins\.object"),
        ({"text": "\ud800"}, r"args\.text: the text holds half a surrogate pair"),
        ({"a": {7: "x"}}, r"args\.a: the key 7 is no text"),
        ({"a": {None: "x"}}, r"args\.a: the key None is no text"),
    ],
)
def test_a_refusal_names_the_path(value, path):
    with pytest.raises(NotEncodable, match=path):
        encode(value, "args")


def test_half_a_surrogate_pair_is_refused_as_a_key_too():
    with pytest.raises(NotEncodable, match="half a surrogate pair"):
        encode({"\udfff": 1})


def deep(levels: int, wrap, leaf=1):
    value = leaf
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS = [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {"$": v}]


@pytest.mark.parametrize("wrap", WRAPS, ids=["list", "tuple", "dict", "dollar"])
@pytest.mark.parametrize("leaf", [1, "a", b"a", Decimal(1), Path("a"), None], ids=repr)
def test_sixty_four_levels_are_enough_for_any_leaf_and_sixty_five_are_refused(wrap, leaf):
    assert DEPTH_LIMIT == 64
    value = deep(64, wrap, leaf)
    assert decode(encode(value)) == value
    with pytest.raises(TooLarge, match="nested deeper than 64 levels"):
        encode(wrap(value))


def test_a_value_that_holds_itself_is_refused():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(TooLarge, match="nested deeper"):
        encode(ring)
