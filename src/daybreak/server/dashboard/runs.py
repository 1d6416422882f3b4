"""Pages about runs: the list, and one run with a heat map over two parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from daybreak.core.errors import RunNotFound
from daybreak.core.model import State
from daybreak.runs.result_rows import Row
from daybreak.server.dashboard.renderer import render
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("dashboard", prefix="")
_READ: Final = may("read", needs_all_queues=True)
HTML: Final = "text/html"
MAX_ROWS: Final = 2000  # rows that a page reads
SHOWN_ROWS: Final = 100
LEVELS: Final = 10  # shades of the heat map
NOT_RESULTS: Final = frozenset({"point", "ran_for"})
MAX_SIDE: Final = 60  # columns and rows of the heat map


class HeatQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which parameters are the sides of the heat map, and which figure is its colour."""

    x: str = ""
    y: str = ""
    value: str = ""


class HeatMap(Struct, frozen=True, kw_only=True):
    """Cells by row and column; each is (text, level), and None where there is no result."""

    x: str
    y: str
    value: str
    columns: list[str]
    rows: list[str]
    cells: list[list[tuple[str, int] | None]]
    low: float
    high: float


@routes.get("/runs", _READ, answer=str, answer_type=HTML, summary="Runs")
async def show_runs_page(call: Call[None, None]) -> Any:
    """All runs, the latest first, with their progress."""
    found = await call.server.app.aruns()
    return render(call, "runs.html", page="runs", runs=found, states=list(State))


@routes.get("/runs/{name}", _READ, query=HeatQuery, answer=str, answer_type=HTML, refuses=(404,), summary="One run")
async def show_run_page(call: Call[HeatQuery, None]) -> Any:
    """Progress and expected end, a heat map over two parameters, and the first rows."""
    try:
        run = await call.server.app.afind_run(call.path["name"])
    except RunNotFound as error:
        raise Problem(NOT_FOUND, str(error)) from None
    info = await run.ainfo()
    rows: list[Row] = []
    async for row in run.arows():
        rows.append(row)
        if len(rows) >= MAX_ROWS:
            break
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [{name: _short(value) for name, value in row.items()} for row in rows[:SHOWN_ROWS]]
    return render(
        call,
        "run.html",
        page="runs",
        run=info,
        rows=shown,
        names=names,
        read=len(rows),
        numbers=numeric(rows, names),
        heat=heat_map(rows, info.columns, call.query),
    )


def numeric(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """The columns whose values are numbers."""
    return [name for name in names if any(_number(row.get(name)) is not None for row in rows)]


def heat_map(rows: Sequence[Row], columns: Sequence[str], query: HeatQuery) -> HeatMap | None:
    """The mean of a figure for each pair of two parameters. None if there are no two parameters, or no figure."""
    known = list(dict.fromkeys(name for row in rows for name in row))
    sides = [name for name in (query.x, query.y) if name in known] or [name for name in columns if name in known][:2]
    figures = [name for name in numeric(rows, known) if name not in columns and name not in NOT_RESULTS]
    value = query.value if query.value in known else next(iter(figures), "")
    if len(sides) < 2 or not value:
        return None
    x, y = sides[:2]
    sums: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        number = _number(row.get(value))
        if number is not None:
            sums.setdefault((str(row.get(y)), str(row.get(x))), []).append(number)
    if not sums:
        return None
    across = list(dict.fromkeys(str(row.get(x)) for row in rows))[:MAX_SIDE]
    down = list(dict.fromkeys(str(row.get(y)) for row in rows))[:MAX_SIDE]
    means = {key: sum(found) / len(found) for key, found in sums.items()}
    low, high = min(means.values()), max(means.values())
    cells = [
        [_cell(means.get((one, other)), low, high) for other in across]
        for one in down
    ]  # fmt: skip
    return HeatMap(x=x, y=y, value=value, columns=across, rows=down, cells=cells, low=low, high=high)


def _cell(mean: float | None, low: float, high: float) -> tuple[str, int] | None:
    if mean is None:
        return None
    share = 0.5 if high == low else (mean - low) / (high - low)
    return f"{mean:.4g}", min(int(share * LEVELS), LEVELS - 1)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 - NaN
