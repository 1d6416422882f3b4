"""Statistics as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from daybreak.api.stats import QueueStats, Stats
from daybreak.api.trends import Trends
from daybreak.api.views.scalars import in_seconds


def stats_view(stats: Stats, queues: Sequence[QueueStats], trends: Trends | None = None) -> dict[str, Any]:
    """The statistics of one queue or of all together, and of each queue in `queues`; with the trends, if given."""
    data: dict[str, Any] = msgspec.to_builtins(stats, str_keys=True, builtin_types=(timedelta,))
    data["queues"] = msgspec.to_builtins(queues, str_keys=True, builtin_types=(timedelta,))
    if trends is not None:
        data["trends"] = msgspec.to_builtins(trends, builtin_types=(timedelta,))
    return in_seconds(data)  # type: ignore[no-any-return]
