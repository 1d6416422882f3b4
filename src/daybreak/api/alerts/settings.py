"""The table `[alerts]` of daybreak.toml.

[alerts]
depth = [200, 1000]                  # warning, critical; false turns the alert off
webhook = "https://example.com/hook"
webhook_secret_env = "ALERT_SECRET"  # the variable that holds the secret
command = ["notify-send", "Daybreak"]

[alerts.queues.night]
average_wait = ["1h", "4h"]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from daybreak.config import closest
from daybreak.core.errors import BadInput
from daybreak.core.units import duration
from daybreak.policy.alerts import BY_NAME, Threshold, Thresholds

_OTHERS: Final = ("enabled", "webhook", "webhook_secret_env", "allow_private_webhooks", "command", "queues")


class AlertSettings(Struct, frozen=True, kw_only=True):
    """The thresholds, and the sinks that get notices besides the log."""

    enabled: bool = True
    thresholds: Thresholds = {}
    webhook: str | None = None
    webhook_secret: str | None = None
    allow_private_webhooks: bool = False
    command: tuple[str, ...] = ()


def alert_settings(table: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> AlertSettings:
    """Parse the table. Raises a BadInput that names the setting."""
    environ = os.environ if environ is None else environ
    for key in table:
        if key not in BY_NAME and key not in _OTHERS:
            raise _unknown(f"alerts.{key}", key, (*BY_NAME, *_OTHERS))
    thresholds: dict[tuple[str, str | None], Threshold] = {
        (name, None): _threshold(f"alerts.{name}", name, table[name]) for name in BY_NAME if name in table
    }  # fmt: skip
    for queue, own in _tables("alerts.queues", table.get("queues", {})).items():
        for name, value in own.items():
            if name not in BY_NAME:
                raise _unknown(f"alerts.queues.{queue}.{name}", name, BY_NAME)
            thresholds[name, queue] = _threshold(f"alerts.queues.{queue}.{name}", name, value)
    return AlertSettings(
        enabled=_flag("alerts.enabled", table.get("enabled", True)),
        thresholds=thresholds,
        webhook=_webhook(table.get("webhook")),
        webhook_secret=_secret(table.get("webhook_secret_env"), environ),
        allow_private_webhooks=_flag("alerts.allow_private_webhooks", table.get("allow_private_webhooks", False)),
        command=_command(table.get("command", [])),
    )


def _unknown(where: str, name: str, known: Any) -> BadInput:
    suggestion = closest(name, known)
    hint = f"did you mean {suggestion!r}?" if suggestion else f"the settings are {', '.join(known)}"
    return BadInput(f"no setting named {where}; {hint}")


def _tables(where: str, value: object) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise BadInput(f"{where} must be tables, one per queue: [{where}.NAME]")
    return value


def _threshold(where: str, rule: str, value: object) -> Threshold:
    if value is False:
        return Threshold(None, None)
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput(f"{where} must be two values, [warning, critical], or false to turn the alert off")
    warning, critical = (_amount(where, rule, one) for one in value)
    if warning is not None and critical is not None and warning > critical:
        raise BadInput(f"{where}: the warning threshold must not be higher than the critical threshold")
    return Threshold(warning, critical)


def _amount(where: str, rule: str, value: object) -> float | None:
    if value is False:
        return None
    unit = BY_NAME[rule].unit
    if unit == "seconds":
        if not isinstance(value, str):
            raise BadInput(f'{where} is a duration: write it as "30s" or "2m", not {value!r}')
        return duration(value).total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadInput(f"{where} must be a number above 0, not {value!r}")
    if unit == "share" and value > 1:
        raise BadInput(f"{where} is a share: 5 % is 0.05, not {value!r}")
    return float(value)


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{where} must be true or false, not {value!r}")
    return value


def _webhook(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith(("https://", "http://")):
        raise BadInput(f"alerts.webhook must be an address that begins with https:// or http://, not {value!r}")
    return value


def _secret(variable: object, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    if not isinstance(variable, str) or not variable:
        raise BadInput("alerts.webhook_secret_env must be the name of an environment variable")
    secret = environ.get(variable)
    if not secret:
        raise BadInput(f"alerts.webhook_secret_env names {variable}, but this environment variable is not set")
    return secret


def _command(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise BadInput('alerts.command must be a list of words, such as ["notify-send", "Daybreak"]')
    return tuple(value)
