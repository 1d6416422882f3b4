"""`/audit`: who changed what through the server."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from daybreak.api.views.scalars import instant
from daybreak.server.audit import AuditEntry, read_audit
from daybreak.server.bodies.audit import AuditPage, AuditQuery
from daybreak.server.routing import Call, Routes, may

routes = Routes("audit")


@routes.get(
    "/audit", may("admin", needs_all_queues=True), query=AuditQuery, answer=AuditPage, summary="Who changed what"
)  # fmt: skip
async def list_audit(call: Call[AuditQuery, None]) -> Any:
    """The latest 5,000 changes of the last 90 days. Submitted jobs are counted: one entry per caller and minute. The
    history of each job names its submitter."""
    store = (await call.client()).store
    await call.server.writes.audit.submits.write(store)
    query = call.query
    entries, cursor = await read_audit(store, limit=query.limit, before=query.cursor, by=query.by)
    return {"entries": [_view(entry) for entry in entries], "cursor": cursor}


def _view(entry: AuditEntry) -> dict[str, Any]:
    data = {name: value for name, value in asdict(entry).items() if name != "forget_at"}
    return {**data, "at": instant(entry.at)}
