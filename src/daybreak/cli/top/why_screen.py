"""Why a job waits, in `top`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from daybreak.api.why import explain, read_situation
from daybreak.cli.top.actions import ACTIONS
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.text_pane import TextPane
from daybreak.cli.why import why_lines
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.text import first_line


class WhyScreen(DataScreen):
    """The cause, who is in the way, the command that removes it, and the expected start."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"act('{action.name}')", show=False) for action in ACTIONS),
        Binding("escape,left,backspace,w", "back", show=False),
        Binding("z", "pause", show=False),
    ]
    KEYS = (
        (
            ("Esc", "back"), ("n", "start now"), ("u", "resume"), ("p", "priority"), ("r", "retry"), ("b", "release"),
            ("z", "pause queue"), ("q", "quit"),
        ),
    )  # fmt: skip

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job_id = job
        self._queue: str | None = None
        self._heading = ""
        self._lines: list[str] = ["", "Reading …"]

    def body(self) -> Iterable[Widget]:
        yield TextPane(id="why")

    async def read(self, client: Client) -> None:
        try:
            situation = await read_situation(client, self.job_id)
        except JobNotFound:
            self._lines = ["", "This job was removed from the store."]
            return
        job = situation.job
        self._queue = job.spec.queue
        self._heading = f"why is {first_line(job.spec.task, 40)} {job.id[-8:]} {job.state.value}?"
        self._lines = why_lines(explain(situation), self.top.command)

    def show(self) -> None:
        self.show_title(self._heading)
        # A line that begins with spaces is a command or a list of ids.
        self.query_one(TextPane).show([(f"  {line}", "bold" if line.startswith(" ") else "") for line in self._lines])
        self.show_status("The commands can be typed in another terminal; the keys below do the same here.")

    def action_act(self, name: str) -> None:
        self.run_worker(self.top.act(name, [self.job_id]))

    def action_pause(self) -> None:
        if self._queue is not None:
            self.run_worker(self.top.toggle_queue(self._queue))

    def action_back(self) -> None:
        self.dismiss(None)
