"""`daybreak workers`: who runs jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from daybreak.api.views.worker import worker_view
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.text import ago, counted, number, roughly, safe
from daybreak.client.client import Client


@click.command("workers", short_help="List workers: who is there, who has gone.")
@click.option("--live", is_flag=True, help="Only those that are there.")
@as_json
def command(live: bool, as_json: bool) -> int:
    """List workers. A live one was heard of within three leases; one that has gone left without a word, and its jobs
    are taken over by others.

    Example:
      daybreak workers --live

    """
    return session().run(lambda client: _list(client, live=live, as_json=as_json))


store_options(command)


async def _list(client: Client, *, live: bool, as_json: bool) -> int:
    now = datetime.now(UTC)
    found = [seen for seen in await read_workers(client) if not live or seen.is_live(now)]
    if as_json:
        say_json({"workers": [worker_view(seen, now) for seen in found]})
        return 0
    if not found:
        say(f"No {'live ' if live else ''}workers. Start one with: {session().start_worker()}")
        return 0
    say_table(
        [
            Column("WORKER"), Column("STATE"), Column("HOST", drop=2), Column("PID", right=True), Column("APP", drop=1),
            Column("QUEUES", gives=True), Column("TASKS", right=True), Column("RUNNING", right=True),
            Column("DONE", right=True), Column("FAILED", right=True), Column("UP", drop=3), Column("SEEN"),
        ],
        [_row(seen, now) for seen in found],
    )  # fmt: skip
    say()
    say(_summary(found, now))
    return 0


def _row(seen: WorkerInfo, now: datetime) -> list[str]:
    up = roughly(now - seen.started_at) if seen.started_at and seen.is_live(now) else ""
    return [
        safe(seen.name or seen.id), seen.state(now), safe(seen.host), str(seen.pid or ""), safe(seen.app or ""),
        safe(", ".join(seen.queues)), number(len({task for task, _ in seen.tasks})), number(seen.running),
        number(seen.done), number(seen.failed), up, ago(seen.seen_at, now),
    ]  # fmt: skip


def _summary(found: list[WorkerInfo], now: datetime) -> str:
    live = sum(seen.is_live(now) for seen in found)
    gone = sum(seen.state(now) == "gone" for seen in found)
    told = f"{counted(live, 'live worker')}" + (f", {number(gone)} gone without a word" if gone else "") + "."
    if not live:
        return f"{told} Start one with: {session().start_worker()}"
    return f"{told} What they do: {session().command('top')}"
