"""The output of the demo: a live view on a terminal, lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from daybreak.core.model import State

PROGRESS_LINES: Final = 5  # printed during the demo if the output is not a terminal
BAR_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The demo at one moment: how many jobs are in each state, and the status of each worker."""

    counts: Mapping[State, int]
    total: int
    workers: Mapping[str, str]

    @property
    def done(self) -> int:
        return self.counts.get(State.COMPLETED, 0)


class Show:
    """Prints what happens, each line with the time since the start, and shows the progress between the lines."""

    def __init__(self, console: Console, *, live: bool | None = None) -> None:
        self.console = console
        self._began = time.monotonic()
        is_live = console.is_terminal and not console.is_dumb_terminal if live is None else live
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live else None
        self._parts_shown = 0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    # -- lines ---------------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        self.plain(text, "bold")

    def plain(self, text: str = "", style: str = "") -> None:
        self._print(Text(text, style))

    def say(self, text: str, style: str = "") -> None:
        self._print(Text.assemble((f"{time.monotonic() - self._began:5.1f} s  ", "dim"), (text, style)))

    def _print(self, line: Text) -> None:
        # A pipe has no width: do not wrap lines there.
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def progress(self, snapshot: Snapshot) -> None:
        """Update the live view; without one, print a line after each fifth of the jobs."""
        if self._live is not None:
            self._live.update(_view(snapshot), refresh=True)
        elif (part := PROGRESS_LINES * snapshot.done // max(snapshot.total, 1)) > self._parts_shown:
            self._parts_shown = part
            self.say(f"{snapshot.done} of {snapshot.total} completed", "dim")

    # -- figures -------------------------------------------------------------------------------------------------------

    def pairs(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Print names, values and their meanings, one row per line."""
        names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, value, meaning in rows:
            self._print(Text.assemble((f"  {name:<{names}}  ", "dim"), (f"{value:>{values}}", "bold"), f"  {meaning}"))

    def bars(self, rows: Sequence[tuple[str, float, str]]) -> None:
        """Horizontal bars, the longest across the whole width."""
        full, half = ("\u2588", "\u258c") if self.console.encoding.startswith("utf") else ("#", "")
        longest = max((value for _, value, _ in rows), default=1.0)
        for name, value, label in rows:
            length = value / longest * BAR_WIDTH
            bar = full * int(length) + (half if length % 1 >= 0.5 else "")
            self._print(Text.assemble((f"  {name}  ", "dim"), (bar, "cyan"), f" {label}"))


def _view(snapshot: Snapshot) -> RenderableType:
    top = Table.grid(padding=(0, 1))
    top.add_row(
        ProgressBar(total=max(snapshot.total, 1), completed=snapshot.done, width=BAR_WIDTH),
        Text(f"{snapshot.done}/{snapshot.total} completed", "bold"),
    )
    below = Text()
    for state, style in ((State.RUNNING, "cyan"), (State.QUEUED, ""), (State.SCHEDULED, "yellow")):
        name = "before a retry" if state is State.SCHEDULED else state.value
        below.append(f"{name} {snapshot.counts.get(state, 0)}   ", style)
    for name, how in snapshot.workers.items():
        below.append(f"{name}: {how}   ", "red" if how == "killed" else "green")
    return Group(Text(), top, below)


def seconds(span: timedelta | None) -> str:
    """A measured time as text."""
    if span is None:
        return "never"
    value = span.total_seconds()
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
