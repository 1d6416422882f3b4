"""The run as JSON for programs and as a table for people: Daybreak's rows beside the best durable peer, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import QUIET, machine, versions
from benchmarks.measure import Measured, Run
from benchmarks.row import Goal
from benchmarks.rows import DEEP
from benchmarks.stats import Interval, ratio

FULL = "2"  # PRAGMA synchronous
PLOT = "latest.svg"


class Line(NamedTuple):
    """One goal of one row, and the reached share of it; None if there is no figure to compare it with."""

    measured: Measured
    goal: Goal
    peer: Measured | None
    reached: Interval | None

    @property
    def name(self) -> str:
        part = self.goal.part or (self.goal.of if self.goal.of not in {"ratio", "figure"} else "")
        return f"{self.measured.row.name}: {part}" if part else self.measured.row.name

    @property
    def distance(self) -> float:
        """The reached share of the goal: from 1 on it is met. The smallest one is the worst."""
        if self.reached is None:
            return -1.0
        return self.goal.must / self.reached.median if self.goal.at_most else self.reached.median / self.goal.must

    @property
    def verdict(self) -> str:
        if self.reached is None:
            return "**no peer**"
        sign = -1 if self.goal.at_most else 1
        if self.reached.median * sign < self.goal.must * sign:
            return "**misses**"
        return "reaches" if self.reached.median * sign < self.goal.aim * sign else "as aimed"


def as_json(run: Run, *, name: str, form: str, repeat: int, place: Path, command: str) -> dict[str, Any]:
    return {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "form": form,
        "repeat": repeat,
        "machine": machine(place),
        "versions": versions(),
        "missing": run.missing,
        "rows": {row: measured.as_json() for row, measured in run.rows.items()},
    }


def yardstick_ratios(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Interval]:
    """Compare each of our rows with its reference, from the result in a file."""
    return {
        name: ratio(row["figures"], rows[row["yardstick"]]["figures"])
        for name, row in rows.items()
        if row["side"] == "ours" and row["yardstick"] in rows
    }


def lines(run: Run) -> list[Line]:
    """Every goal there is a figure for, the worst first."""
    ours = [measured for measured in run.rows.values() if measured.row.side == "ours"]
    return sorted(
        (_line(run, measured, goal) for measured in ours for goal in measured.row.goals), key=lambda line: line.distance
    )


def _line(run: Run, measured: Measured, goal: Goal) -> Line:
    if goal.of != "ratio":
        figures = measured.figures if goal.of == "figure" else [parts[goal.of] for parts in measured.parts]
        return Line(measured, goal, None, Interval.of(figures))
    peer = run.rows.get(goal.than) if goal.than else best_durable(run, measured.row.against, goal.peer)
    return Line(measured, goal, peer, ratio(_figures(measured, goal), _figures(peer, goal)) if peer else None)


def _figures(measured: Measured, goal: Goal) -> list[float]:
    return [parts[goal.part] for parts in measured.parts] if goal.part else measured.figures


def best_durable(run: Run, against: str | None, name: str = "") -> Measured | None:
    """The fastest peer, or the named one. On SQLite only peers whose commits are synced to disk count, by the settings
    that were read back. On servers all have the same settings."""
    durable = [
        peer
        for peer in run.rows.values()
        if peer.row.side == "peer"
        and peer.row.against == against
        and peer.facts.get("synchronous", FULL) == FULL
        and (not name or name in peer.row.name.split())
    ]
    return max(durable, key=lambda peer: Interval.of(peer.figures).median, default=None)


# -- the page ----------------------------------------------------------------------------------------------------------


NOTES = """\
Drains count from the first start until nothing is unfinished; peers only to their last start. Killed, huey and celery
lose the job at hand; persist-queue with two processes runs jobs twice. Servers are private ones, the same for everyone:
PostgreSQL as initdb makes it, Redis with its file synced each second.
Latencies are from just before the submit call to the task's first line."""


def page(run: Run, told: Mapping[str, Any]) -> str:
    ours = [measured for measured in run.rows.values() if measured.row.side == "ours"]
    theirs = [measured for measured in run.rows.values() if measured.row.side != "ours"]
    parts = [
        "# Latest benchmark run",
        _origin(told),
        quietness(run),
        *_missing(run),
        "## What the design asks for, worst first",
        f"![Reached against must]({PLOT})",
        table(
            ("row", "Daybreak", "best durable peer", "reached", "must", "aims at", "verdict"),
            [_goal(line) for line in lines(run)],
        ),
        "\n".join([NOTES, *_deep(run)]),
        "## Rates beside the bare minimum",
        table(("row", "/s", "share of", "which does", "share"), [_beside(run, measured) for measured in _rates(ours)]),
        "Bare apsw inserts as many rows in as many durable commits as the row beside it, and does nothing else.",
        "## Told besides",
        table(("row", "what", "figure"), [row for measured in ours for row in _told_besides(measured)]),
        "## Peers and bare references",
        table(
            ("row", "figure", "Daybreak beside it", "settings", "version"),
            [_theirs(run, measured) for measured in theirs],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _origin(told: Mapping[str, Any]) -> str:
    where = told["machine"]
    packages = ", ".join(f"{package} {number}" for package, number in told["versions"].items())
    return (
        f"{told['date']}, `{told['command']}`: {told['form']} form, {told['repeat']} rounds; "
        "median (lowest to highest).\n"
        f"{where['cores']} x {where['cpu']}, {where['memory_gb']} GB, {where['system']}, {where['file_system']}, "
        f"Python {where['python']}; {packages}."
    )


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body))


