"""What differs between a sweep and the run that it continues, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from daybreak.core.units import counted
from daybreak.runs.record import Column, RunRecord, Summary
from daybreak.system.code_digest import code_changed

MAX_VALUES: Final = 100  # of a column that the record keeps
MAX_COLUMNS: Final = 50
MAX_TEXT: Final = 80
NAMED: Final = 8  # values that an error names


class Seen:
    """Collects the values of the columns of a sweep, the first ones of each."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._columns: dict[str, dict[str, None]] = {name: {} for name in list(columns)[:MAX_COLUMNS]}
        self._more: set[str] = set()

    def add(self, row: Mapping[str, Any]) -> None:
        """Look at a point. A column of which enough is known is not looked at again."""
        full = []
        for name, values in self._columns.items():
            if name in self._more:
                continue
            text = shown(row.get(name))
            if text not in values:
                if len(values) == MAX_VALUES:
                    full.append(name)
                else:
                    values[text] = None
        self._more.update(full)

    @property
    def is_full(self) -> bool:
        """Whether further points add nothing."""
        return len(self._more) == len(self._columns)

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, tuple(values), name in self._more) for name, values in self._columns.items())


def shown(value: object) -> str:
    """A value as people read it, cut to a bounded length."""
    text = repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def code_differs(run: RunRecord, code: str) -> bool:
    """Whether the run was submitted by other code of its task."""
    return code_changed(run.code, code)


def describe(run: RunRecord, *, task: str, version: int, code: str, design: Summary) -> list[str]:
    """What is not as it was, one sentence each; empty if only the order of the points differs."""
    changes: list[str] = []
    if run.task != task:
        changes.append(f"task: {run.task} -> {task}")
    if run.version != version:
        changes.append(f"version of {task}: {run.version} -> {version}")
    if code_differs(run, code):
        changes.append(f"code of {task}: {run.code} -> {code} (its function was edited since)")
    before, after = run.design, design
    if before.points == after.points:
        return changes
    found = [*_columns(before, after), *_fixed(before, after)]
    if not found and before.total != after.total:
        found = [f"points: {before.total:,} -> {after.total:,}"]
    return changes + (found or ["points: some arguments differ beyond the values that the run remembers"])


def _columns(before: Summary, after: Summary) -> list[str]:
    old, new = ({column.name: column for column in summary.columns} for summary in (before, after))
    found = [f"{name}: varies now, over {_listed(new[name].values)}" for name in new if name not in old]
    found += [f"{name}: does not vary any more" for name in old if name not in new]
    for name in new.keys() & old.keys():
        parts = []
        added = [value for value in new[name].values if value not in old[name].values]
        removed = [value for value in old[name].values if value not in new[name].values]
        if added and not old[name].more:
            parts.append(f"added {_listed(added)}")
        if removed and not new[name].more:
            parts.append(f"removed {_listed(removed)}")
        if parts:
            found.append(f"{name}: {'; '.join(parts)}")
    return found


def _fixed(before: Summary, after: Summary) -> list[str]:
    found = []
    for name in sorted(before.fixed.keys() | after.fixed.keys()):
        old, new = before.fixed.get(name), after.fixed.get(name)
        if old == new:
            continue
        if old is None:
            found.append(f"{name}: is fixed now, to {new}")
        elif new is None:
            found.append(f"{name}: is not fixed any more")
        else:
            found.append(f"{name}: {old} -> {new}")
    return found


def _listed(values: Iterable[str]) -> str:
    texts = list(values)
    if len(texts) <= NAMED:
        return ", ".join(texts)
    return f"{', '.join(texts[:NAMED])} and {len(texts) - NAMED} more"


def describe_counts(kept: int, new: int, orphaned: int) -> str:
    """The sentence that says what becomes of the points."""
    return f"{counted(kept, 'point')} kept, {new:,} new, {orphaned:,} no longer in the sweep"
