"""The points of a sweep."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from daybreak.core.errors import BadInput
from daybreak.runs.designs import design_of
from daybreak.runs.grid_text import parse_grid, parse_number
from daybreak.runs.samples import Choice, LatinHypercube, LogUniform, MonteCarlo, Normal, Uniform

# -- grid --------------------------------------------------------------------------------------------------------------


def test_a_grid_has_every_combination_in_order_and_the_last_name_varies_fastest():
    design = design_of({"vin": [10, 12], "duty": (0.1, 0.2), "model": "buck.plecs"}, fixed={"weights": [1, 2]})
    assert design.columns == ("vin", "duty")
    assert design.fixed == {"model": "buck.plecs", "weights": [1, 2]}
    assert len(design) == 4
    assert [(point["vin"], point["duty"]) for point in design] == [(10, 0.1), (10, 0.2), (12, 0.1), (12, 0.2)]
    assert all(point["weights"] == [1, 2] for point in design)
    assert list(design) == list(design)


def test_ranges_and_arrays_vary_and_their_values_are_plain_numbers():
    design = design_of({"a": range(3), "b": np.linspace(0, 1, 3), "c": np.float64(7), "d": pl.Series([1, 2])})
    assert design.columns == ("a", "b", "d")
    assert [type(value) for value in next(iter(design)).values()] == [np.float64, int, float, int]
    assert len(design) == 18


@pytest.mark.parametrize("value", ["text", {"a": 1}, 5, None, {1, 2}, b"bytes"])
def test_anything_that_is_not_a_list_is_the_same_for_every_point(value: Any):
    design = design_of({"value": value, "n": [1, 2]})
    assert design.columns == ("n",)
    assert [point["value"] for point in design] == [value, value]


def test_a_grid_where_nothing_varies_is_one_point():
    assert list(design_of({"vin": 10})) == [{"vin": 10}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a sweep needs its points"),
        ({"grid": {}}, "the grid is empty"),
        ({"grid": {"vin": [], "duty": [1]}}, r"grid\['vin'\] is empty"),
        ({"grid": {"vin": np.array([])}}, r"grid\['vin'\] is empty"),
        ({"grid": {"vin": np.zeros((2, 2))}}, "2 dimensions"),
        ({"grid": {"vin": iter([1])}}, "write list"),
        ({"grid": [1]}, "grid is a list"),
        ({"grid": {1: [1]}}, "the name 1"),
        ({"grid": {"a": [1]}, "rows": [{"a": 1}]}, "grid and rows cannot be combined"),
        ({"grid": {"a": [1]}, "fixed": {"a": 2}}, "'a' is given twice"),
        ({"grid": {"a": 1}, "fixed": {"a": 2}}, "'a' is given twice"),
        ({"grid": {"a": range(10_001), "b": range(1_000)}}, "10,001,000 points"),
        ({"rows": []}, "rows is empty"),
        ({"rows": 5}, "rows is a int"),
        ({"rows": {"a": 1}}, "rows is a dict"),
        ({"rows": [{"a": 1}, 7]}, "row 2 is 7"),
        ({"rows": [{"a": 1, "b": 2}, {"a": 1}]}, "row 2 has no column 'b'"),
        ({"rows": [{"a": 1}, {"a": 1}, {"a": 1, "b": 2}]}, "row 3 has the column 'b'"),
        ({"rows": [{"a": 1}], "fixed": {"a": 2}}, "'a' is given twice"),
        ({"rows": pd.DataFrame({1: [1]})}, "the column 1"),
        ({"rows": pd.DataFrame([[1, 2]], columns=["a", "a"])}, "'a' twice"),
        ({"rows": pd.DataFrame({"a": []})}, "no points"),
        ({"samples": 5}, "samples is a int"),
        ({"samples": MonteCarlo(5, {"a": (0, 1)}), "seed": 0.5}, "seed is 0.5"),
        ({"samples": MonteCarlo(5, {"a": (0, 1)}), "fixed": {"a": 1}}, "'a' is given twice"),
    ],
)
def test_a_design_without_points_or_with_wrong_ones_is_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        design_of(**arguments)


def test_a_million_points_are_made_one_at_a_time():
    tracemalloc.start()
    design = design_of({"a": range(1000), "b": range(1000)})
    assert len(design) == 1_000_000
    for _, point in zip(range(50_000), design, strict=False):
        assert point
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_points_and_equal_rows_stay_separate():
    design = design_of(rows=[{"a": 1, "b": "x"}, {"b": "y", "a": 2}, {"a": 1, "b": "x"}], fixed={"c": 3})
    assert design.columns == ("a", "b")
    assert list(design)[1] == {"c": 3, "a": 2, "b": "y"}
    assert len(design) == 3


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_data_frame_gives_its_rows_as_plain_values(frame: Any):
    design = design_of(rows=frame({"a": [1, 2], "b": [0.5, 1.5], "c": ["x", "y,z"]}))
    assert list(design) == [{"a": 1, "b": 0.5, "c": "x"}, {"a": 2, "b": 1.5, "c": "y,z"}]
    assert {type(value) for value in next(iter(design)).values()} == {int, float, str}


def test_a_csv_file_gives_texts(tmp_path: Any):
    path = tmp_path / "points.csv"
    path.write_bytes(b'\xef\xbb\xbfvin, note\r\n10,"a ""quoted"", text\nof two lines"\r\n\r\n12,\r\n')
    design = design_of(rows=path)
    assert design.from_text
    assert list(design) == [{"vin": "10", "note": 'a "quoted", text\nof two lines'}, {"vin": "12", "note": ""}]
    assert list(design_of(rows=str(path))) == list(design)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b"vin,duty\n", "no rows"),
        (b"vin,duty\n1,2\n3\n", "line 3: the row has no value for the column 'duty'"),
        (b"vin,duty\n1,2,3\n", "line 2: the row has 3 values"),
        (b"vin,vin\n1,2\n", "two columns are named 'vin'"),
        (b"vin,\n1,2\n", "column 2 has no name"),
        (b"vin;duty\n1;2\n", "separated by commas"),
        (b'vin\n"1\n', "line 2: unexpected end of data"),
        (b"vin\n\xff\n", "not UTF-8"),
    ],
)
def test_a_wrong_csv_file_is_refused_with_the_line(tmp_path: Any, text: bytes, message: str):
    path = tmp_path / "points.csv"
    path.write_bytes(text)
    with pytest.raises(BadInput, match=message):
        design_of(rows=path)


def test_a_missing_csv_file_is_named(tmp_path: Any):
    with pytest.raises(BadInput, match=r"cannot read the points from .*none.csv: No such file"):
        design_of(rows=tmp_path / "none.csv")


def test_a_csv_file_that_changes_while_it_is_read_is_refused(tmp_path: Any):
    path = tmp_path / "points.csv"
    path.write_text("vin\n1\n2\n")
    points = iter(design_of(rows=path))
    next(points)
    path.write_text("vin\n1\n2\n3\n")
    with pytest.raises(BadInput, match="changed while its points were read"):
        list(points)


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MonteCarlo, LatinHypercube])
def test_samples_are_the_same_for_the_same_seed_and_other_parameters_change_nothing(kind: Any):
    spread = {"vin": (10, 24), "load": Normal(1, 0.1)}
    one = list(design_of(samples=kind(50, spread), seed=3))
    assert one == list(design_of(samples=kind(50, spread), seed=3))
    assert one != list(design_of(samples=kind(50, spread), seed=4))
    more = list(design_of(samples=kind(50, {"duty": Uniform(0, 1), **spread}), seed=3))
    assert [point["vin"] for point in more] == [point["vin"] for point in one]


def test_a_latin_hypercube_has_one_point_in_each_part_of_each_parameter():
    points = list(design_of(samples=LatinHypercube(100, {"a": (0, 1), "b": Normal(0, 1), "c": Choice("xy")})))
    assert sorted(int(point["a"] * 100) for point in points) == list(range(100))
    assert sum(point["b"] < 0 for point in points) == 50
    assert sum(point["c"] == "x" for point in points) == 50
    assert [point["a"] for point in points] != sorted(point["a"] for point in points)


def test_a_log_uniform_parameter_has_as_many_points_in_each_order_of_magnitude():
    values = [point["r"] for point in design_of(samples=LatinHypercube(300, {"r": LogUniform(1, 1000)}))]
    assert [sum(low <= value < low * 10 for value in values) for low in (1, 10, 100)] == [100, 100, 100]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MonteCarlo(0, {"a": (0, 1)}), "whole number of 1 or more"),
        (lambda: MonteCarlo(5, {}), "name the parameters"),
        (lambda: MonteCarlo(5, {"a": (1, 0)}), "parameter 'a': .* must be below"),
        (lambda: MonteCarlo(5, {"a": (0, float("nan"))}), "finite"),
        (lambda: MonteCarlo(5, {"a": 7}), "belongs into `fixed`"),  # type: ignore[dict-item]
        (lambda: Normal(0, 0), "above 0"),
        (lambda: LogUniform(0, 1), "above 0"),
        (lambda: Choice([]), "no values"),
    ],
)
def test_a_wrong_sample_is_refused(make: Any, message: str):
    with pytest.raises(BadInput, match=message):
        make()


# -- grid as text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("duty=0.1:0.9:0.1", ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"]),
        ("vin=10,12,24", ["10", "12", "24"]),
        ("vin= 10, 12", ["10", "12"]),
        ("n=1:4", ["1", "2", "3", "4"]),
        ("n=1:4:2", ["1", "3"]),
        ("n=3:1:-1", ["3", "2", "1"]),
        ("n=5:5:1", ["5"]),
        ("n=0:1:0.25,7", ["0", "0.25", "0.5", "0.75", "1", "7"]),
        ("n=1e2:3e2:1e2", ["100", "200", "300"]),
        ("n=-0.2:0.2:0.2", ["-0.2", "0", "0.2"]),
        ("t='12:30','a,b',\"it's\"", ["12:30", "a,b", "it's"]),
        (r"t=a\,b,12\:30,C:\dir", ["a,b", "12:30", r"C:\dir"]),
        ("t=''", [""]),
        ("t=localhost:8080", ["localhost:8080"]),
        ("t=a=b", ["a=b"]),
        ("t=two\nlines", ["two\nlines"]),
        ("t=$(rm -rf /);x", ["$(rm -rf /);x"]),
        ("n=nan,inf", ["nan", "inf"]),
    ],
)
def test_the_values_of_a_grid_are_read_from_text(text: str, values: list[str]):
    name, found = parse_grid(text)
    assert name == text.partition("=")[0]
    assert found == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vin", "names no values"),
        ("=1", "names no values"),
        ("vin=", "has no values"),
        ("vin=1,,2", "an empty value"),
        ("vin=1,", "an empty value"),
        ("vin=1:2:0", "the step of '1:2:0' is 0"),
        ("vin=1:9:-1", "write 1:9:1"),
        ("vin=9:1", "write 9:1:-1"),
        ("vin=nan:2:1", "finite"),
        ("vin=0:inf:1", "finite"),
        ("vin=1:2:3:4", "4 numbers"),
        ("vin=1:x:2", "three numbers"),
        ("vin=0:1:1e-9", "more than 10,000,000"),
        ("vin='1", "not closed"),
    ],
)
def test_wrong_values_of_a_grid_are_refused(text: str, message: str):
    with pytest.raises(BadInput, match=message):
        parse_grid(text)


def _numbers() -> Iterator[tuple[str, Any]]:
    yield from {"10": 10, "-0.5": -0.5, "1e3": 1000.0, "007": "007", "nan": "nan", "true": "true", "NaN": "NaN"}.items()
    yield from {'"a"': '"a"', "": "", "[1]": "[1]"}.items()


@pytest.mark.parametrize(("text", "value"), list(_numbers()))
def test_only_what_looks_like_a_number_becomes_one(text: str, value: Any):
    assert parse_number(text) == value
    assert type(parse_number(text)) is type(value)
