"""The first screen of `top`: figures, and the list of jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from daybreak.cli.top.actions import ACTIONS
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.filter_bar import FilterBar
from daybreak.cli.top.filter_words import ListFilter, parse_filter
from daybreak.cli.top.job_list import JobList
from daybreak.cli.top.job_rows import COLUMNS, WIDE, job_row, removed_row
from daybreak.cli.top.job_screen import JobScreen
from daybreak.cli.top.log_screen import LogScreen
from daybreak.cli.top.overview import VIEWS, Overview, OverviewReader, short_number
from daybreak.cli.top.painted import Bar, Line, Part
from daybreak.cli.top.queues_screen import QueuesScreen
from daybreak.cli.top.row_table import Row, RowTable
from daybreak.cli.top.why_screen import WhyScreen
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import Job
from daybreak.core.text import counted, number

WIDE_VIEWS: Final = 104  # columns from which the views show their keys
FILTER_HINT: Final = "Enter applies it. state queue task run owner tag priority reason since text"


class JobsScreen(DataScreen):
    """Figures, the views by state, and one page of jobs. The selected job stays selected whatever happens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"act('{action.name}')", show=False) for action in ACTIONS),
        *(Binding(key, f"view({n})", show=False) for n, (key, _, _) in enumerate(VIEWS)),
        Binding("left", "next_view(-1)", show=False),
        Binding("right", "next_view(1)", show=False),
        Binding("space", "mark", show=False),
        Binding("a", "mark_all", show=False),
        Binding("escape", "clear", show=False),
        Binding("slash", "filter", show=False),
        Binding("right_square_bracket", "page(1)", show=False),
        Binding("left_square_bracket", "page(-1)", show=False),
        Binding("l", "log", show=False),
        Binding("w", "why", show=False),
        Binding("z", "pause", show=False),
        Binding("o", "queues", show=False),
        Binding("y", "copy", show=False),
    ]
    KEYS = (
        (
            ("Enter", "open"), ("l", "log"), ("w", "why"), ("/", "filter"), ("1-6", "view"), ("Space", "mark"),
            ("o", "queues"), ("?", "help"), ("q", "quit"),
        ),
        (
            ("c", "cancel"), ("r", "retry"), ("s", "suspend"), ("u", "resume"), ("p", "priority"), ("n", "start"),
            ("b", "release"), ("d", "remove"),
        ),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.jobs = JobList()
        self._reader = OverviewReader()
        self._overview = Overview(at=datetime.now(UTC))
        self._is_read = False
        self._is_new = True  # another filter or page: the cursor goes to the first job
        self._away: Job | None = None  # the selected job, if the page does not hold it any more

    def body(self) -> Iterable[Widget]:
        yield Bar(id="overview")
        yield Bar(id="views")
        yield Bar(id="filter")
        line = FilterBar()
        line.display = False
        yield line
        yield RowTable(COLUMNS, id="jobs")

    @property
    def table(self) -> RowTable:
        return self.query_one("#jobs", RowTable)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, client: Client) -> None:
        await self.jobs.refresh(client)
        self._overview = await self._reader.read(client)
        selected = self.table.selected
        self._away = None
        if selected is not None and not self._is_new and all(job.id != selected for job in self.jobs.jobs):
            [self._away] = await client.store.get([selected])
        self._is_read = True

    # -- drawing -------------------------------------------------------------------------------------------------------

    def show(self) -> None:
        if self._is_read:
            self._show_rows()
            self._is_new = False
        self.show_title(self.top.store_name, self._overview.workers_text() if self._is_read else "reading …")
        self.bar("overview").show(self._depth(), self._speed())
        self.bar("views").show(self._views())
        self.bar("filter").show(self._filter())
        self.show_status(self._hint())

    def _show_rows(self) -> None:
        now, is_wide = self._overview.at, self.size.width >= WIDE
        rows = [job_row(job, now, is_wide=is_wide) for job in self.jobs.jobs]
        table = self.table
        selected = None if self._is_new else table.selected
        if selected is not None and all(row.key != selected for row in rows):
            rows.insert(min(table.index, len(rows)), self._away_row(table, selected, is_wide=is_wide))
        table.empty = self._empty()
        table.show(rows, at_top=self._is_new)

    def _away_row(self, table: RowTable, selected: str, *, is_wide: bool) -> Row:
        """The selected job, though it does not match the filter any more, or was removed."""
        if self._away is not None and self._away.id == selected:
            return job_row(self._away, self._overview.at, is_wide=is_wide)
        return removed_row(table.rows[table.index])

    def _depth(self) -> Line:
        waiting = self._overview.of_view(VIEWS[1][2])
        parts: list[Part] = [(f" waiting {short_number(waiting)}", "bold")]
        for name, n in self._overview.depth().items():
            parts.append((f"  {name} {short_number(n)}", "" if n else "dim"))
        return parts

    def _speed(self) -> Line:
        rates = self._overview.rates or dict.fromkeys(("submitted", "completed", "failed"), 0.0)
        text = "  ".join(f"{name} {rate:,.1f}" for name, rate in rates.items())
        return [(f" per second  {text}", ""), ("", ""), (f"{self._overview.oldest_text()} ", "")]

    def _views(self) -> Line:
        has_keys = self.size.width >= WIDE_VIEWS
        parts: list[Part] = []
        for key, name, states in VIEWS:
            text = f"{name} {short_number(self._overview.of_view(states))}"
            text = f"{key} {text}" if has_keys else text
            is_shown = states == self.jobs.filter.filter.states
            parts.append((f"[{text}]" if is_shown else f" {text} ", "bold reverse" if is_shown else ""))
        return parts

    def _filter(self) -> Line:
        marks = self.table.marks
        left = f" {self.jobs.filter}" if not self.jobs.filter.is_empty else " all jobs, the newest first"
        right = [f"{counted(len(marks), 'job')} marked"] if marks else []
        if self.jobs.searched is not None:
            right.append(f"searched {number(self.jobs.searched)} so far" if self.jobs.searched else "searching …")
        if self.jobs.next is not None or self.jobs.page > 1:
            right.append(f"page {self.jobs.page}, ] next [ back")
        return [(left, ""), ("", ""), ("  ".join(right) + " ", "bold")]

    def _empty(self) -> list[str]:
        if not self.jobs.filter.is_empty:
            lines = [f"No {self.jobs.filter}.", ""]
            if self.jobs.searched is not None:
                lines[1] = "The search goes on."
            return [*lines, "Press Esc for all jobs, / to change the filter, or 1 to 6 for another view."]
        return [
            "There are no jobs yet.", "",
            "Submit one with:   " + self.top.command("submit", "TASK", "name=value"),
            "or a command line: " + self.top.command("exec", "--", "echo", "hello"),
            "See a demo with:   daybreak demo",
        ]  # fmt: skip

    @on(RowTable.Moved)
    def show_detail(self) -> None:
        self.top.message = ""
        self.show_status(self._hint())

    def _hint(self) -> str:
        """The detail of the selected job, which the column may have cut; or what is missing for jobs to run."""
        if self.query_one(FilterBar).display:
            return FILTER_HINT
        selected = self.table.row(self.table.selected or "")
        if selected is not None and selected.cells[-1]:
            return selected.cells[-1]
        if self._is_read and not self._overview.live and self._overview.of_view(VIEWS[1][2]):
            return f"No worker runs. Start one with: {self.top.start_worker()}"
        return ""

    # -- filters -------------------------------------------------------------------------------------------------------

    def change_filter(self, wanted: ListFilter) -> None:
        self.jobs.change(wanted)
        self._is_new, self._is_read = True, False
        self.top.message = ""
        self.table.rows = []
        self.table.empty = ["Reading …"]
        self.show()
        self.top.hurry()

    def action_view(self, n: int) -> None:
        _, _, states = VIEWS[n]
        wanted = self.jobs.filter
        self.change_filter(ListFilter(wanted.where.with_states(states), wanted.words))

    def action_next_view(self, by: int) -> None:
        states = self.jobs.filter.filter.states
        n = next((n for n, view in enumerate(VIEWS) if view[2] == states), 0)
        self.action_view((n + by) % len(VIEWS))

    def action_filter(self) -> None:
        self.bar("filter").display = False
        self.query_one(FilterBar).open(self.jobs.filter.line())
        self.top.say("")

    @on(Input.Submitted)
    def apply(self, event: Input.Submitted) -> None:
        try:
            wanted = parse_filter(event.value)
        except BadInput as error:
            self.top.say(f"{error}")
            return
        self.leave()
        self.change_filter(wanted)

    @on(FilterBar.Left)
    def leave(self) -> None:
        self.query_one(FilterBar).display = False
        self.bar("filter").display = True
        self.table.focus()
        self.top.say("")

    def action_page(self, by: int) -> None:
        if self.jobs.forward() if by > 0 else self.jobs.back():
            self._is_new = True
            self.top.hurry()
        else:
            self.top.say("This is the last page." if by > 0 else "This is the first page.")

    # -- marks ---------------------------------------------------------------------------------------------------------

    def action_mark(self) -> None:
        if (job := self.table.selected) is not None:
            self.table.marks ^= {job}
            self.table.action_move(1)
            self.show()

    def action_mark_all(self) -> None:
        """Mark every job of the page; if all are marked, none."""
        listed = {row.key for row in self.table.rows}
        self.table.marks = self.table.marks - listed if listed <= self.table.marks else self.table.marks | listed
        self.show()

    def action_clear(self) -> None:
        """Take back the marks, or if there are none, the filter."""
        if self.table.marks:
            self.table.marks = set()
            self.top.say("")
        elif not self.jobs.filter.is_empty:
            self.change_filter(parse_filter(""))
        else:
            self.top.say("")

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def targets(self) -> list[str]:
        """The marked jobs, or else the selected one."""
        selected = self.table.selected
        return sorted(self.table.marks) or ([] if selected is None else [selected])

    def action_act(self, name: str) -> None:
        if targets := self.targets():
            self.run_worker(self._act(name, targets))

    async def _act(self, name: str, targets: list[str]) -> None:
        changed = await self.top.act(name, targets)
        self.table.marks -= changed

    @on(RowTable.Chosen)
    def open(self, event: RowTable.Chosen) -> None:
        self.app.push_screen(JobScreen(event.key))

    def action_log(self) -> None:
        if (job := self.table.selected) is not None:
            self.app.push_screen(LogScreen(job))

    def action_why(self) -> None:
        if (job := self.table.selected) is not None:
            self.app.push_screen(WhyScreen(job))

    def action_pause(self) -> None:
        job = next((job for job in self.jobs.jobs if job.id == self.table.selected), self._away)
        if job is not None:
            self.run_worker(self.top.toggle_queue(job.spec.queue))

    def action_queues(self) -> None:
        self.app.push_screen(QueuesScreen(), self._filter_queue)

    def _filter_queue(self, queue: str | None) -> None:
        if queue is not None:
            self.change_filter(parse_filter(f"queue={shlex.quote(queue)}"))

    def action_copy(self) -> None:
        if (job := self.table.selected) is not None:
            self.app.copy_to_clipboard(job)
            self.top.say(f"Copied {job}.")
