"""One job in `top`: what is known about it, and its attempts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from daybreak.api.job_history import Attempt, attempts
from daybreak.cli.jobs.show import event_detail, facts
from daybreak.cli.top.actions import ACTIONS
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.log_screen import LogScreen
from daybreak.cli.top.painted import STATE_STYLES, Part
from daybreak.cli.top.row_table import Row, RowTable, TableColumn
from daybreak.cli.top.text_pane import TextPane
from daybreak.cli.top.why_screen import WhyScreen
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.events import Event
from daybreak.core.model import Job
from daybreak.core.text import clock, first_line, lasted, safe

FIRST: Final = ("state", "why", "error", "progress", "arguments", "result")  # what people look for
MAX_ATTEMPTS: Final = 6  # lines of the table
MAX_EVENTS: Final = 100  # of the history
ATTEMPT_COLUMNS: Final = (
    TableColumn("ATTEMPT"), TableColumn("STARTED"), TableColumn("RAN"), TableColumn("ENDED"),
    TableColumn("WORKER", most=20, drop=1), TableColumn("ERROR", gives=True),
)  # fmt: skip


class JobScreen(DataScreen):
    """Everything about one job. Enter on an attempt opens its log."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"act('{action.name}')", show=False) for action in ACTIONS),
        Binding("escape,left,backspace", "back", show=False),
        Binding("l", "log", show=False),
        Binding("w", "why", show=False),
        Binding("z", "pause", show=False),
        Binding("y", "copy", show=False),
        Binding("up,k", "step(-1)", show=False, priority=True),
        Binding("down,j", "step(1)", show=False, priority=True),
        Binding("pageup,ctrl+b", "scroll_facts(-1)", show=False, priority=True),
        Binding("pagedown,ctrl+f", "scroll_facts(1)", show=False, priority=True),
    ]
    AUTO_FOCUS = "#attempts"
    KEYS = (
        (
            ("Esc", "back"), ("Enter", "log of attempt"), ("l", "log"), ("w", "why"), ("PgUp PgDn", "scroll"),
            ("z", "pause queue"), ("q", "quit"),
        ),
        (
            ("c", "cancel"), ("r", "retry"), ("s", "suspend"), ("u", "resume"), ("p", "priority"), ("n", "start"),
            ("b", "release"), ("d", "remove"),
        ),
    )  # fmt: skip

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job_id = job
        self._job: Job | None = None
        self._facts: list[tuple[str, str]] = []
        self._history: list[Event] = []
        self._attempts: list[Attempt] = []
        self._is_removed = False

    def body(self) -> Iterable[Widget]:
        yield TextPane(id="facts", hangs=12)
        yield RowTable(ATTEMPT_COLUMNS, id="attempts")

    async def read(self, client: Client) -> None:
        try:
            job = await client.get(self.job_id)
            history = await client.history(self.job_id)
            self._facts = await facts(client, job, history, datetime.now(UTC))
        except JobNotFound:
            self._is_removed = True
            return
        self._job, self._history, self._attempts = job, history, attempts(history)

    def show(self) -> None:
        job = self._job
        state = "removed" if self._is_removed else "reading …" if job is None else job.state.value
        self.show_title(first_line(job.spec.task, 40) if job is not None else "", state)
        self.query_one("#facts", TextPane).show(self._lines())
        table = self.query_one("#attempts", RowTable)
        table.empty = ["It has not started yet. Press w to see why."] if job is not None else []
        table.show([_row(n, one) for n, one in enumerate(self._attempts)])
        table.styles.height = min(max(len(self._attempts), 1), MAX_ATTEMPTS) + 2  # with the titles and the border
        self.show_status("This job was removed from the store. Press Esc to go back." if self._is_removed else "")

    def _lines(self) -> list[Part]:
        known = {name: value for name, value in self._facts if value}
        order = [name for name in FIRST if name in known] + [name for name in known if name not in FIRST]
        lines: list[Part] = [(f" {'id':<11}{self.job_id}", "")]
        for name in order:
            first, *rest = known[name].split("\n")
            lines.append((f" {name:<11}{first}", STATE_STYLES.get(first, "") if name == "state" else ""))
            lines += [(f" {'':<11}{line}", "") for line in rest]
        if self._job is not None and self._job.failure is not None and self._job.failure.traceback:
            lines += [("", ""), *((f" {line}", "") for line in trace_lines(self._job.failure.traceback))]
        return [*lines, ("", ""), (" What happened, and who did it", "bold"), *self._events()]

    def _events(self) -> list[Part]:
        """The latest events, the newest first."""
        events = self._history[-MAX_EVENTS:][::-1]
        return [
            (f" {clock(event.at)[11:19]}   {event.kind.replace('_', ' ')}, {event.by}  {event_detail(event)}", "")
            for event in events
        ]  # fmt: skip

    def action_scroll_facts(self, by: int) -> None:
        self.query_one("#facts", TextPane).action_move_page(by)

    def action_step(self, by: int) -> None:
        """Select another attempt. If there is only one, scroll."""
        if len(self._attempts) > 1:
            self.query_one("#attempts", RowTable).action_move(by)
        else:
            self.query_one("#facts", TextPane).action_move(by)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_act(self, name: str) -> None:
        self.run_worker(self.top.act(name, [self.job_id]))

    @on(RowTable.Chosen)
    def open(self, event: RowTable.Chosen) -> None:
        attempt = self._attempts[int(event.key)]
        self.app.push_screen(LogScreen(self.job_id, attempt.n))

    def action_log(self) -> None:
        self.app.push_screen(LogScreen(self.job_id))

    def action_why(self) -> None:
        self.app.push_screen(WhyScreen(self.job_id))

    def action_pause(self) -> None:
        if self._job is not None:
            self.run_worker(self.top.toggle_queue(self._job.spec.queue))

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.job_id)
        self.top.say(f"Copied {self.job_id}.")


def trace_lines(traceback: str) -> list[str]:
    return safe(traceback.rstrip(), lines=True).split("\n")


def _row(n: int, one: Attempt) -> Row:
    ran = lasted(one.ended_at - one.started_at) if one.ended_at else ""
    cells = (str(one.n), clock(one.started_at)[11:19], ran, one.ended or "running", one.worker, first_line(one.error))
    return Row(key=str(n), cells=cells)
