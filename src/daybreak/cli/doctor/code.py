"""Live workers that run different code for one task: which of them a job gets is chance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from typing import Final

from daybreak.api.worker_info import WorkerInfo
from daybreak.cli.text import ago, counted, safe
from daybreak.store.protocol import Finding
from daybreak.system.code_digest import code_changed

_NAMED: Final = 5  # tasks in one finding


def about_code(live: list[WorkerInfo], now: datetime) -> Iterator[Finding]:
    """One finding for each pair of apps, or of starts of one app. Each worker is compared with those that differ from
    it, once for each code that is run: a hundred workers of two kinds are one finding."""
    told: set[tuple[tuple[str, ...], ...]] = set()
    for one, other in combinations(live, 2):
        if not _share_a_queue(one, other):
            continue
        tasks = [task for task in one.code if _differs(task, one, other)]
        codes = tuple(sorted(tuple(seen.code[task] for task in tasks) for seen in (one, other)))
        if tasks and codes not in told:
            told.add(codes)
            first, second = sorted((one, other), key=_started)
            yield _finding(tasks, first, second, now)


def _started(seen: WorkerInfo) -> float:
    return seen.started_at.timestamp() if seen.started_at else 0.0


def _share_a_queue(one: WorkerInfo, other: WorkerInfo) -> bool:
    return not one.queues or not other.queues or not {*one.queues}.isdisjoint(other.queues)


def _differs(task: str, one: WorkerInfo, other: WorkerInfo) -> bool:
    """Whether both run the same version of the task with different code. A new version is meant to differ."""
    versions = [max((v for name, v in seen.tasks if name == task), default=0) for seen in (one, other)]
    return versions[0] == versions[1] and code_changed(one.code[task], other.code.get(task, ""))


def _finding(tasks: list[str], first: WorkerInfo, second: WorkerInfo, now: datetime) -> Finding:
    named = ", ".join(repr(safe(task)) for task in sorted(tasks)[:_NAMED])
    more = f" and {counted(len(tasks) - _NAMED, 'other')}" if len(tasks) > _NAMED else ""
    what = (
        f"two live workers run different code for the {'task' if len(tasks) == 1 else 'tasks'} {named}{more}, and a "
        f"job gets whichever takes it: {_who(first, now)}, and {_who(second, now)}"
    )
    if first.app == second.app:
        return Finding(what, cure=f"restart whichever has the old code; {_name(first)} was started first")
    return Finding(
        what,
        cure='give the task of one app another name, @app.task(name="..."), or let the workers serve different queues',
    )


def _name(seen: WorkerInfo) -> str:
    return safe(seen.name or seen.id)


def _who(seen: WorkerInfo, now: datetime) -> str:
    where = f" on {safe(seen.host)}, process {seen.pid}" if seen.host else ""
    return f"{_name(seen)}{where} (app {safe(seen.app or 'without a name')}, started {ago(seen.started_at, now)})"
