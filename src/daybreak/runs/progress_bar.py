"""The progress bar of `run.wait(progress=True)`: counts, failures, and the range in which the run will probably end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from daybreak.core.model import State
from daybreak.runs.run_info import Eta, RunInfo

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ETA_EVERY: Final = 3.0  # seconds


class ProgressBar(Protocol):
    """Shows the progress of a run."""

    def wants_eta(self, now: float) -> bool:
        """Whether the next figures should have a predicted end."""
        ...

    def show(self, info: RunInfo) -> None:
        """Show these figures."""
        ...


@contextmanager
def run_progress(name: str, *, shown: bool) -> Iterator[ProgressBar]:
    """A bar on the terminal, or nothing if it is not wanted or there is no terminal."""
    if not shown or not sys.stderr.isatty():
        yield _NoBar()
        return
    from rich.console import Console  # noqa: PLC0415 - most programs show no bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, progress.add_task(name, total=None, note=""))


class _NoBar:
    def wants_eta(self, now: float) -> bool:  # noqa: ARG002
        return False

    def show(self, info: RunInfo) -> None:
        pass


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._asked_at = 0.0
        self._eta: Eta | None = None

    def wants_eta(self, now: float) -> bool:
        if now - self._asked_at < ETA_EVERY:
            return False
        self._asked_at = now
        return True

    def show(self, info: RunInfo) -> None:
        self._eta = info.eta or self._eta
        self._progress.update(self._task, total=info.job_count, completed=info.done, note=note_of(info, self._eta))


def note_of(info: RunInfo, eta: Eta | None) -> str:
    """What the bar says besides the counts."""
    parts = []
    if info.jobs[State.FAILED]:
        parts.append(f"{info.jobs[State.FAILED]:,} failed")
    if info.jobs[State.RUNNING]:
        parts.append(f"{info.jobs[State.RUNNING]:,} running")
    if info.state == "paused":
        parts.append(f"paused: {info.note}")
    elif eta is not None and not info.is_over:
        parts.append(f"ends {eta_text(eta)}")
    return ", ".join(parts)


def eta_text(eta: Eta) -> str:
    """The range in local time: with the day if it is not today's."""
    low, high = eta.low.astimezone(), eta.high.astimezone()
    if low.date() == high.date() == eta.low.now(low.tzinfo).date():
        pattern = "%H:%M:%S" if (high - low).total_seconds() < 120 else "%H:%M"
        return f"{low:{pattern}} to {high:{pattern}}"
    return f"{low:%a %H:%M} to {high:%a %H:%M}"
