"""Arrays and data frames as arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from daybreak import values
from daybreak.errors import BadArguments, NotEncodable
from daybreak.values.file import collecting, contents_in, opening


@dataclass
class Signal:
    name: str
    samples: np.ndarray


def untyped(a): ...


def typed(a: np.ndarray | pd.DataFrame | pl.DataFrame): ...


def nested(a: dict[str, list[Any]]): ...


def in_class(a: Signal): ...


def round_trip(function, value):
    arguments = values.Arguments(function, context=False)
    with collecting() as contents:
        data = arguments.encode((value,), {})
    assert len(data) < 500  # the bytes are elsewhere
    assert contents_in(data) == set(contents)
    with opening(lambda file: file, lambda digest: contents[digest].data):
        return arguments.decode_named(data)["a"]


ARRAYS = [
    np.zeros((100, 3)),
    np.arange(10, dtype=">i2"),
    np.array(3.5),
    np.array([]),
    np.array([np.nan, np.inf, -0.0]),
    np.array(["a", "äöü"]),
    np.array(["2026-11-18"], dtype="datetime64[D]"),
    np.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")]),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array([True, False]),
    np.array([1 + 2j]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
@pytest.mark.parametrize("function", [untyped, typed])
def test_an_array_comes_back_equal(array, function):
    back = round_trip(function, array)
    assert type(back) is np.ndarray
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


FRAME = pd.DataFrame(
    {
        "vin": [10.0, np.nan],
        "n": [1, 2],
        "name": ["a", None],
        "at": pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True),
    },
    index=pd.Index(["x", "y"], name="point"),
)


@pytest.mark.parametrize("function", [untyped, typed])
def test_a_frame_of_pandas_comes_back_equal(function):
    pd.testing.assert_frame_equal(round_trip(function, FRAME), FRAME)
    plain = FRAME.reset_index(drop=True)
    pd.testing.assert_frame_equal(round_trip(function, plain), plain)


@pytest.mark.parametrize("function", [untyped, typed])
def test_a_frame_of_polars_comes_back_equal(function):
    frame = pl.DataFrame({"vin": [10.0, float("nan"), None], "names": [["a"], [], None], "n": [1, 2, 3]})
    back = round_trip(function, frame)
    assert back.schema == frame.schema
    assert back.equals(frame, null_equal=True)


def test_they_may_be_nested():
    back = round_trip(nested, {"a": [np.arange(3), "text"], "b": [np.arange(3)]})
    np.testing.assert_array_equal(back["b"][0], np.arange(3))
    signal = round_trip(in_class, Signal("v", np.array([1.0, np.nan])))
    np.testing.assert_array_equal(signal.samples, [1.0, np.nan])


def test_equal_arrays_are_equal_content():
    encoded = []
    for _ in range(2):
        with collecting():
            encoded.append(values.Arguments(untyped, context=False).encode((np.arange(5.0),), {}))
    assert encoded[0] == encoded[1]
    assert values.shown(encoded[0])["a"]["what"] == "numpy array float64 5"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.array([{}, None], dtype=object), "Python objects"),
        (np.ma.masked_array([1, 2], [True, False]), "cannot be stored"),
        (pd.Series([1, 2]), "cannot be stored"),
        (pd.DataFrame({"a": [object()]}), "would not be decoded equal"),
        (pd.DataFrame({"a": [(1, 2)]}), "would not be decoded equal"),
        (pl.DataFrame({"a": [object()]}), "Python objects"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_equal_is_refused(value, says):
    with collecting(), pytest.raises(NotEncodable, match=rf"args\.a: .*{says}"):
        values.Arguments(untyped, context=False).encode((value,), {})


def test_an_array_for_another_type_is_refused():
    def number(a: float): ...

    with collecting(), pytest.raises(BadArguments, match="a ndarray is not a valid float"):
        values.Arguments(number, context=False).encode((np.zeros(3),), {})
