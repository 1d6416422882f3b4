"""A schedule as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daybreak.api.schedules.info import ScheduleInfo
from daybreak.api.views.job import plain_value
from daybreak.api.views.scalars import instant
from daybreak.policy.schedules.words import PreviewedTick


def schedule_view(info: ScheduleInfo) -> dict[str, Any]:
    """All fields of a schedule; durations are in seconds."""
    return {
        "name": info.name,
        "state": info.state,
        "words": info.words,
        "task": info.task,
        "version": info.version,
        "queue": info.queue,
        "priority": info.priority,
        "args": plain_value(info.args),
        "cron": info.cron,
        "every": None if info.every is None else info.every.total_seconds(),
        "at": [instant(one) for one in info.at],
        "tz": info.tz,
        "catch_up": info.catch_up,
        "overlap": info.overlap,
        "grace": info.grace.total_seconds(),
        "jitter": info.jitter.total_seconds(),
        "next_tick": instant(info.next_tick),
        "last_tick": instant(info.last_tick),
        "last_job": info.last_job,
        "last_state": None if info.last_state is None else info.last_state.value,
        "ticks": info.ticks,
        "skipped": info.skipped,
        "paused_at": instant(info.paused_at),
        "paused_by": info.paused_by,
        "app": info.app,
        "is_known": info.is_known,
        "created_at": instant(info.created_at),
        "changed_at": instant(info.changed_at),
        "changed_by": info.changed_by,
    }


def preview_view(ticks: Sequence[PreviewedTick]) -> list[dict[str, Any]]:
    """The next ticks of a schedule."""
    return [{"at": instant(tick.at), "local": tick.local, "note": tick.note} for tick in ticks]
