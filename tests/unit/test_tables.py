"""Rows as tables."""

from __future__ import annotations

import csv
import io
import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from daybreak.core.errors import BadInput, Unsupported
from daybreak.core.model import State
from daybreak.runs.tables import pandas_frame, polars_frame, write_csv, write_parquet

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"vin": 10, "state": State.COMPLETED, "ran_for": timedelta(seconds=1.5), "at": NOON},
    {"vin": 12.5, "state": "failed", "error": 'said "no",\nthen stopped', "ran_for": None},
    {"state": "queued", "ok": True, "points": [1, {"a": 2}], "vin": math.nan, "big": 2**70},
]


def test_a_csv_file_has_the_columns_of_all_rows_in_order_of_appearance(tmp_path: Path):
    path = tmp_path / "rows.csv"
    assert write_csv(iter(ROWS), path) == 3
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["vin", "state", "ran_for", "at", "error", "ok", "points", "big"]
    assert rows[0] == ["10", "completed", "1.5", "2026-01-02T12:00:00+00:00", "", "", "", ""]
    assert rows[1] == ["12.5", "failed", "", "", 'said "no",\nthen stopped', "", "", ""]
    assert rows[2] == ["nan", "queued", "", "", "", "true", '[1, {"a": 2}]', str(2**70)]


def test_csv_goes_to_an_open_file_too():
    out = io.StringIO()
    assert write_csv([{"a": 0.1 + 0.2}, {"b": "x"}], out) == 2
    assert out.getvalue() == "a,b\n0.30000000000000004,\n,x\n"


def test_a_table_without_rows_is_an_empty_file(tmp_path: Path):
    assert write_csv([], tmp_path / "rows.csv") == 0
    assert (tmp_path / "rows.csv").read_text() == ""


def test_a_text_that_is_no_unicode_is_still_written(tmp_path: Path):
    write_csv([{"a": "\udcff"}], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "a\n\\udcff\n"


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_failed_export_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path: Path, write: Any):
    path = tmp_path / "rows"
    path.write_text("old")

    def rows() -> Any:
        yield {"a": 1}
        raise OSError("the store is gone")

    with pytest.raises(OSError, match="the store is gone"):
        write(rows(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_folder_is_refused_and_a_link_keeps_pointing_to_its_file(tmp_path: Path, write: Any):
    with pytest.raises(BadInput, match="is a folder"):
        write([{"a": 1}], tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    write([{"a": 1}], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "rows").stat().st_size


def test_a_parquet_file_has_typed_columns(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    assert write_parquet(iter(ROWS), path) == 3
    table = pq.read_table(path).to_pydict()
    assert table["vin"][:2] == [10.0, 12.5]
    assert math.isnan(table["vin"][2])
    assert table["ran_for"] == [1.5, None, None]
    assert table["at"] == [NOON, None, None]
    assert table["ok"] == [None, None, True]
    assert table["big"] == [None, None, str(2**70)]
    assert table["state"] == ["completed", "failed", "queued"]


def test_a_large_parquet_file_is_written_in_groups(tmp_path: Path):
    rows = ({"n": n, **({"late": n} if n > 15_000 else {})} for n in range(25_000))
    assert write_parquet(rows, tmp_path / "rows.parquet") == 25_000
    table = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    assert table["n"] == list(range(25_000))
    assert table["late"][15_000:15_002] == [None, 15_001]


def test_a_column_of_several_kinds_becomes_text_in_frames_and_files(tmp_path: Path):
    rows = [{"a": 1}, {"a": "x"}, {"a": None}, {"a": 2.5}]
    assert polars_frame(rows)["a"].to_list() == ["1", "x", None, "2.5"]
    assert list(pandas_frame(rows)["a"])[:2] == ["1", "x"]
    write_parquet(rows, tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").to_pydict() == {"a": ["1", "x", None, "2.5"]}


def test_data_frames_have_numbers_as_numbers():
    rows = [{"n": 1, "x": np.float64(0.5), "at": NOON}, {"n": 2, "x": 1}]
    frame = pandas_frame(rows)
    assert frame["n"].dtype == np.int64
    assert list(frame["x"]) == [0.5, 1.0]
    assert frame["at"][0] == pd.Timestamp(NOON)
    polar = polars_frame(iter(rows))
    assert polar.schema["n"] == pl.Int64
    assert polar["x"].to_list() == [0.5, 1.0]
    assert polar["at"].to_list() == [NOON, None]


@pytest.mark.parametrize(
    ("make", "package"),
    [(pandas_frame, "pandas"), (polars_frame, "polars"), (lambda rows: write_parquet(rows, "x"), "pyarrow")],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, make: Any, package: str):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unsupported, match=f"pip install {package}"):
        make([{"a": 1}])
