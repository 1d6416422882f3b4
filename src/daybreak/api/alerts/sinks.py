"""The sinks of notices. A sink is called in a thread; it returns why it failed, or an empty string."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from daybreak.api.alerts.settings import AlertSettings
from daybreak.policy.alerts import Notice
from daybreak.system import notice_sinks

_log = logging.getLogger("daybreak.alerts")

Sink = Callable[[Notice], str]


def sinks_of(settings: AlertSettings) -> dict[str, Sink]:
    """The log, and the webhook and the command if they are set."""
    found: dict[str, Sink] = {"log": write_log}
    if settings.webhook is not None:
        found["webhook"] = lambda notice: send_webhook(settings, notice)
    if settings.command:
        found["command"] = lambda notice: run_command(settings.command, notice)
    return found


def notice_view(notice: Notice) -> dict[str, Any]:
    """The notice as data: what a webhook and a command get, and what `daybreak alerts --json` lists."""
    return {
        "id": notice.id,
        "rule": notice.rule,
        "subject": notice.subject,
        "level": notice.level,
        "before": notice.before,
        "value": notice.value,
        "threshold": notice.threshold,
        "at": notice.at.isoformat().replace("+00:00", "Z"),
        "text": notice.text,
        "advice": notice.advice,
    }


def write_log(notice: Notice) -> str:
    levels = {"critical": logging.ERROR, "warning": logging.WARNING, "ok": logging.INFO}
    advice = f"; {notice.advice}" if notice.advice else ""
    _log.log(levels[notice.level], "alert %s: %s%s", notice.rule, notice.text, advice)
    return ""


def run_command(command: tuple[str, ...], notice: Notice) -> str:
    """Run the command with the notice as JSON on its standard input."""
    return notice_sinks.run_command(command, msgspec.json.encode(notice_view(notice)))


def send_webhook(settings: AlertSettings, notice: Notice) -> str:
    """POST the notice as JSON, signed if there is a secret."""
    body = msgspec.json.encode(notice_view(notice))
    return notice_sinks.send_webhook(
        str(settings.webhook), body, notice.id, secret=settings.webhook_secret,
        allow_private=settings.allow_private_webhooks,
    )  # fmt: skip
