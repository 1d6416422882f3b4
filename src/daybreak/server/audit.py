"""Who changed what through the server: a record per change, written before it happens and completed after it.

Submitted jobs name their submitter themselves, in their history, and there may be hundreds a second. So the audit has
one entry for all jobs that a caller submitted in a minute through one server, written within five seconds."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from daybreak.client.server_records import AUDIT, AUDIT_OF_SUBMITS, MOST_AUDITED, trim_audit
from daybreak.core.errors import StoreError
from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.store.protocol import Store
from daybreak.system.ports import Ids

if TYPE_CHECKING:
    from daybreak.server.application import Server
    from daybreak.server.routing import Call

KEPT_FOR: Final = timedelta(days=90)
LONGEST_BODY: Final = 2000
TRIM_EVERY: Final = MOST_AUDITED // 10
WRITE_WITHIN: Final = timedelta(seconds=5)


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
        self.submits = SubmitCounts(server)

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


class _Minute(Struct):
    """What one caller submitted in one minute."""

    entry: AuditEntry
    jobs: int = 0
    is_written: bool = False


class SubmitCounts:
    """Counts the jobs that callers submit, and writes the counts now and then. A server that is killed loses those of
    the last five seconds; the jobs themselves still tell who submitted them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._new_id = Ids(server.app.world)
        self._minutes: dict[tuple[int, str, str], _Minute] = {}
        self._writing: asyncio.Task[None] | None = None

    def add(self, call: Call[Any, Any], jobs: int) -> None:
        """Count jobs that were accepted as new."""
        if not jobs:
            return
        now = self._server.app.world.wall()
        caller = call.caller
        key = (now // 60_000_000, caller.kind, caller.by)
        if key not in self._minutes:
            at = moment(now)
            self._minutes[key] = _Minute(
                AuditEntry(
                    id=self._new_id(), at=at, by=caller.by, caller=caller.kind, action="submit_job", method="POST",
                    path="/api/v1/jobs", request="", outcome="201", forget_at=at + KEPT_FOR,
                )
            )  # fmt: skip
        minute = self._minutes[key]
        minute.jobs += jobs
        minute.is_written = False
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def write(self, store: Store) -> None:
        """Write the counts that have changed. What cannot be written now is written next time."""
        unwritten = [minute for minute in self._minutes.values() if not minute.is_written]
        for minute in unwritten:
            minute.is_written = True
        puts = [
            Put(kind=AUDIT_OF_SUBMITS, name=minute.entry.id, value=msgspec.json.encode(_counted(minute)))
            for minute in unwritten
        ]  # fmt: skip
        try:
            if puts:
                await store.put(puts)
        except StoreError:
            for minute in unwritten:
                minute.is_written = False
            raise
        this_minute = self._server.app.world.wall() // 60_000_000
        self._minutes = {
            key: minute for key, minute in self._minutes.items() if key[0] >= this_minute or not minute.is_written
        }

    async def _write_soon(self) -> None:
        await asyncio.sleep(WRITE_WITHIN.total_seconds())
        with contextlib.suppress(StoreError):
            await self.write((await self._server.app.client()).store)


def _counted(minute: _Minute) -> AuditEntry:
    return msgspec.structs.replace(minute.entry, request=f'{{"jobs": {minute.jobs}}}')


async def read_audit(
    store: Store, *, limit: int, before: str | None, by: str | None
) -> tuple[list[AuditEntry], str | None]:
    """The latest changes first, and the cursor of the next page."""
    records = [*await store.records(AUDIT), *await store.records(AUDIT_OF_SUBMITS)]
    found = [entry for record in records if (entry := _read(record)) is not None]
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
