"""A queue as JSON data."""

from __future__ import annotations

from typing import Any

from daybreak.api.queue_info import QUEUE_SETTINGS, QueueInfo
from daybreak.core.model import State


def queue_view(queue: QueueInfo) -> dict[str, Any]:
    """A queue's settings, and its jobs by state, priority and task."""
    settings = {name: getattr(queue.settings, name) for name in QUEUE_SETTINGS}
    settings["patience"] = queue.settings.patience.total_seconds()
    return {
        "name": queue.name,
        **settings,
        "by_state": {state.value: queue.states.get(state, 0) for state in State},
        "by_priority": {str(level): queue.priorities.get(level, 0) for level in range(11)},
        "by_task": queue.tasks,
    }
