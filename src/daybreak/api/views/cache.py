"""The cache as JSON data."""

from __future__ import annotations

from typing import Any

from daybreak.api.cache.figures import CacheFigures, TaskFigures
from daybreak.api.cache.why_missed import CacheWhy
from daybreak.api.views.scalars import instant
from daybreak.store.protocol import CacheEntry


def figures_view(figures: CacheFigures) -> dict[str, Any]:
    """The figures of all tasks together, and of each task; `saved` is in seconds."""
    total = _task_view(figures.total)
    del total["task"]
    return {**total, "is_exact": figures.is_exact, "tasks": [_task_view(one) for one in figures.tasks]}


def _task_view(one: TaskFigures) -> dict[str, Any]:
    return {
        "task": one.task,
        "entries": one.entries,
        "bytes": one.bytes,
        "hits": one.hits,
        "cached": one.cached,
        "followed": one.followed,
        "computed": one.computed,
        "hit_rate": round(one.hit_rate, 6),
        "saved": one.saved.total_seconds(),
    }


def entry_view(entry: CacheEntry) -> dict[str, Any]:
    """One known result, without the result; `ran` is in seconds."""
    return {
        "flight": entry.flight,
        "task": entry.task,
        "version": entry.version,
        "job": entry.job,
        "size": entry.size,
        "ran": entry.ran.total_seconds(),
        "hits": entry.hits,
        "created_at": instant(entry.created_at),
        "used_at": instant(entry.used_at),
        "until": instant(entry.until),
    }


def cache_why_view(why: CacheWhy) -> dict[str, Any]:
    """What the cache did for a job, and what differs from the nearest known result."""
    return {
        "job": why.job,
        "task": why.task,
        "flight": why.flight,
        "outcome": why.outcome,
        "cached_from": why.cached_from,
        "nearest": None if why.nearest is None else entry_view(why.nearest),
        "differences": [
            {"kind": one.kind, "name": one.name, "before": one.before, "now": one.now} for one in why.differences
        ],
        "text": why.text,
    }
