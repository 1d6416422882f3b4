"""The queues and the workers in `top`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from daybreak.api.queue_info import QueueInfo
from daybreak.api.worker_info import WorkerInfo
from daybreak.cli.queues.queue_text import described
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.overview import Overview, OverviewReader
from daybreak.cli.top.painted import Bar, Line
from daybreak.cli.top.row_table import Row, RowTable, TableColumn
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.text import ago, bar, number

BAR: Final = 30
QUEUE_COLUMNS: Final = (
    TableColumn("QUEUE", most=30), TableColumn("WAITING", right=True), TableColumn("RUNNING", right=True),
    TableColumn("FAILED", right=True), TableColumn("STATE"), TableColumn("SETTINGS", gives=True),
)  # fmt: skip
WORKER_COLUMNS: Final = (
    TableColumn("WORKER", most=24), TableColumn("STATE"), TableColumn("HOST", most=20, drop=1),
    TableColumn("RUNNING", right=True), TableColumn("DONE", right=True), TableColumn("FAILED", right=True),
    TableColumn("SEEN"), TableColumn("QUEUES", gives=True),
)  # fmt: skip


class QueuesScreen(DataScreen):
    """Depth by priority, the queues with their settings, and the workers. Enter lists the jobs of a queue."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,backspace,o", "back", show=False),
        Binding("z", "pause", show=False),
    ]
    KEYS = (
        (
            ("Esc", "back"), ("Enter", "jobs of the queue"), ("z", "pause or resume it"), ("Tab", "workers"),
            ("q", "quit"),
        ),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._reader = OverviewReader()
        self._overview: Overview | None = None

    def body(self) -> Iterable[Widget]:
        yield Bar(id="depth")
        yield RowTable(QUEUE_COLUMNS, id="queues")
        yield RowTable(WORKER_COLUMNS, id="workers")

    async def read(self, client: Client) -> None:
        self._overview = await self._reader.read(client)

    def show(self) -> None:
        read = self._overview or Overview(at=datetime.now(UTC))
        self.show_title("queues and workers", read.workers_text() if self._overview else "reading …")
        self.bar("depth").show(*_depth(read))
        queues, workers = self.query_one("#queues", RowTable), self.query_one("#workers", RowTable)
        if self._overview is not None:
            queues.empty = ["There are no queues yet.", "", "A queue appears with its first job or its first setting."]
            workers.empty = ["There are no workers.", "", f"Start one with: {self.top.start_worker()}"]
        queues.show([_queue_row(queue) for queue in sorted(read.queues, key=lambda one: -one.waiting)])
        workers.show([_worker_row(worker, read.at) for worker in read.workers])
        self.show_status()

    def action_pause(self) -> None:
        if (queue := self.query_one("#queues", RowTable).selected) is not None:
            self.run_worker(self.top.toggle_queue(queue))

    @on(RowTable.Chosen, "#queues")
    def open(self, event: RowTable.Chosen) -> None:
        self.dismiss(event.key)

    def action_back(self) -> None:
        self.dismiss(None)


def _depth(read: Overview) -> list[Line]:
    depth = read.depth()
    most = max(depth.values()) or 1
    lines: list[Line] = []
    for name, n in depth.items():
        lines.append([(f" {name:<12}{number(n):>10}  ", ""), (bar(n / most, BAR).rstrip("░"), "cyan")])
    return lines


def _queue_row(queue: QueueInfo) -> Row:
    counts = [queue.waiting, queue.states.get(State.RUNNING, 0), queue.states.get(State.FAILED, 0)]
    settings = described(queue.settings).removeprefix("paused").removeprefix(", ")
    if queue.settings.max_running is not None:
        limit = f"max_running {number(queue.settings.max_running)}"
        settings = f"{limit}, {settings}" if settings else limit
    state = "paused" if queue.settings.paused else "open"
    return Row(key=queue.name, cells=(queue.name, *(number(n) for n in counts), state, settings))


def _worker_row(worker: WorkerInfo, now: datetime) -> Row:
    cells = (
        worker.name or worker.id, worker.state(now), worker.host, number(worker.running), number(worker.done),
        number(worker.failed), ago(worker.seen_at, now), ", ".join(worker.queues) or "all",
    )  # fmt: skip
    return Row(key=worker.id, cells=cells)
