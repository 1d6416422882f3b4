"""The audit log of changes."""

from __future__ import annotations

from typing import Literal

from daybreak.server.bodies.base import Answer, Cursor, Limit, Name, Request


class AuditQuery(Request, frozen=True):
    by: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class AuditBody(Answer, frozen=True):
    """One change. `outcome` is the status of the response, or `started` if the server was killed before it was sent."""

    id: str
    at: str
    by: str
    caller: Literal["token", "session", "anonymous"]
    action: str
    method: str
    path: str
    request: str
    outcome: str


class AuditPage(Answer, frozen=True):
    """The changes, the latest first. A `cursor` of null means that there are no more."""

    entries: list[AuditBody]
    cursor: str | None
