"""The points of a sweep: every combination of a grid, the rows of a table, or random samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from os import PathLike
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.core.units import counted
from daybreak.runs.csv_rows import CsvRows
from daybreak.runs.grid_text import MAX_POINTS
from daybreak.runs.samples import LatinHypercube, MonteCarlo

_HOW: Final = (
    'write for example grid={"vin": [10, 12, 24]}, rows=[{"vin": 10}, ...], rows="points.csv", '
    'or samples=LatinHypercube(200, {"vin": (10, 24)})'
)


class Design:
    """The points of a sweep, each a dict with all arguments; made anew, one at a time, whenever it is iterated.

    `columns` are the names that vary, `fixed` the arguments that are the same for every point, `levels` the values
    of each column of a grid (empty for rows and samples). With `from_text`, the values of the columns are texts that
    the task's annotations turn into values."""

    def __init__(
        self,
        columns: Sequence[str],
        fixed: Mapping[str, Any],
        points: int,
        values: Callable[[], Iterator[Sequence[Any]]],
        *,
        levels: Mapping[str, Sequence[Any]] | None = None,
        from_text: bool = False,
    ) -> None:
        self.columns = tuple(columns)
        self.fixed = dict(fixed)
        self.levels = dict(levels or {})
        self.from_text = from_text
        self._points = points
        self._values = values
        if points < 1:
            raise BadInput(f"the sweep has no points; {_HOW}")
        if points > MAX_POINTS:
            raise BadInput(
                f"the sweep has {points:,} points, and at most {MAX_POINTS:,} are allowed; use fewer values, or "
                "samples= to draw some of the points"
            )

    def __len__(self) -> int:
        return self._points

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in self._values():
            yield {**self.fixed, **dict(zip(self.columns, values, strict=True))}

    def __repr__(self) -> str:
        return f"<Design of {counted(self._points, 'point')}: {', '.join(self.columns) or 'nothing varies'}>"


def design_of(
    grid: Mapping[str, Any] | None = None,
    rows: Any = None,
    fixed: Mapping[str, Any] | None = None,
    samples: LatinHypercube | MonteCarlo | None = None,
    seed: int = 0,
) -> Design:
    """The points of a sweep, from exactly one of `grid`, `rows` and `samples`.

    grid: a list, a tuple, a range or a one-dimensional array varies; anything else is the same for every point.
    rows: a list of mappings, the path of a CSV file with a header, or a data frame of pandas or polars.
    samples: `LatinHypercube` or `MonteCarlo`, repeatable by `seed`.
    fixed: more arguments that are the same for every point; here a list is one value."""
    given = [name for name, value in (("grid", grid), ("rows", rows), ("samples", samples)) if value is not None]
    if len(given) != 1:
        trouble = f"{' and '.join(given)} cannot be combined" if given else "a sweep needs its points"
        raise BadInput(f"{trouble}; {_HOW}")
    fixed = _named(fixed or {}, "fixed")
    if grid is not None:
        return _grid(_named(grid, "grid"), fixed)
    if samples is not None:
        return _sampled(samples, fixed, seed)
    return _table(rows, fixed)


# -- grid --------------------------------------------------------------------------------------------------------------


def _grid(grid: Mapping[str, Any], fixed: Mapping[str, Any]) -> Design:
    if not grid:
        raise BadInput(f"the grid is empty; {_HOW}")
    levels: dict[str, Sequence[Any]] = {}
    constant = dict(fixed)
    for name, value in grid.items():
        values = _levels(name, value)
        if values is None:
            _check_once(name, fixed)
            constant[name] = value
        else:
            levels[name] = values
    _check_apart(levels, constant)
    points = math.prod(len(values) for values in levels.values())
    return Design(tuple(levels), constant, points, lambda: product(*levels.values()), levels=levels)


