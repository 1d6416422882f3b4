"""What the workers' records say: who lives, who left without a word, and which tasks they know."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client

LIVE_FOR: Final = 3  # leases


class Seen(Struct, frozen=True, kw_only=True):
    """A worker's record, as far as this program knows its fields: those of an older or newer one may differ."""

    id: str
    name: str = ""
    host: str = ""
    pid: int = 0
    app: str | None = None
    started_at: datetime | None = None
    seen_at: datetime | None = None
    queues: tuple[str, ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()
    code: dict[str, str] = {}
    on_loop: tuple[str, ...] = ()
    processes: int | None = None
    async_jobs: int | None = None
    lease_for: timedelta = timedelta(seconds=7)
    running: int = 0
    done: int = 0
    failed: int = 0
    stopping: bool = False

    def state(self, now: datetime) -> str:
        """`live`, `stopping`, `stopped` (it said goodbye) or `gone` (it did not)."""
        is_there = self.seen_at is not None and now - self.seen_at <= LIVE_FOR * self.lease_for
        if is_there:
            return "stopping" if self.stopping else "live"
        return "stopped" if self.stopping else "gone"

    def is_live(self, now: datetime) -> bool:
        return self.state(now) in ("live", "stopping")


async def workers(client: Client) -> list[Seen]:
    """All workers that have a record, the latest start first. One that cannot be read is left out."""
    found = []
    for record in await client.store.records("worker"):
        try:
            found.append(msgspec.json.decode(record.value, type=Seen))
        except msgspec.MsgspecError:
            continue
    return sorted(found, key=lambda seen: seen.started_at or datetime.min.replace(tzinfo=UTC), reverse=True)


async def live_workers(client: Client, now: datetime | None = None) -> list[Seen]:
    now = now or datetime.now(UTC)
    return [seen for seen in await workers(client) if seen.is_live(now)]


def known_tasks(seen: Iterable[Seen]) -> set[tuple[str, int]]:
    return {pair for one in seen for pair in one.tasks}
