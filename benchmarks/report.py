"""The run as JSON for programs and as a table for people: Daybreak's rows beside the best durable peer, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import QUIET, machine, versions
from benchmarks.measure import Measured, Run
from benchmarks.rows import DEEP, Goal
from benchmarks.stats import Interval, ratio

FULL = "2"  # PRAGMA synchronous


class Line(NamedTuple):
    """One row of Daybreak against the best durable peer, where there is one."""

    measured: Measured
    peer: Measured | None
    ratio: Interval | None
    share: Interval | None


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
    """Each row of ours against its yardstick, from a result as it stands in a file."""
    return {
        name: ratio(row["rates"], rows[row["yardstick"]]["rates"])
        for name, row in rows.items()
        if row["side"] == "ours" and row["yardstick"] in rows
    }


def lines(run: Run) -> list[Line]:
    """Worst ratio first; rows that no peer has come last."""
    found = [_line(run, measured) for measured in run.rows.values() if measured.row.side == "ours"]
    return sorted(found, key=lambda line: line.ratio.median if line.ratio else float("inf"))


def _line(run: Run, measured: Measured) -> Line:
    peer = best_durable(run, measured.row.against)
    yardstick = run.rows.get(measured.row.yardstick or "")
    return Line(
        measured,
        peer,
        ratio(measured.rates, peer.rates) if peer else None,
        ratio(measured.rates, yardstick.rates) if yardstick else None,
    )


def best_durable(run: Run, against: str | None) -> Measured | None:
    """The fastest peer whose commits were synced to disk, by its settings as read back while it ran."""
    durable = [
        peer
        for peer in run.rows.values()
        if peer.row.side == "peer" and peer.row.against == against and peer.facts.get("synchronous") == FULL
    ]
    return max(durable, key=lambda peer: Interval.of(peer.rates).median, default=None)


# -- the page ----------------------------------------------------------------------------------------------------------


OURS = (
    "row",
    "Daybreak, /s",
    "best durable peer",
    "peer, /s",
    "ratio",
    "must",
    "aims at",
    "verdict",
    "share of bare apsw",
)
NOTES = """\
Share of bare apsw: against as many rows in as many durable commits, with nothing else done.
Exchange rows settle and claim in one transaction, through the seam. The design's figure for a drain (6 x, aims at 12 x)
belongs to a worker, which does not exist yet, so these rows have none of their own. PriorityQueue, the fastest peer to
drain, takes a job out for good before it runs, so a crash loses it; the design's 2.5 k/s is SQLiteAckQueue, the fastest
that acknowledges.
The design's single submit speaks of the sync face, which does not exist yet: this is the async client.
Peers drain 3,000 waiting jobs; some slow down with more."""


def page(run: Run, told: Mapping[str, Any]) -> str:
    sqlite = [_ours(line) for line in lines(run) if line.measured.row.name.startswith("sqlite")]
    theirs = [_theirs(measured) for measured in run.rows.values() if measured.row.side != "ours"]
    memory = [_memory(run, measured) for name, measured in run.rows.items() if name.startswith("memory")]
    parts = [
        "# Latest benchmark run",
        _origin(told),
        quietness(run),
        *_missing(run),
        "## Daybreak on SQLite against the best durable peer, worst ratio first",
        table(OURS, sqlite),
        "\n".join([NOTES, *_bulk(run), *_deep(run)]),
        "## Peers and bare references",
        table(("row", "/s", "synchronous"), theirs),
        "## Daybreak in memory, for reference",
        table(("row", "/s", "SQLite reaches of it"), memory),
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


def _ours(line: Line) -> list[str]:
    row = line.measured.row
    peer = line.peer
    return [
        row.name.removeprefix("sqlite "),
        rate(line.measured),
        f"{peer.row.says}, {peer.row.against}" if peer else "none",
        rate(peer) if peer else "",
        f"{line.ratio.median:.2f} x ({line.ratio.low:.2f} to {line.ratio.high:.2f})" if line.ratio else "",
        *_goal(row.goal, line),
        f"{line.share.median:.0%} ({line.share.low:.0%} to {line.share.high:.0%})" if line.share else "",
    ]


def _goal(goal: Goal | None, line: Line) -> tuple[str, str, str]:
    if goal is None:
        return "", "", ""
    shown = [f"{figure:,g} {goal.unit}" for figure in (goal.must, goal.aim)]
    reached = line.ratio if goal.unit == "x" else Interval.of(line.measured.rates)
    if reached is None:
        return shown[0], shown[1], "no peer"
    verdict = "below" if reached.median < goal.must else "reaches" if reached.median < goal.aim else "as aimed"
    return shown[0], shown[1], f"**{verdict}**" if verdict == "below" else verdict


def _bulk(run: Run) -> list[str]:
    if (bulk := run.rows.get("sqlite submit bulk")) is None or not bulk.parts:
        return []
    alone = Interval.of([bulk.row.jobs / parts["submit_many"] for parts in bulk.parts])
    return [
        f"Bulk counts the making of the specs; `submit_many` alone is {alone.median:,.0f} /s. No peer has a bulk call."
    ]


def _deep(run: Run) -> list[str]:
    few, many = (run.rows.get(f"sqlite exchange 10 of {backlog}") for backlog in DEEP)
    if few is None or many is None:
        return []
    low, middle, high = ratio(many.rates, few.rates)
    waiting = f"With {DEEP[1]:,} jobs waiting instead of {DEEP[0]:,}"
    return [f"{waiting}, exchange 10 runs at {middle:.0%} of the speed ({low:.0%} to {high:.0%})."]


def _theirs(measured: Measured) -> list[str]:
    says = f"{measured.row.says}, {measured.row.against}" if measured.row.says else _raw(measured)
    setting = {"0": "OFF", "1": "NORMAL", FULL: "FULL"}.get(measured.facts.get("synchronous", ""), "")
    return [says, rate(measured), setting]


def _raw(measured: Measured) -> str:
    if (batch := measured.row.options.get("batch")) is None:
        return "bare heapq, push and pop"
    return f"bare apsw, rows in commits of {batch}"


def _memory(run: Run, measured: Measured) -> list[str]:
    what = measured.row.name.removeprefix("memory ")
    sqlite = run.rows.get(f"sqlite {what}")
    share = f"{ratio(sqlite.rates, measured.rates).median:.0%}" if sqlite else ""
    return [what, rate(measured), share]


def rate(measured: Measured) -> str:
    low, middle, high = Interval.of(measured.rates)
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"
