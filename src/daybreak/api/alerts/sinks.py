"""The sinks of notices. A sink is called in a thread; it returns why it failed, or an empty string."""

from __future__ import annotations

import hashlib
import hmac
import logging
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from daybreak.api.alerts.settings import AlertSettings
from daybreak.policy.alerts import Notice
from daybreak.system.webhook import post

_log = logging.getLogger("daybreak.alerts")

COMMAND_TIMEOUT: Final = 10.0  # seconds
SIGNATURE_HEADER: Final = "Daybreak-Signature"

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
    try:
        done = subprocess.run(  # noqa: S603 - the command comes from the settings
            command, input=msgspec.json.encode(notice_view(notice)), capture_output=True, timeout=COMMAND_TIMEOUT,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return f"exit code {done.returncode}: {done.stderr[-300:].decode('utf-8', 'replace').strip()}"


def send_webhook(settings: AlertSettings, notice: Notice) -> str:
    """POST the notice as JSON, signed if there is a secret."""
    body = msgspec.json.encode(notice_view(notice))
    headers = {"Content-Type": "application/json", "User-Agent": "daybreak", "Daybreak-Notice": notice.id}
    if settings.webhook_secret is not None:
        headers[SIGNATURE_HEADER] = signature(settings.webhook_secret, body, int(time.time()))
    return post(str(settings.webhook), body, headers, allow_private=settings.allow_private_webhooks)


def signature(secret: str, body: bytes, at: int) -> str:
    """`t=SECONDS,v1=HEX`: the HMAC-SHA256 of the time, a dot and the body. The time lets a receiver refuse replays."""
    signed = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256)
    return f"t={at},v1={signed.hexdigest()}"
