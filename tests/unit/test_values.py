from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.errors import BadInput, NotEncodable, TooLarge
from daybreak.core.units import counted
from daybreak.values import DEPTH_LIMIT, Secret, decode, encode, shown
from daybreak.values.lazy import once

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    texts,
    st.binary(),
    st.binary().map(bytearray),
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
solid = leaves.filter(
    lambda value: not isinstance(value, bytearray) and not (isinstance(value, Decimal) and value.is_snan())
)
hashable = st.recursive(
    solid,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=5,
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=3),
        st.sets(hashable, max_size=3),
        st.frozensets(hashable, max_size=3),
        inner.map(Secret),
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
        return same(list(one.items()), list(two.items()))
    if isinstance(one, set | frozenset):
        return len(one) == len(two) and all(any(same(x, y) for y in two) for x in one)
    if isinstance(one, Secret):
        return same(one.reveal(), two.reveal())
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
        set(), {1, "a", None, (2, b"")}, frozenset({frozenset()}), {math.nan}, bytearray(b"\xff"), {7: "x", None: 1},
        {True: "yes", "$": "own"}, {(1, 2): {3: 4}}, {math.nan: math.nan}, Secret("x"), [Secret({"a": Secret(1)})],
    ],
    ids=lambda value: type(value).__name__,  # the order of a set is another in every process
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
    "value", [object(), Text("a"), 1j, len, Exception("x"), range(3), np.longdouble(1), np.complex128(1j)]
)
def test_what_would_not_come_back_equal_is_refused(value):
    with pytest.raises(NotEncodable, match="would not be decoded equal; pass plain data"):
        encode(value)


class Cell(msgspec.Struct):
    x: int


@pytest.mark.parametrize("value", [Point(1), Level.LOW, Cell(1)])
def test_what_an_annotation_could_carry_is_refused_with_that_hint(value):
    kind = type(value).__qualname__
    with pytest.raises(NotEncodable, match=f"would not be decoded equal .* annotate it with {kind}"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.int64(7), 7), (np.uint8(255), 255), (np.float64(0.1), 0.1), (np.float32(0.5), 0.5), (np.bool_(1), True),
        (np.float16(0.5), 0.5), (np.str_("a"), "a"), (np.bytes_(b"a"), b"a"), (np.float64("nan"), math.nan),
        (np.float32("inf"), math.inf),
    ],
)  # fmt: skip
def test_a_numpy_scalar_travels_as_the_number_it_is(value, number):
    assert same(decode(encode({"a": [value]})), {"a": [number]})


@pytest.mark.parametrize("value", [np.timedelta64(5, "ns"), np.datetime64("2026-01-01"), np.void(b"abc")])
def test_a_numpy_scalar_that_is_no_number_is_refused(value):
    with pytest.raises(NotEncodable, match="would not be decoded equal"):
        encode(value)


class Frame:
    """As a data frame looks from outside."""

    def __dataframe__(self): ...


@pytest.mark.parametrize("value", [np.zeros(3), np.array(1.0), np.zeros((2, 2))])
def test_arrays_are_refused_where_their_content_cannot_be_stored(value):
    with pytest.raises(NotEncodable, match="cannot be stored here: pass it as an argument of a task"):
        encode({"a": value}, "args")


def test_other_arrays_are_refused_with_what_to_do_instead():
    with pytest.raises(NotEncodable, match=r"args\.a: .* cannot be stored.*save it to a file and pass File\(path\)"):
        encode({"a": Frame()}, "args")


def test_a_set_is_the_same_content_in_every_process():
    code = (
        "from daybreak import values; print(values.encode({str(i) for i in range(50)} | {1, None, (2, 'x')}).decode())"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1


BERLIN = ZoneInfo("Europe/Berlin")


def test_a_datetime_of_a_named_zone_comes_back_as_the_same_instant():
    value = datetime(2026, 7, 1, 12, tzinfo=BERLIN)
    back = decode(encode(value))
    assert back == value
    assert back.utcoffset() == value.utcoffset()


@pytest.mark.parametrize("value", [datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), time(12, tzinfo=BERLIN)])
def test_a_time_whose_zone_an_offset_cannot_say_is_refused(value):
    with pytest.raises(NotEncodable, match="time zone; pass it in UTC"):
        encode(value)


def test_a_path_of_another_system_is_refused():
    other = PureWindowsPath("a/b") if isinstance(Path(), PurePosixPath) else PurePosixPath("a/b")
    with pytest.raises(NotEncodable, match="would not be decoded equal"):
        encode(other)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"rows": [1, {"cell": range(3)}]}, r"args\.rows\[1\]\.cell: a builtins\.range"),
        ({"by_number": {7: object()}}, r"args\.by_number\[7\]: a builtins\.object"),
        ({"pair": (1, object())}, r"args\.pair\[1\]: a builtins\.object"),
        ({"text": "\ud800"}, r"args\.text: the text contains an unpaired surrogate"),
        ({"a\nb": {"\ud800": object()}}, r"args\['a\\nb'\]: in a key: the text contains"),
        ({"a": {1j: "x"}}, r"args\.a: in a key: a builtins\.complex"),
    ],
)
def test_a_refusal_names_the_path(value, path):
    with pytest.raises(NotEncodable, match=path):
        encode(value, "args")


