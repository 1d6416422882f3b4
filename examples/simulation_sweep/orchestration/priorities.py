"""The four levels of the article, and Daybreak's scale of 0 to 10: converted both ways, never mixed."""

from __future__ import annotations

from enum import Enum
from typing import Final

from daybreak import BadInput, Priority


class TaskPriority(Enum):
    """Task priority levels (lower value = higher priority)."""

    CRITICAL = 0  # production gates, urgent debugging
    HIGH = 1  # design validation, iterative optimisation
    NORMAL = 2  # parameter sweeps, batch analysis
    LOW = 3  # background jobs, overnight studies


_LEVELS: Final = {
    TaskPriority.CRITICAL: Priority.CRITICAL,
    TaskPriority.HIGH: Priority.HIGH,
    TaskPriority.NORMAL: Priority.NORMAL,
    TaskPriority.LOW: Priority.LOW,
}


def level_of(level: TaskPriority | int | str) -> TaskPriority:
    """A level, which may be given by its name or number. An unknown one is refused, not taken for NORMAL."""
    if isinstance(level, str) and level.upper() in TaskPriority.__members__:
        level = TaskPriority[level.upper()]
    elif isinstance(level, int) and not isinstance(level, bool) and 0 <= level <= 3:
        level = TaskPriority(level)
    if not isinstance(level, TaskPriority):
        raise BadInput(f"{level!r} is no level: write TaskPriority.CRITICAL, HIGH, NORMAL or LOW, or 0 to 3")
    return level


def priority_of(level: TaskPriority | int | str) -> Priority:
    """Daybreak's priority of a level: 0 is CRITICAL here, which is 1 there."""
    return _LEVELS[level_of(level)]


def task_priority(priority: int) -> TaskPriority:
    """The level of one of Daybreak's priorities: what is more urgent than critical is CRITICAL, and so on down."""
    for level, lowest in ((TaskPriority.CRITICAL, 1), (TaskPriority.HIGH, 3), (TaskPriority.NORMAL, 6)):
        if priority <= lowest:
            return level
    return TaskPriority.LOW
