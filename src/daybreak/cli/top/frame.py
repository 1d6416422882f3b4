"""One frame of `top`, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from daybreak.cli.output import Column, table_lines
from daybreak.cli.queues.queue_text import by_bucket, described
from daybreak.core.model import WAITING, Job, State
from daybreak.core.text import ago, bar, counted, first_line, local, number, percent, priority_name, roughly, safe

if TYPE_CHECKING:
    from daybreak.api.queue_info import QueueInfo
    from daybreak.cli.top.snapshot import Snapshot

BAR = 20
MAX_ROWS = {"queues": 10, "running": 20, "failed": 5}  # rows of each table


def frame(
    snapshot: Snapshot, rates: dict[str, float], store: str, width: int | None, height: int | None = None
) -> list[Text]:
    """The whole view. If a height is given, tables lose rows until it fits, but each keeps at least one."""
    rows = {"queues": len(_busy(snapshot)), "running": len(snapshot.running), "failed": len(snapshot.failed)}
    rows = {name: min(n, MAX_ROWS[name]) for name, n in rows.items()}
    while True:
        lines = [_title(snapshot, store), _totals(snapshot), *([_speed(rates)] if rates else []), Text()]
        lines += _depth(snapshot, width)
        lines += _queues(snapshot, width, rows["queues"])
        lines += _running(snapshot, width, rows["running"])
        lines += _failed(snapshot, width, rows["failed"])
        longest = max(rows, key=lambda name: rows[name])
        if height is None or len(lines) <= height or rows[longest] <= 1:
            return lines
        rows[longest] -= 1


def _title(snapshot: Snapshot, store: str) -> Text:
    line = Text("Daybreak", "bold")
    line.append(f"  {safe(store)}  {local(snapshot.at)}", "dim")
    return line


def _totals(snapshot: Snapshot) -> Text:
    states = snapshot.states
    waiting = sum(states[state] for state in WAITING)
    line = Text(f"{number(waiting)} waiting")
    line.append(f"  {number(states[State.RUNNING])} running", "cyan")
    line.append(f"  {number(states[State.COMPLETED])} completed", "green")
    line.append(f"  {number(states[State.FAILED])} failed", "red" if states[State.FAILED] else "")
    line.append(f"  {counted(len(snapshot.workers), 'live worker')}", "" if snapshot.workers else "yellow")
    return line


def _speed(rates: dict[str, float]) -> Text:
    return Text("per second  " + "  ".join(f"{name} {rate:,.1f}" for name, rate in rates.items()))


def _depth(snapshot: Snapshot, width: int | None) -> list[Text]:
    depth = by_bucket(dict(snapshot.priorities))
    most = max(depth.values())
    rows = [[p.name.lower(), number(n), bar(n / most, BAR).rstrip("░") if most else ""] for p, n in depth.items()]
    return [*table_lines([Column("PRIORITY"), Column("WAITING", right=True), Column("")], rows, width), Text()]


def _busy(snapshot: Snapshot) -> list[QueueInfo]:
    """Queues with waiting or running jobs, and paused ones; the longest first."""
    busy = [q for q in snapshot.queues if q.waiting or q.states.get(State.RUNNING) or q.settings.paused]
    return sorted(busy, key=lambda queue: -queue.waiting)


def _queues(snapshot: Snapshot, width: int | None, most: int) -> list[Text]:
    busy = _busy(snapshot)
    if not busy:
        return []
    columns = [
        Column("QUEUE"), Column("WAITING", right=True), Column("RUNNING", right=True), Column("FAILED", right=True),
        Column("SETTINGS", gives=True),
    ]  # fmt: skip
    rows = [
        [
            safe(queue.name), number(queue.waiting), number(queue.states.get(State.RUNNING, 0)),
            number(queue.states.get(State.FAILED, 0)), described(queue.settings),
        ]
        for queue in busy[:most]
    ]  # fmt: skip
    return [*table_lines(columns, rows, width), *_more(len(busy) - most), Text()]


def _more(n: int) -> list[Text]:
    return [Text(f"and {number(n)} more", "dim")] if n > 0 else []


def _running(snapshot: Snapshot, width: int | None, most: int) -> list[Text]:
    if not snapshot.running:
        return []
    columns = [
        Column("RUNNING"), Column("TASK"), Column("PRIORITY", drop=2), Column("ATTEMPT", drop=1), Column("FOR"),
        Column("DONE"), Column("DETAIL", gives=True),
    ]  # fmt: skip
    rows = [_job(job, snapshot) for job in snapshot.running[:most]]
    return [*table_lines(columns, rows, width), *_more(snapshot.states[State.RUNNING] - len(rows)), Text()]


def _job(job: Job, snapshot: Snapshot) -> list[str]:
    done = "" if job.progress is None else f"{bar(job.progress, 10)} {percent(job.progress)}"
    return [
        safe(job.id), first_line(job.spec.task, 60), priority_name(job.priority),
        f"{job.attempt}/{job.spec.options.retry.attempts}", roughly(snapshot.at - (job.started_at or snapshot.at)),
        done, first_line(job.message),
    ]  # fmt: skip


def _failed(snapshot: Snapshot, width: int | None, most: int) -> list[Text]:
    if not snapshot.failed:
        return []
    columns = [Column("FAILED"), Column("TASK"), Column("WHEN"), Column("REASON", drop=1), Column("ERROR", gives=True)]
    rows = [
        [
            safe(job.id), first_line(job.spec.task, 60), ago(job.finished_at, snapshot.at), job.reason or "",
            first_line(str(job.failure or job.note)),
        ]
        for job in snapshot.failed[:most]
    ]  # fmt: skip
    return table_lines(columns, rows, width)
