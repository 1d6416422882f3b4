"""A job as one row of the list in `top`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from daybreak.cli.jobs.list import detail, when
from daybreak.cli.top.row_table import Row, TableColumn
from daybreak.core.model import Job, Reason, State
from daybreak.core.text import first_line, percent, priority_name, safe

# The end of an id tells jobs apart: the beginnings of ids that were made at the same time are equal.
ID_END: Final = 8
WIDE: Final = 130  # characters from which ids are shown in full

COLUMNS: Final = (
    TableColumn("ID"),
    TableColumn("TASK", most=24),
    TableColumn("QUEUE", most=16, drop=2),
    TableColumn("STATE"),
    TableColumn("PRIORITY", drop=1),
    TableColumn("TRY", drop=3),
    TableColumn("WHEN"),
    TableColumn("DETAIL", gives=True),
)


def short_id(job_id: str) -> str:
    """The end of an id, which every command accepts."""
    return job_id[-ID_END:]


def job_row(job: Job, now: datetime, *, is_wide: bool) -> Row:
    spec = job.spec
    name = spec.id if is_wide else short_id(spec.id)
    cells = (
        safe(name), first_line(spec.task, 60), safe(spec.queue), job.state.value, priority_name(job.priority),
        f"{job.attempt}/{spec.options.retry.attempts}", when(job, now), _detail(job),
    )  # fmt: skip
    return Row(key=spec.id, cells=cells)


def removed_row(row: Row) -> Row:
    """The row of a job that is not in the store any more."""
    cells = list(row.cells)
    cells[3:] = ["removed", "", "", "", ""]
    return Row(key=row.key, cells=tuple(cells))


def _detail(job: Job) -> str:
    done = percent(job.progress) if job.state is State.RUNNING else ""
    reason = job.reason.value if job.reason and job.reason is not Reason.ERROR else ""
    return "  ".join(part for part in (done, reason, detail(job)) if part)
