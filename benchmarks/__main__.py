"""The command: `python -m benchmarks` measures, `python -m benchmarks compare` fails on a loss of speed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import apart, plot, report
from benchmarks.compare import Loss, losses
from benchmarks.machine import file_system
from benchmarks.measure import Run, run_rounds
from benchmarks.row import Row
from benchmarks.rows import of_stores, rows
from benchmarks.stores import STORES

RESULTS = Path(__file__).parent / "results"
RECORDED = RESULTS / "recorded.json"
FEWEST = 3
NOT_DURABLE = {"tmpfs", "ramfs"}


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    if asked.what == "prepare":
        return apart.prepare()
    if asked.repeat is None:
        asked.repeat = FEWEST if asked.quick and asked.what == "run" and not asked.record else 5
    with tempfile.TemporaryDirectory(dir=asked.dir, prefix="daybreak-") as place:
        if (kind := file_system(Path(place))) in NOT_DURABLE:
            print(f"the files would lie on {kind}, where nothing is durable; name a disk with --dir")
            return 2
        return compare(asked, Path(place)) if asked.what == "compare" else measure(asked, Path(place))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "compare", "prepare"), default="run")
    parser.add_argument("--quick", action="store_true", help="the short form: fewer jobs, no deep backlog")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (5, or 3 of the short form)")
    parser.add_argument(
        "--backlog", type=int, default=20_000, metavar="N", help="jobs waiting in exchange rows (20000)"
    )
    parser.add_argument(
        "--stores", type=_stores, default=STORES, metavar="NAMES",
        help=f"with commas, and what their rows are held against ({','.join(STORES)})",
    )  # fmt: skip
    parser.add_argument("--only", action="append", metavar="GLOB", help="rows by name; prints, and writes no result")
    parser.add_argument("--patience", type=float, default=0, metavar="S", help="wait S seconds for a quiet machine (0)")
    parser.add_argument("--name", help="results/<name>.json (quick or full)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where results go")
    parser.add_argument("--record", action="store_true", help="keep this as what compare holds later runs against")
    parser.add_argument("--dir", type=Path, help="where the files of the cases lie (the system's temporary directory)")
    return parser


def _stores(said: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in said.split(","))
    if unknown := [name for name in names if name not in STORES]:
        raise argparse.ArgumentTypeError(f"no store is called {', '.join(unknown)}; there are {', '.join(STORES)}")
    return names


def measure(asked: argparse.Namespace, place: Path) -> int:
    form = "quick" if asked.quick else "full"
    is_whole = not asked.only and set(asked.stores) == set(STORES)
    if asked.record and (form != "quick" or not is_whole):
        print("compare runs the quick form, so only a whole --quick run can be recorded")
        return 2
    every = of_stores(rows(quick=asked.quick, backlog=asked.backlog), asked.stores)
    chosen = [row for row in every if _wanted(row, asked.only)]
    if not chosen:
        print(f"no row is called so; there are: {', '.join(row.name for row in every)}")
        return 2
    run = run_rounds(chosen, repeat=asked.repeat, place=place, patience=asked.patience)
    told = report.as_json(
        run, name=asked.name or form, form=form, repeat=asked.repeat, place=place, command=_command(asked)
    )
    page = report.page(run, told)
    print("\n" + page)
    if not asked.only:
        _write(asked.results, told, page, plot.svg(report.lines(run), told))
        if asked.record:
            RECORDED.write_text(_as_text(told), encoding="utf-8")
    return 1 if run.missing else 0


def _wanted(row: Row, only: Sequence[str] | None) -> bool:
    return only is None or any(fnmatch(row.name, pattern) for pattern in only)


def _command(asked: argparse.Namespace) -> str:
    words = ["python -m benchmarks", *(["--quick"] if asked.quick else []), f"--repeat {asked.repeat}"]
    words += [f"--stores {','.join(asked.stores)}"] if set(asked.stores) != set(STORES) else []
    words += [f"--patience {asked.patience:g}"] if asked.patience else []
    return " ".join([*words, f"--backlog {asked.backlog}", *(f"--only '{glob}'" for glob in asked.only or ())])


def _write(results: Path, told: dict[str, Any], page: str, drawn: str) -> None:
    results.mkdir(exist_ok=True)
    (results / f"{told['name']}.json").write_text(_as_text(told), encoding="utf-8")
    (results / "latest.md").write_text(page, encoding="utf-8")
    (results / report.PLOT).write_text(drawn, encoding="utf-8")


def _as_text(told: dict[str, Any]) -> str:
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


# -- compare -----------------------------------------------------------------------------------------------------------


def compare(asked: argparse.Namespace, place: Path) -> int:
    """Rates of ours and the bare references only: peers play no part in the verdict, and a latency has no yardstick."""
    if asked.repeat < FEWEST:
        print(f"compare needs at least {FEWEST} rounds: fewer say nothing about noise")
        return 2
    if not RECORDED.exists():
        print("nothing is recorded yet: python -m benchmarks --quick --record")
        return 2
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    was = report.yardstick_ratios(recorded["rows"])
    chosen = [row for row in rows(quick=True, backlog=asked.backlog) if row.side == "raw" or row.yardstick]
    if changed := _changed(chosen, recorded):
        print(f"these rows do other work than when they were recorded: {', '.join(changed)}; record them anew")
        return 2
    run = run_rounds(chosen, repeat=asked.repeat, place=place, patience=asked.patience)
    lost = losses(was, _ratios(run))
    if again := [row for row in chosen if row.name in _with_yardsticks(chosen, lost)]:
        print(f"\nmeasuring again, to be sure: {', '.join(loss.row for loss in lost)}\n")
        second = run_rounds(again, repeat=asked.repeat, place=place, patience=asked.patience)
        lost = losses({loss.row: was[loss.row] for loss in lost}, _ratios(second))
    print(f"\n{report.quietness(run)}")
    return _verdict(lost, was, recorded)


def _ratios(run: Run) -> dict[str, Any]:
    return report.yardstick_ratios({name: measured.as_json() for name, measured in run.rows.items()})


def _changed(chosen: Sequence[Row], recorded: dict[str, Any]) -> list[str]:
    """A row's ratio depends on how much it does, so only like is compared with like."""
    known = recorded["rows"]
    return [
        row.name
        for row in chosen
        if row.name in known and (row.jobs, row.options) != (known[row.name]["jobs"], known[row.name]["options"])
    ]


def _with_yardsticks(chosen: Sequence[Row], lost: Sequence[Loss]) -> set[str]:
    names = {loss.row for loss in lost}
    return names | {row.yardstick for row in chosen if row.name in names and row.yardstick}


def _verdict(lost: Sequence[Loss], was: dict[str, Any], recorded: dict[str, Any]) -> int:
    print(f"held against {recorded['date']} ({recorded['machine']['cpu']}, Python {recorded['machine']['python']})")
    for loss in lost:
        print(f"LOST  {loss.row}: {loss.why}")
    print(
        f"{len(lost)} of {len(was)} rows lost; if the machine was disturbed, ask again with --patience 30"
        if lost
        else f"no loss beyond noise in {len(was)} rows"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    # Told to end, a run ends its case first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    sys.exit(main())
