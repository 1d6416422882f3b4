"""Alerts as data: what `daybreak alerts --json` prints and `GET /alerts` answers."""

from __future__ import annotations

from typing import Any

from daybreak.api.alerts.sinks import notice_view
from daybreak.api.views.scalars import instant
from daybreak.policy.alerts import BY_NAME, Alert, AlertState, alert_text


def alerts_view(state: AlertState) -> dict[str, Any]:
    """The alerts, the worst first, and the latest notices, the newest first, with the state of their delivery."""
    return {
        "looked_at": instant(state.looked_at),
        "alerts": [alert_view(alert) for alert in state.alerts],
        "notices": [
            {**notice_view(notice), "undelivered": list(notice.undelivered), "errors": dict(notice.errors)}
            for notice in reversed(state.notices)
        ],
    }


def alert_view(alert: Alert) -> dict[str, Any]:
    rule = BY_NAME.get(alert.rule)
    return {
        "rule": alert.rule,
        "subject": alert.subject,
        "level": alert.level,
        "value": alert.value,
        "unit": None if rule is None else rule.unit,
        "since": instant(alert.since),
        "text": "" if rule is None else alert_text(rule, alert),
        "advice": "" if rule is None or alert.level == "ok" else rule.advice.format(subject=alert.subject),
    }
