"""`daybreak workers`: lists workers."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from daybreak.api.views.worker import worker_view
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, counted, number, roughly, safe
from daybreak.core.units import bytes_text


@click.command("workers", short_help="List workers and whether they are live.")
@click.option("--live", is_flag=True, help="Only live workers.")
@as_json
def command(live: bool, as_json: bool) -> int:
    """List workers. A worker is live if it updated its record within the last three leases. A worker that is gone
    crashed or lost the store; other workers take over its jobs.

    Example:
      daybreak workers --live

    """
    return session().run(lambda client: _list(client, live=live, as_json=as_json))


store_options(command)


async def _list(client: Client, *, live: bool, as_json: bool) -> int:
    now = datetime.now(UTC)
    found = [worker for worker in await read_workers(client) if not live or worker.is_live(now)]
    if as_json:
        say_json({"workers": [worker_view(worker, now) for worker in found]})
        return 0
    if not found:
        say(f"No {'live ' if live else ''}workers. Start one with: {session().start_worker()}")
        return 0
    say_table(
        [
            Column("WORKER"), Column("STATE"), Column("HOST", drop=2), Column("PID", right=True), Column("APP", drop=1),
            Column("QUEUES", gives=True), Column("TASKS", right=True), Column("RUNNING", right=True),
            Column("DONE", right=True), Column("FAILED", right=True), Column("MEMORY", right=True, drop=4),
            Column("UP", drop=3), Column("SEEN"),
        ],
        [_row(worker, now) for worker in found],
    )  # fmt: skip
    say()
    say(_summary(found, now))
    return 0


def _row(worker: WorkerInfo, now: datetime) -> list[str]:
    up = roughly(now - worker.started_at) if worker.started_at and worker.is_live(now) else ""
    return [
        safe(worker.name or worker.id), worker.state(now), safe(worker.host), str(worker.pid or ""),
        safe(worker.app or ""), safe(", ".join(worker.queues)), number(len({task for task, _ in worker.tasks})),
        number(worker.running), number(worker.done), number(worker.failed),
        _memory(worker), up, ago(worker.seen_at, now),
    ]  # fmt: skip


def _memory(worker: WorkerInfo) -> str:
    memory = worker.total_memory
    return "unknown" if memory is None else bytes_text(memory)


def _summary(found: list[WorkerInfo], now: datetime) -> str:
    live = sum(worker.is_live(now) for worker in found)
    gone = sum(worker.state(now) == "gone" for worker in found)
    summary = counted(live, "live worker")
    if gone:
        summary += f", {number(gone)} gone"
    if not live:
        return f"{summary}. Start one with: {session().start_worker()}"
    return f"{summary}. Watch them with: {session().command('top')}"