def test_half_a_surrogate_pair_is_refused_as_a_key_too():
    with pytest.raises(NotEncodable, match="unpaired surrogate"):
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


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"null", None),
        (b'[1,true,1.5,"a"]', [1, True, 1.5, "a"]),
        (b'{"$":["float","nan"]}', math.nan),
        (b'{"$":["int","-0x10000000000000000"]}', -(2**64)),
        (b'{"$":["tuple",[1,{"$":["tuple",[]]}]]}', (1, ())),
        (b'{"$":["dict",{"$":["tuple",[1]]}]}', {"$": ["tuple", [1]]}),
        (b'{"$":["datetime","2026-01-31T18:00:00+00:00"]}', datetime(2026, 1, 31, 18, tzinfo=UTC)),
        (b'{"$":["date","2026-01-31"]}', date(2026, 1, 31)),
        (b'{"$":["time","18:00:00.000001"]}', time(18, 0, 0, 1)),
        (b'{"$":["timedelta","-1"]}', timedelta(microseconds=-1)),
        (b'{"$":["uuid","00000000-0000-0000-0000-000000000007"]}', UUID(int=7)),
        (b'{"$":["decimal","1.10"]}', Decimal("1.10")),
        (b'{"$":["bytes","/wA="]}', b"\xff\0"),
        (b'{"$":["path","a/b"]}', Path("a/b")),
    ],
)
def test_what_was_stored_by_the_first_version_is_still_read_and_written_so(data, value):
    assert same(decode(data), value)
    assert encode(value) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{"$":1}', b'{"$":["new",1]}', b'{"$":["tuple",1]}', b'{"$":["map",[1]]}', b'{"$":["set",[[]]]}',
        b'{"$":[1,2]}', b'{"$":["int","x"]}', b'{"$":["bytes",7]}', b'{"$":["as",[]]}', b'{"$":["decimal","x"]}',
        b'{"$":["dict",[]]}', b'{"$":["tuple",{"$":["secret","hunter2"]}]}',
    ],
)  # fmt: skip
def test_a_tag_that_nobody_here_writes_is_refused(data):
    with pytest.raises(BadInput, match="was not written by this version of Daybreak") as refused:
        decode(data)
    assert "hunter2" not in str(refused.value)


def test_json_of_others_nested_without_end_is_refused():
    with pytest.raises(TooLarge, match="nested deeper"):
        decode(b"[" * 5000 + b"]" * 5000)


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_shows_nowhere():
    secret = Secret("hunter2")
    assert secret.reveal() == "hunter2"
    for told in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{secret!r}", "%s" % secret, repr([secret])):  # noqa: UP031
        assert "hunter2" not in told
        assert "***" in told


def test_a_secret_is_equal_by_what_it_holds():
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert {Secret("a"), Secret("a")} == {Secret("a")}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Secret([]))


def test_a_secret_can_be_copied_and_sent_to_another_process():
    secret = Secret({"key": "x"})
    assert copy.deepcopy(secret) == pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301


# -- for people ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, "x", None, True]}, {"a": [1, "x", None, True]}),
        (Secret("hunter2"), "***"),
        ({"a": [Secret({"b": "hunter2"})]}, {"a": ["***"]}),
        (datetime(2026, 1, 31, 18, tzinfo=UTC), "2026-01-31T18:00:00+00:00"),
        (timedelta(hours=1, minutes=30), "1:30:00"),
        (b"plain text", "plain text"),
        (b"\xff\0", "/wA="),
        (math.nan, "nan"),
        (2**64, str(2**64)),
        ([10**5000], [hex(10**5000)]),
        ((1, {2}), [1, [2]]),
        ({1: {Path("a"): 2}}, {"1": {"a": 2}}),
        ({"$": ["secret", "own"]}, {"$": ["secret", "own"]}),
        (Decimal("1.10"), "1.10"),
    ],
)
def test_what_is_shown_is_readable(value, told):
    assert shown(encode(value)) == told


@given(nested)
def test_anything_stored_can_be_shown_as_json(value):
    json.dumps(shown(encode(value)))


@given(st.one_of(st.binary(), nested.map(lambda value: encode(value)[:-1])))
def test_what_cannot_be_read_is_shown_without_its_content(data):
    json.dumps(shown(data))


@pytest.mark.parametrize("data", [b"{", b"[" * 5000 + b'{"$":["secret","hunter2"]}' + b"]" * 5000, b"\xff"])
def test_what_cannot_be_read_is_not_shown_at_all(data):
    assert shown(data) == f"({counted(len(data), 'byte')} that cannot be decoded)"


@pytest.mark.parametrize("data", [b'{"$":["new",{"$":["secret","hunter2"]}]}', b'{"$":[{"$":["secret","hunter2"]},1]}'])
def test_a_secret_stays_hidden_within_what_nobody_here_has_written(data):
    assert "hunter2" not in json.dumps(shown(data))


@given(nested)
def test_no_secret_is_ever_shown(value):
    told = json.dumps(shown(encode({"a": [value, Secret(["hunter2", value])]})))
    assert "hunter2" not in told


def test_an_attribute_is_made_on_first_use_and_kept():
    made = []

    class Holder:
        @once
        def thing(self) -> object:
            """What it is."""
            made.append(object())
            return made[-1]

    holder = Holder()
    assert holder.thing is holder.thing is made[0]
    assert len(made) == 1
    assert Holder.thing.__doc__ == "What it is."
    assert Holder().thing is not holder.thing


def test_threads_that_ask_for_an_attribute_together_get_the_same():
    both = threading.Barrier(2, timeout=20)

    class Holder:
        @once
        def thing(self) -> object:
            both.wait()
            return object()

    holder = Holder()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: holder.thing, range(2))
    assert one is other is holder.thing
