"""Who changed what through the server: a record per change, written before it happens and completed after it.

Submitted jobs are not listed here: the caller's name stands in the job itself, and in its history."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from daybreak.client.server_records import AUDIT, MOST_AUDITED, trim_audit
from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.store.protocol import Store

if TYPE_CHECKING:
    from daybreak.server.application import Server
    from daybreak.server.routing import Call

KEPT_FOR: Final = timedelta(days=90)
LONGEST_BODY: Final = 2000
TRIM_EVERY: Final = MOST_AUDITED // 10


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One change. Its `outcome` is `started` until the change is done; if the server was killed meanwhile, it stays."""

    id: str
    at: datetime
    by: str
    caller: str
    action: str
    method: str
    path: str
    request: str
    outcome: str
    forget_at: datetime


class Audit:
    """The audit of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._written = 0

    def started(self, call: Call[Any, Any], entry_id: str) -> AuditEntry:
        now = moment(self._server.app.world.wall())
        path = call.route.path.format(**call.path)
        return AuditEntry(
            id=entry_id,
            at=now,
            by=call.caller.by,
            caller=call.caller.kind,
            action=call.route.name,
            method=call.route.method,
            path=path[:LONGEST_BODY],
            request=call.raw.decode("utf-8", "replace")[:LONGEST_BODY],
            outcome="started",
            forget_at=now + KEPT_FOR,
        )

    def put(self, entry: AuditEntry) -> Put:
        return Put(kind=AUDIT, name=entry.id, value=msgspec.json.encode(entry))

    def done(self, entry: AuditEntry, status: int) -> Put:
        return self.put(msgspec.structs.replace(entry, outcome=str(status)))

    def undone(self, entry: AuditEntry) -> Put:
        """The change was refused: nothing happened, so nothing is kept of it."""
        return Put(kind=AUDIT, name=entry.id, value=None)

    async def trim(self, store: Store) -> None:
        """Delete the oldest entries now and then: a server may run where no worker's janitor does."""
        self._written += 1
        if self._written % TRIM_EVERY == 0:
            await trim_audit(store, moment(self._server.app.world.wall()))


async def read_audit(
    store: Store, *, limit: int, before: str | None, by: str | None
) -> tuple[list[AuditEntry], str | None]:
    """The latest changes first, and the cursor of the next page."""
    found = [entry for record in await store.records(AUDIT) if (entry := _read(record)) is not None]
    found = [entry for entry in found if by in (None, entry.by) and (before is None or entry.id < before)]
    found.sort(key=lambda entry: entry.id, reverse=True)
    page = found[:limit]
    cursor = page[-1].id if len(found) > limit else None
    return page, cursor


def _read(record: Record) -> AuditEntry | None:
    try:
        return msgspec.json.decode(record.value, type=AuditEntry)
    except msgspec.MsgspecError:
        return None
