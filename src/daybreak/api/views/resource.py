"""A resource as JSON data."""

from __future__ import annotations

from typing import Any

import msgspec

from daybreak.api.resources import ResourceInfo
from daybreak.api.views.scalars import in_seconds


def resource_view(info: ResourceInfo) -> dict[str, Any]:
    """A resource's limits and use, with every setting of its breaker, those at their defaults included."""
    data: dict[str, Any] = msgspec.to_builtins(info)
    if info.breaker_settings is not None:
        data["breaker_settings"] = in_seconds(msgspec.structs.asdict(info.breaker_settings))
    return data
