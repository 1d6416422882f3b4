"""What is known, and what that has saved."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.units import ZERO
from daybreak.store.protocol import CacheEntry, CacheQuery, Total

PAGE: Final = 1000
MAX_READ: Final = 20_000  # entries that are read to count them
CACHED: Final = "cached"
FOLLOWED: Final = "followed"


class TaskFigures(Struct, frozen=True, kw_only=True):
    """The cache of one task. `entries` are the results that may be used now, and `bytes` is their size. Since the store
    was made, `cached` jobs were completed from a known result, `followed` jobs got the result of one that was on its
    way, and `computed` jobs of the task ran and completed. `saved` is how long the jobs that were not run would have
    run."""

    task: str
    entries: int = 0
    bytes: int = 0
    cached: int = 0
    followed: int = 0
    computed: int = 0
    saved: timedelta = ZERO

    @property
    def hits(self) -> int:
        """The jobs that did not run."""
        return self.cached + self.followed

    @property
    def hit_rate(self) -> float:
        """The share of the completed jobs that did not run; 0 before the first one."""
        return self.hits / (self.hits + self.computed) if self.hits else 0.0


class CacheFigures(Struct, frozen=True, kw_only=True):
    """The cache of all tasks that have one, those that saved most first. If `is_exact` is False, there are more entries
    than were counted."""

    tasks: tuple[TaskFigures, ...] = ()
    is_exact: bool = True

    @property
    def total(self) -> TaskFigures:
        """The sum over all tasks."""
        return TaskFigures(
            task="",
            entries=sum(one.entries for one in self.tasks),
            bytes=sum(one.bytes for one in self.tasks),
            cached=sum(one.cached for one in self.tasks),
            followed=sum(one.followed for one in self.tasks),
            computed=sum(one.computed for one in self.tasks),
            saved=sum((one.saved for one in self.tasks), ZERO),
        )

    @property
    def hits(self) -> int:
        """The jobs that did not run."""
        return self.total.hits

    @property
    def hit_rate(self) -> float:
        """The share of the completed jobs of these tasks that did not run."""
        return self.total.hit_rate

    @property
    def entries(self) -> int:
        """The results that may be used now."""
        return self.total.entries

    @property
    def bytes(self) -> int:
        """The size of these results."""
        return self.total.bytes

    @property
    def saved(self) -> timedelta:
        """How long the jobs that were not run would have run."""
        return self.total.saved


async def cache_figures(client: Client) -> CacheFigures:
    """The figures of every task that has known results, or had hits."""
    known: dict[str, list[int]] = {}
    cursor, read = None, 0
    while read < MAX_READ:
        page = await client.store.cached(CacheQuery(limit=PAGE, cursor=cursor))
        read += len(page.entries)
        for entry in page.entries:
            counted = known.setdefault(entry.task, [0, 0])
            counted[0] += 1
            counted[1] += entry.size
        if (cursor := page.cursor) is None:
            break
    saved = savings_of(await client.store.totals())
    figures = [
        _with_entries(saved.get(task, TaskFigures(task=task)), *known.get(task, (0, 0)))
        for task in known.keys() | {task for task, one in saved.items() if one.hits}
    ]
    return CacheFigures(
        tasks=tuple(sorted(figures, key=lambda one: (-one.saved, -one.entries, one.task))), is_exact=cursor is None
    )


def savings_of(totals: Iterable[Total]) -> dict[str, TaskFigures]:
    """The figures that follow from the counters of a store, by task."""
    found: dict[str, dict[str, int]] = {}
    for total in totals:
        of_task = found.setdefault(total.task, {"cached": 0, "followed": 0, "computed": 0, "saved": 0})
        if total.what in (CACHED, FOLLOWED):
            of_task[total.what] += total.n
            of_task["saved"] += total.took
        elif "completed" in total.what.split():
            of_task["computed"] += total.n
    return {
        task: TaskFigures(
            task=task,
            cached=one["cached"],
            followed=one["followed"],
            computed=one["computed"],
            saved=timedelta(microseconds=one["saved"]),
        )
        for task, one in found.items()
    }


def _with_entries(figures: TaskFigures, entries: int, size: int) -> TaskFigures:
    return TaskFigures(
        task=figures.task, entries=entries, bytes=size, cached=figures.cached, followed=figures.followed,
        computed=figures.computed, saved=figures.saved,
    )  # fmt: skip


async def entries_page(
    client: Client, *, task: str | None = None, limit: int = 100, cursor: str | None = None
) -> tuple[list[CacheEntry], str | None]:
    """Known results, the most recently used first, and where they go on."""
    page = await client.store.cached(CacheQuery(task=task, limit=limit, cursor=cursor))
    return page.entries, page.cursor
