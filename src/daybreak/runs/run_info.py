"""The figures of a run, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.core.model import FINAL, UNFINISHED, Reason, State
from daybreak.core.units import micros
from daybreak.policy.runs import Accuracy
from daybreak.runs.record import KIND, MARK_KIND, Figures, Mark, RunRecord, Summary, label_of, read_mark
from daybreak.store.protocol import Tally

RunState = Literal["submitting", "running", "paused", "finished", "cancelled", "deleting"]


class Eta(Struct, frozen=True, kw_only=True):
    """When the run will probably end: in one of ten cases before `low`, in one of ten after `high`."""

    low: datetime
    mid: datetime
    high: datetime


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run at one instant. `jobs` has how many of its jobs are in each state, `failed` how many failed by reason.

    `accuracy` says of a run that has ended how many predictions of its end were recorded, and how many held it.
    `total` is how many points it has. `label` is what its jobs name as their run. `note` says why it is paused, or what
    is missing."""

    name: str
    label: str
    task: str
    version: int
    epoch: int
    state: RunState
    total: int
    jobs: dict[State, int]
    failed: dict[str, int]
    orphaned: int
    created_at: datetime
    started_at: datetime
    finished_at: datetime | None
    by: str
    queue: str
    priority: int
    options: dict[str, str]
    columns: tuple[str, ...]
    fixed: dict[str, str]
    code: str
    note: str = ""
    eta: Eta | None = None
    accuracy: Accuracy | None = None

    @property
    def done(self) -> int:
        """How many of its jobs have ended, however they ended."""
        return sum(self.jobs[state] for state in FINAL)

    @property
    def job_count(self) -> int:
        """How many jobs it has once all are submitted, with those of points that are no longer in the sweep."""
        return max(self.total + self.orphaned, sum(self.jobs.values()))

    @property
    def unfinished(self) -> int:
        return sum(self.jobs[state] for state in UNFINISHED)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it will run by itself any more."""
        return self.state in ("finished", "cancelled")

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, in the order in which the fields are documented."""
        eta = self.eta
        return {
            "name": self.name,
            "label": self.label,
            "task": self.task,
            "version": self.version,
            "epoch": self.epoch,
            "state": self.state,
            "total": self.total,
            "done": self.done,
            "jobs": {state.value: self.jobs[state] for state in State},
            "failed": dict(self.failed),
            "orphaned": self.orphaned,
            "created_at": _instant(self.created_at),
            "started_at": _instant(self.started_at),
            "finished_at": _instant(self.finished_at),
            "took": None if self.finished_at is None else (self.finished_at - self.started_at).total_seconds(),
            "by": self.by,
            "queue": self.queue,
            "priority": self.priority,
            "options": dict(self.options),
            "columns": list(self.columns),
            "fixed": dict(self.fixed),
            "code": self.code,
            "note": self.note,
            "eta": None if eta is None else {name: _instant(getattr(eta, name)) for name in ("low", "mid", "high")},
        }


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def info_of_run(
    name: str, run: RunRecord, counts: dict[State, int], reasons: dict[str, int], eta: Eta | None = None
) -> RunInfo:
    """The figures from the record and the counts of its jobs."""
    state, note = state_of(run, counts)
    return RunInfo(
        name=name,
        label=label_of(name, run.epoch),
        task=run.task,
        version=run.version,
        epoch=run.epoch,
        state=state,
        total=run.design.total,
        jobs=counts,
        failed=reasons,
        orphaned=run.orphaned,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=None if run.figures is None else run.figures.finished_at,
        by=run.by,
        queue=run.queue,
        priority=run.priority,
        options=run.options,
        columns=tuple(column.name for column in run.design.columns),
        fixed=run.design.fixed,
        code=run.code,
        note=note,
        eta=eta,
        accuracy=None if run.figures is None else run.figures.accuracy,
    )


def info_of_past(name: str, epoch: int, run: RunRecord, counts: dict[State, int], reasons: dict[str, int]) -> RunInfo:
    """The figures of an earlier epoch. The record has little of it: what varied and its options are not known."""
    known = [past for past in run.past if past.epoch == epoch]
    began = RunRecord(
        task=known[0].task if known else run.task,
        version=known[0].version if known else run.version,
        code=known[0].code if known else "",
        design=Summary(total=known[0].total if known else sum(counts.values()), points=""),
        created_at=run.created_at,
        started_at=known[0].started_at if known else run.created_at,
        epoch=epoch,
        submitted=True,
        queue=run.queue,
        priority=run.priority,
        cancelled=True,  # what had not ended was cancelled by the next epoch
    )
    return replace(info_of_run(name, began, counts, reasons), name=f"{name}#{epoch}")


def state_of(run: RunRecord, counts: dict[State, int]) -> tuple[RunState, str]:
    """The state of a run, and what a person should know about it."""
    jobs = sum(counts.values())
    unfinished = sum(counts[state] for state in UNFINISHED)
    if run.deleting:
        return "deleting", "it is being deleted"
    if not run.submitted:
        missing = max(run.design.total - jobs, 0)
        return "submitting", f"{missing:,} points have no job yet: submit the same sweep again to continue"
    if unfinished == 0:
        if jobs and counts[State.CANCELLED] and run.cancelled:
            return "cancelled", ""
        return "finished", ""
    if run.paused and not counts[State.RUNNING]:
        return "paused", run.paused
    return "running", run.paused


async def counts_of(client: Client, label: str) -> tuple[dict[State, int], dict[str, int]]:
    """How many jobs of a run are in each state, and how many failed, by reason."""
    counts = by_state(await client.tallies(run=label))
    reasons: dict[str, int] = {}
    for reason in Reason:
        if sum(reasons.values()) >= counts[State.FAILED]:
            break  # most runs have one reason, and each costs a count
        found = await client.tallies(run=label, reason=reason.value)
        if found:
            reasons[reason.value] = sum(tally.n for tally in found)
    return counts, reasons


def by_state(tallies: Sequence[Tally]) -> dict[State, int]:
    counts = dict.fromkeys(State, 0)
    for tally in tallies:
        counts[tally.state] += tally.n
    return counts


def frozen_counts(figures: Figures) -> dict[State, int]:
    return {state: figures.counts.get(state.value, 0) for state in State}


def _latest_prediction(mark: Mark | None, client: Client) -> Eta | None:
    """What a worker predicted last, if that may still come true."""
    if mark is None or not mark.looks or micros(mark.looks[-1].high) < client.wall():
        return None
    look = mark.looks[-1]
    return Eta(low=look.low, mid=look.low + (look.high - look.low) / 2, high=look.high)


async def all_runs(client: Client) -> list[RunInfo]:
    """Every run, the newest first. A run that has ended costs no counting: its figures stand in its record."""
    found: list[RunInfo] = []
    marks = {record.name: read_mark(record) for record in await client.store.records(MARK_KIND)}
    for record in await client.store.records(KIND):
        run = msgspec.json.decode(record.value, type=RunRecord)
        eta = None
        if run.figures is not None:
            counts, reasons = frozen_counts(run.figures), run.figures.reasons
        else:
            counts, reasons = await counts_of(client, label_of(record.name, run.epoch))
            eta = _latest_prediction(marks.get(record.name), client)
        found.append(info_of_run(record.name, run, counts, reasons, eta))
    return sorted(found, key=lambda info: (info.started_at, info.name), reverse=True)
