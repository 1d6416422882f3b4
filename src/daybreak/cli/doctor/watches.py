"""Checks the watched folders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.text import ago, counted
from daybreak.feeds.drop_folder.watch_record import WatchStatus, read_pauses, read_statuses
from daybreak.store.protocol import Finding, ok_finding


async def about_watches(client: Client, here: Session, now: datetime) -> AsyncIterator[Finding]:
    """Watches that do not work although they should, and entries that were left alone."""
    paused = await read_pauses(client)
    for status in await read_statuses(client):
        yield _finding(status, status.state_at(now, paused=status.name in paused), here, now)
        if status.reported:
            path, why = status.reported[-1]
            yield Finding(
                f"watch {status.name} left alone {counted(len(status.reported), 'entry', 'entries')}, "
                f"the last one {path}: {why}",
                cure=f"remove them from {status.folder}; {here.command('watches')} lists them",
            )


def _finding(status: WatchStatus, state: str, here: Session, now: datetime) -> Finding:
    waiting = status.settling + status.ready + status.accepted
    files = counted(waiting, "file")
    where = f"watch {status.name} on {status.host}"
    if state == "missing":
        return Finding(f"{where}: the folder {status.folder} cannot be used", cure="create or mount it")
    if state in ("gone", "stopped") and waiting:
        return Finding(
            f"{where} is {state}, last seen {ago(status.seen_at, now)}, and {files} waited in {status.folder}",
            cure="start a worker of its app, or " + here.command("watch", status.folder, "--task", status.task),
        )
    if state == "paused":
        return Finding(f"{where} is paused", cure=here.command("watches", "resume", status.name))
    if state == "full":
        return Finding(f"{where} waits: queue {status.queue} is full", cure="start more workers, or raise its capacity")
    return ok_finding(f"{where} is {state}; {files} in work")
