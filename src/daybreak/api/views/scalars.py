"""Single values in JSON: instants, durations, and numbers that are not finite."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any


def instant(when: datetime | None) -> str | None:
    """An instant as ISO 8601 text. UTC is written as `Z`."""
    if when is None:
        return None
    return when.isoformat().replace("+00:00", "Z")


def in_seconds(value: Any) -> Any:
    """The same data with every duration in it, at any depth, as a number of seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {key: in_seconds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_seconds(item) for item in value]
    return value


def finite(value: Any) -> Any:
    """The same data with NaN and the infinities, which JSON does not have, as text; keys become text too."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
