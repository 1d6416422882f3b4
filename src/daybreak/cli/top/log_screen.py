"""The log of a job in `top`. It is followed while the job runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from daybreak.api.views.job_logs import log_text
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.painted import Part
from daybreak.cli.top.text_pane import TextPane
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.model import Job, State
from daybreak.core.text import first_line, safe


class LogScreen(DataScreen):
    """What a job has printed and logged: all attempts, or one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,left,backspace", "back", show=False)]
    KEYS = ((("Esc", "back"), ("Up Down PgUp PgDn", "scroll"), ("Home", "start"), ("End", "follow"), ("q", "quit")),)

    def __init__(self, job: str, attempt: int | None = None) -> None:
        super().__init__()
        self.job_id = job
        self._attempt = attempt
        self._job: Job | None = None
        self._text: str | None = None
        self._is_whole = False  # the job has ended, and its whole log was read

    def body(self) -> Iterable[Widget]:
        yield TextPane(id="log", follows=True)

    async def read(self, client: Client) -> None:
        if self._is_whole and self._job is not None and (await client.get(self.job_id)).revision == self._job.revision:
            return
        try:
            job = await client.get(self.job_id)  # read before the log: the log is stored before the job ends
        except JobNotFound:
            self._is_whole = True
            return
        self._text = log_text(await client.logs(self.job_id, attempt=self._attempt))
        self._job, self._is_whole = job, job.is_final

    def show(self) -> None:
        job = self._job
        whose = first_line(job.spec.task, 40) if job is not None else ""
        self.show_title(f"log of {whose} {self.job_id[-8:]}", f"attempt {self._attempt}" if self._attempt else "")
        self.query_one(TextPane).show(self._lines())
        self.show_status(self._hint())

    def _lines(self) -> list[Part]:
        if self._text is None:
            return [("", ""), (" Reading …", "")]
        if not self._text:
            return [
                ("", ""), (" This job has printed nothing.", "bold"), ("", ""),
                (" What its task prints, or writes with ctx.log, appears here while it runs.", ""),
            ]  # fmt: skip
        return [(line, "") for line in safe(self._text.removesuffix("\n"), lines=True).split("\n")]

    def _hint(self) -> str:
        if self._job is None:
            return ""
        if self._job.state is State.RUNNING:
            if self.query_one(TextPane).follows:
                return "It runs: new lines appear here."
            return "It runs: press End to follow new lines."
        return f"The job is {self._job.state.value}."

    def action_back(self) -> None:
        self.dismiss(None)
