"""Rows as a table: CSV, Parquet, and data frames of pandas and polars.

The columns of a table are those of all rows, in the order in which they first appear; a row that lacks one has None
there. None is an empty cell in CSV (so is an empty text) and null elsewhere; NaN stays NaN (`nan` in CSV). Lists and
dicts become JSON text, durations seconds, instants ISO 8601. A column with values of several kinds becomes text.
A file is written beside its target and then renamed, so a reader never sees half of it.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final

from daybreak.core.errors import BadInput, Unsupported
from daybreak.runs.row_spool import Kind, RowSpool, cell_text, typed_value

Rows = Iterable[Mapping[str, Any]]

_GROUP: Final = 10_000  # rows that are written to Parquet at a time


def write_csv(rows: Rows, target: str | PathLike[str] | IO[str]) -> int:
    """Write the rows as CSV to a path or an open text file, and answer how many there were. Memory stays flat."""
    with closing(RowSpool(rows)) as spool:
        if not isinstance(target, (str, PathLike)):
            return _write_cells(spool, target)
        with replaced(target, binary=False) as file:
            return _write_cells(spool, file)


def _write_cells(spool: RowSpool, file: IO[str]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    if spool.kinds:
        writer.writerow(spool.kinds)
    written = 0
    for cells in spool:
        writer.writerow([cell_text(cell) for cell in cells])
        written += 1
    return written


def write_parquet(rows: Rows, path: str | PathLike[str]) -> int:
    """Write the rows as a Parquet file, and answer how many there were. Memory stays flat. Needs pyarrow."""
    arrow: Any = _package("pyarrow", "a Parquet file")
    parquet: Any = _package("pyarrow.parquet", "a Parquet file")
    types: dict[Kind, Any] = {
        "none": arrow.null(),
        "bool": arrow.bool_(),
        "int": arrow.int64(),
        "float": arrow.float64(),
        "instant": arrow.timestamp("us", tz="UTC"),
        "text": arrow.string(),
    }
    with closing(RowSpool(rows)) as spool:
        schema = arrow.schema([(name, types[kind]) for name, kind in spool.kinds.items()])
        written = 0
        with replaced(path, binary=True) as file, parquet.ParquetWriter(file, schema) as writer:
            cells = iter(spool)
            while group := list(islice(cells, _GROUP)):
                writer.write_table(arrow.table(_columns(spool, group, arrow), schema=schema))
                written += len(group)
    return written


def _columns(spool: RowSpool, group: list[list[Any]], arrow: Any) -> list[Any]:
    columns = zip(*group, strict=True)
    kinds = spool.kinds.values()
    return [
        arrow.array([typed_value(kind, cell) for cell in column]) if kind != "none" else arrow.nulls(len(group))
        for kind, column in zip(kinds, columns, strict=True)
    ]


def pandas_frame(rows: Rows) -> Any:
    """The rows as a `pandas.DataFrame`. A column of whole numbers with gaps becomes one of floats, as in pandas."""
    pandas: Any = _package("pandas", "a pandas data frame")
    return pandas.DataFrame(_typed_columns(rows))


def polars_frame(rows: Rows) -> Any:
    """The rows as a `polars.DataFrame`."""
    polars: Any = _package("polars", "a polars data frame")
    return polars.DataFrame(_typed_columns(rows), strict=False)


def _typed_columns(rows: Rows) -> dict[str, list[Any]]:
    with closing(RowSpool(rows)) as spool:
        found: dict[str, list[Any]] = {name: [] for name in spool.kinds}
        columns = list(zip(spool.kinds.values(), found.values(), strict=True))
        for cells in spool:
            for (kind, column), cell in zip(columns, cells, strict=True):
                column.append(typed_value(kind, cell))
    return found


def _package(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise Unsupported(
            f"{what} needs {package}: pip install 'daybreak[tables]' or pip install {package} ({error})"
        ) from None


@contextmanager
def replaced(path: Any, *, binary: bool) -> Iterator[Any]:
    """A file that takes the path's place when the block ends without an error."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise BadInput(f"{target} is a folder; name a file in it")
    encoding = None if binary else "utf-8"
    errors = None if binary else "backslashreplace"
    newline = None if binary else ""
    mode = "b" if binary else ""
    if target.exists() and not target.is_file():  # a device or a pipe cannot be renamed over
        with target.open("w" + mode, encoding=encoding, errors=errors, newline=newline) as file:
            yield file
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with partial.open("x" + mode, encoding=encoding, errors=errors, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
