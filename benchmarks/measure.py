"""Rounds of cases: each case in a fresh process and a fresh directory, ours and the others' in turn."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import apart
from benchmarks.machine import QUIET, Disturbance, wait_for_quiet
from benchmarks.processes import ROOT, adopt_orphans, end, end_orphans
from benchmarks.row import Row
from benchmarks.servers import RUN, binary

LONGEST_CASE = 900
TOLD = ("store", "side", "jobs", "options", "unit", "yardstick", "against", "says")
TAKEN_AT_MOST = 3


@dataclass
class Measured:
    """One row over its rounds; `others` is the share of the machine that strangers took in each."""

    row: Row
    figures: list[float] = field(default_factory=list)
    others: list[float | None] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        row = told.pop("row")
        return {key: row[key] for key in TOLD} | told


@dataclass
class Run:
    """`missing` says of each row that has no figure why that is so."""

    rows: dict[str, Measured]
    missing: dict[str, str]


def run_rounds(rows: Sequence[Row], *, repeat: int, place: Path, patience: float = 0) -> Run:
    """Odd rounds run backwards, so that what drifts during a round favours nobody.

    With patience, a case waits so many seconds for a quiet machine, and one that was disturbed is taken again: what
    decides is what others did, never the figure itself.
    """
    adopt_orphans()
    missing = absent(rows)
    for name, why in missing.items():
        print(f"MISSING  {name}: {why}", flush=True)
    run = Run({row.name: Measured(row) for row in rows if row.name not in missing}, missing)
    for n in range(repeat):
        for row in list(rows) if n % 2 == 0 else reversed(rows):
            if row.name in run.rows and (row.rounds is None or n < row.rounds):
                _take(run, row, place, patience, f"{n + 1}/{repeat}")
    return run


def absent(rows: Sequence[Row]) -> dict[str, str]:
    told = {row.name: _what_is_missing(row) for row in rows}
    return {name: why for name, why in told.items() if why}


def _what_is_missing(row: Row) -> str:
    modules = [need for need in row.needs if not need.startswith("/") and importlib.util.find_spec(need) is None]
    programs = [need[1:] for need in row.needs if need.startswith("/") and binary(need[1:]) is None]
    said = [f"{', '.join(modules)} not installed; it is in the dependency group `bench`"] if modules else []
    said += [f"there is no {program}" for program in programs]
    if row.apart and not apart.is_prepared(row.apart):
        said.append(f"{row.apart} is not prepared: {apart.PREPARE}")
    return "; ".join(said)


def _take(run: Run, row: Row, place: Path, patience: float, which: str) -> None:
    measured = run.rows[row.name]
    try:
        answer, others = _least_disturbed(row, place, patience)
    except (subprocess.SubprocessError, json.JSONDecodeError) as trouble:
        # A row that failed once has no figure: half of its rounds would not pair with anybody's.
        del run.rows[row.name]
        run.missing[row.name] = _why(trouble)
        print(f"FAILED   {row.name}: {run.missing[row.name]}", flush=True)
        return
    measured.figures.append(_figure(answer))
    measured.others.append(others)
    measured.parts.append(answer["parts"])
    measured.facts = answer["facts"]
    figure = f"{measured.figures[-1]:,.{0 if row.unit == '/s' else 2}f} {row.unit}"
    print(f"{which}  {row.name:32}{figure:>20}   others {others or 0:.0%}", flush=True)


def _figure(answer: dict[str, Any]) -> float:
    if answer["figure"] is not None:
        return round(answer["figure"], 4)
    return round(answer["jobs"] / answer["seconds"], 1)


def _least_disturbed(row: Row, place: Path, patience: float) -> tuple[dict[str, Any], float | None]:
    taken: list[tuple[dict[str, Any], float | None]] = []
    while not taken or (patience and len(taken) < TAKEN_AT_MOST and (taken[-1][1] or 0) > QUIET):
        wait_for_quiet(patience)
        watch = Disturbance()
        taken.append((_in_child(row, place), watch.share()))
    return min(taken, key=lambda one: one[1] or 0)


def _in_child(row: Row, place: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-") as fresh:
        request = {"work": row.work, "place": fresh, "jobs": row.jobs, "options": row.options}
        # In a group of its own: Ctrl-C reaches this process alone, which then ends the case in good order.
        case = subprocess.Popen(
            [apart.python_of(row.apart), "-m", "benchmarks.child", json.dumps(request)],
            cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0", RUN: str(place)}, process_group=0,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            stdout, stderr = case.communicate(timeout=LONGEST_CASE)
        finally:
            end(case)
            end_orphans()
        if case.returncode:
            raise subprocess.CalledProcessError(case.returncode, row.work, stdout, stderr)
        return json.loads(stdout)


def _why(trouble: Exception) -> str:
    stderr = getattr(trouble, "stderr", None)
    return stderr.strip().splitlines()[-1] if stderr else f"{type(trouble).__name__}: it did not end properly"
