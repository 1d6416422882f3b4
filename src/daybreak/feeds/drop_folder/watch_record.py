"""What the store keeps of a watch: whether it is paused, and how it is.

| kind | name | value |
|---|---|---|
| `watch` | the watch | only while it is paused: since when and by whom |
| `watch status` | the watch, `@` and the host | how it is; deleted when nobody has written it for 30 days |
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.model import Put
from daybreak.core.units import moment

PAUSE: Final = "watch"
STATUS: Final = "watch status"
FRESH_FOR: Final = timedelta(minutes=3)
KEPT_FOR: Final = timedelta(days=30)


class Pause(Struct, frozen=True):
    """A watch takes no files while it has this record."""

    at: datetime
    by: str = ""


class WatchStatus(Struct, frozen=True, kw_only=True):
    """How a watch was when its watcher last wrote this. `settling`, `ready` and `accepted` count files in the folder:
    those that may still change, those that wait for a place in the queue, and those whose job has not ended. The other
    counts are of this watcher since its start. `reported` are the last entries that were left alone, and why."""

    name: str
    host: str
    folder: str
    task: str
    queue: str
    seen_at: datetime
    started_at: datetime
    state: str = "running"
    polling: bool = False
    settling: int = 0
    ready: int = 0
    accepted: int = 0
    submitted: int = 0
    done: int = 0
    failed: int = 0
    repeated: int = 0
    left_alone: int = 0
    reported: tuple[tuple[str, str], ...] = ()

    def state_at(self, now: datetime, *, paused: bool) -> str:
        """paused, running, full, missing, stopped, or `gone` if no watcher has written for three minutes."""
        if paused:
            return "paused"
        if self.state != "stopped" and now - self.seen_at > FRESH_FOR:
            return "gone"
        return self.state


async def write_status(client: Client, status: WatchStatus) -> None:
    put = Put(kind=STATUS, name=f"{status.name}@{status.host}"[:200], value=msgspec.json.encode(status))
    await client.store.put([put])


async def read_statuses(client: Client) -> list[WatchStatus]:
    """Every watch that was seen in the last 30 days, by name."""
    found = [msgspec.json.decode(record.value, type=WatchStatus) for record in await client.store.records(STATUS)]
    return sorted(found, key=lambda status: (status.name, status.host))


async def read_pauses(client: Client) -> dict[str, Pause]:
    """The watches that are paused."""
    return {
        record.name: msgspec.json.decode(record.value, type=Pause) for record in await client.store.records(PAUSE)
    }  # fmt: skip


async def is_paused(client: Client, name: str) -> bool:
    return bool(await client.store.records(PAUSE, name))


async def set_paused(client: Client, name: str, *, paused: bool) -> None:
    """Pause or resume a watch. Watchers see it within a few seconds."""
    value = msgspec.json.encode(Pause(moment(client.wall()), client.by)) if paused else None
    await client.store.put([Put(kind=PAUSE, name=name, value=value)])


async def forget_old(client: Client) -> None:
    """Delete the status of watches that nobody has run for 30 days."""
    before = moment(client.wall()) - KEPT_FOR
    old = [status for status in await read_statuses(client) if status.seen_at < before]
    if old:
        await client.store.put([
            Put(kind=STATUS, name=f"{status.name}@{status.host}"[:200], value=None) for status in old
        ])  # fmt: skip