def _missing(run: Run) -> list[str]:
    if not run.missing:
        return []
    return ["**Rows without a figure:**", "\n".join(f"- {row}: {why}" for row, why in run.missing.items())]


def quietness(run: Run) -> str:
    shares = [share for measured in run.rows.values() for share in measured.others if share is not None]
    if not shares:
        return "How much other processes took of the machine is unknown."
    loud = sum(share > QUIET for share in shares)
    return (
        f"Other processes took {Interval.of(shares).median:.0%} of the machine (up to {max(shares):.0%}); {loud} of "
        f"{len(shares)} cases had more than {QUIET:.0%}" + (", so figures are rough." if loud else ".")
    )


def _goal(line: Line) -> list[str]:
    row, goal, peer = line.measured.row, line.goal, line.peer
    return [
        line.name,
        shown(Interval.of(_figures(line.measured, goal)), row.unit),
        f"{_called(peer)}: {shown(Interval.of(_figures(peer, goal)), peer.row.unit)}" if peer else "",
        shown(line.reached, goal.unit) if line.reached else "",
        f"{'at most ' if goal.at_most else ''}{goal.must:,.3g} {goal.unit}",
        f"{goal.aim:,.3g} {goal.unit}",
        line.verdict,
    ]


def _called(peer: Measured) -> str:
    return _raw(peer) if peer.row.side == "raw" else peer.row.says or peer.row.name


def _rates(ours: Sequence[Measured]) -> list[Measured]:
    return [measured for measured in ours if measured.row.unit == "/s"]


def _beside(run: Run, measured: Measured) -> list[str]:
    bare = run.rows.get(measured.row.yardstick or "")
    if bare is None:
        return [measured.row.name, shown(Interval.of(measured.figures), ""), "", "", ""]
    low, middle, high = ratio(measured.figures, bare.figures)
    rates = [shown(Interval.of(one.figures), "") for one in (measured, bare)]
    return [measured.row.name, rates[0], _raw(bare), rates[1], f"{middle:.1%} ({low:.1%} to {high:.1%})"]


def _told_besides(measured: Measured) -> list[list[str]]:
    kinds = dict.fromkeys(kind for parts in measured.parts for kind in parts)
    return [
        [measured.row.name, kind, shown(Interval.of([parts[kind] for parts in measured.parts]), "")] for kind in kinds
    ]


def _deep(run: Run) -> list[str]:
    few, many = (run.rows.get(f"sqlite exchange 10 of {backlog}") for backlog in DEEP)
    if few is None or many is None:
        return []
    low, middle, high = ratio(many.figures, few.figures)
    waiting = f"With {DEEP[1]:,} jobs waiting instead of {DEEP[0]:,}"
    return [f"{waiting}, exchange 10 runs at {middle:.0%} of the speed ({low:.0%} to {high:.0%})."]


def _theirs(run: Run, measured: Measured) -> list[str]:
    row, facts = measured.row, measured.facts
    says = f"{row.says}, {row.against}" if row.says else _raw(measured)
    setting = {"0": "synchronous OFF", "1": "synchronous NORMAL", FULL: "synchronous FULL"}
    figure = shown(Interval.of(measured.figures), row.unit)
    settings = setting.get(facts.get("synchronous", ""), "") or facts.get("store", "")
    return [says, figure, _ours_beside(run, measured), settings, facts.get("version", "")]


def _ours_beside(run: Run, theirs: Measured) -> str:
    """What our first row of the same kind is of it; of one's own store, where there is one."""
    same = [
        one
        for one in run.rows.values()
        if one.row.side == "ours" and one.row.against and one.row.against == theirs.row.against
    ]
    same.sort(key=lambda one: one.row.store != theirs.row.store)
    if theirs.row.side != "peer" or theirs.row.unit != "/s" or not same:
        return ""
    return f"{shown(ratio(same[0].figures, theirs.figures), 'x')}, {same[0].row.name}"


def _raw(measured: Measured) -> str:
    if (batch := measured.row.options.get("batch")) is None:
        return _BARE[measured.row.work]
    return f"bare apsw, rows in commits of {batch}"


_BARE = {
    "bare heap": "bare heapq, push and pop",
    "bare priorities": "bare PriorityQueue, filled and emptied",
    "bare threads": "bare hand-over, 64 threads to one and back",
}


def shown(interval: Interval, unit: str) -> str:
    low, middle, high = map(number, interval)
    return f"{middle} {unit}".strip() + ("" if low == high else f" ({low} to {high})")


def number(figure: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