def _levels(name: str, value: object) -> Sequence[Any] | None:
    """The values of one entry of a grid; None if it does not vary."""
    values: Sequence[Any]
    if isinstance(value, (list, tuple, range)):
        values = value
    elif isinstance(getattr(value, "ndim", None), int) and hasattr(value, "tolist"):
        dimensions: int = value.ndim  # type: ignore[attr-defined]
        if dimensions == 0:
            return None
        if dimensions > 1:
            raise BadInput(f"grid[{name!r}] is an array of {dimensions} dimensions; a grid takes one, such as .ravel()")
        values = value.tolist()
    elif hasattr(value, "to_list") and hasattr(value, "dtype"):  # a series of polars
        values = value.to_list()
    elif hasattr(value, "__next__"):
        raise BadInput(f"grid[{name!r}] is a {type(value).__name__}, which can be read only once; write list(...)")
    else:
        return None
    if not values:
        raise BadInput(f"grid[{name!r}] is empty, so the sweep has no points; give it at least one value")
    return values


# -- samples -----------------------------------------------------------------------------------------------------------


def _sampled(samples: object, fixed: Mapping[str, Any], seed: int) -> Design:
    if not isinstance(samples, (LatinHypercube, MonteCarlo)):
        raise BadInput(f"samples is a {type(samples).__name__}; write LatinHypercube(200, {{...}}) or MonteCarlo(...)")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise BadInput(f"seed is {seed!r}; write a whole number, such as seed=1")
    _check_apart(samples.parameters, fixed)
    return Design(tuple(samples.parameters), fixed, samples.points, lambda: samples.rows(seed))


# -- rows --------------------------------------------------------------------------------------------------------------


def _table(rows: Any, fixed: Mapping[str, Any]) -> Design:
    if isinstance(rows, (str, PathLike)):
        table = CsvRows(rows, most=MAX_POINTS)
        _check_apart(dict.fromkeys(table.columns), fixed)
        return Design(table.columns, fixed, len(table), lambda: iter(table), from_text=True)
    if hasattr(rows, "columns") and (hasattr(rows, "iter_rows") or hasattr(rows, "itertuples")):
        return _frame(rows, fixed)
    if isinstance(rows, Mapping) or not hasattr(rows, "__iter__"):
        raise BadInput(f"rows is a {type(rows).__name__}; {_HOW}")
    return _mappings(list(rows), fixed)


def _frame(frame: Any, fixed: Mapping[str, Any]) -> Design:
    columns = tuple(frame.columns)
    for name in columns:
        if not isinstance(name, str):
            raise BadInput(f"the data frame has the column {name!r}; the names of columns must be texts")
    if len(set(columns)) < len(columns):
        double = next(name for name in columns if columns.count(name) > 1)
        raise BadInput(f"the data frame has the column {double!r} twice; rename one of them")
    _check_apart(dict.fromkeys(columns), fixed)
    if hasattr(frame, "iter_rows"):  # polars
        return Design(columns, fixed, len(frame), frame.iter_rows)
    return Design(columns, fixed, len(frame), lambda: frame.itertuples(index=False, name=None))


def _mappings(rows: Sequence[Any], fixed: Mapping[str, Any]) -> Design:
    if not rows:
        raise BadInput(f"rows is empty, so the sweep has no points; {_HOW}")
    first = rows[0]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} is {row!r}; each row is a mapping of names to values")
        if row.keys() != first.keys():
            _refuse_row(number, row, first)
    columns = tuple(_named(first, "row 1"))
    _check_apart(first, fixed)
    return Design(columns, fixed, len(rows), lambda: (tuple(row[name] for name in columns) for row in rows))


def _refuse_row(number: int, row: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    for name in first:
        if name not in row:
            raise BadInput(f"row {number} has no column {name!r}, which row 1 has; add it, or pass it as fixed=")
    extra = next(name for name in row if name not in first)
    raise BadInput(f"row {number} has the column {extra!r}, which row 1 does not have; give it to every row")


# -- names -------------------------------------------------------------------------------------------------------------


def _named(values: object, what: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise BadInput(f"{what} is a {type(values).__name__}; write a mapping of names to values")
    for name in values:
        if not isinstance(name, str):
            raise BadInput(f"{what} has the name {name!r}; the names of arguments are texts")
    return values


def _check_apart(varying: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    for name in varying:
        _check_once(name, fixed)


def _check_once(name: str, fixed: Mapping[str, Any]) -> None:
    if name in fixed:
        raise BadInput(f"the argument {name!r} is given twice: as fixed=, and as a value that varies; remove one")
