"""Alerts and notices."""

from __future__ import annotations

from typing import Literal

from daybreak.server.bodies.base import Answer

AlertLevel = Literal["ok", "warning", "critical"]


class AlertBody(Answer, frozen=True):
    """One rule for one queue or lock. `value` is in the rule's unit: jobs, seconds, or a share from 0 to 1."""

    rule: str
    subject: str
    level: AlertLevel
    value: float
    unit: Literal["jobs", "seconds", "share"] | None
    since: str | None
    text: str
    advice: str


class NoticeBody(Answer, frozen=True):
    """One change of level. `undelivered` are the sinks that have not got it yet, `errors` says which failed and why."""

    id: str
    rule: str
    subject: str
    level: AlertLevel
    before: AlertLevel
    value: float
    threshold: float | None
    at: str
    text: str
    advice: str
    undelivered: list[str]
    errors: dict[str, str]


class AlertList(Answer, frozen=True):
    """`looked_at` is the time of the latest check, and null before the first check."""

    looked_at: str | None
    alerts: list[AlertBody]
    notices: list[NoticeBody]
