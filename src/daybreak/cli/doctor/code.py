"""Finds live workers that run different code for the same task. Which code a job runs is then a matter of chance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from typing import Final

from daybreak.api.worker_info import WorkerInfo
from daybreak.core.text import ago, counted, safe
from daybreak.store.protocol import Finding
from daybreak.system.code_digest import code_changed

_MAX_NAMED: Final = 5  # tasks in one finding


def about_code(live: list[WorkerInfo], now: datetime) -> Iterator[Finding]:
    """One finding for each pair of code versions, however many workers run them: a hundred workers of two kinds are one
    finding."""
    reported: set[tuple[tuple[str, ...], ...]] = set()
    for one, other in combinations(live, 2):
        if not _share_a_queue(one, other):
            continue
        tasks = [task for task in one.code if _differs(task, one, other)]
        codes = tuple(sorted(tuple(worker.code[task] for task in tasks) for worker in (one, other)))
        if tasks and codes not in reported:
            reported.add(codes)
            first, second = sorted((one, other), key=_started)
            yield _finding(tasks, first, second, now)


def _started(worker: WorkerInfo) -> float:
    return worker.started_at.timestamp() if worker.started_at else 0.0


def _share_a_queue(one: WorkerInfo, other: WorkerInfo) -> bool:
    return not one.queues or not other.queues or not {*one.queues}.isdisjoint(other.queues)


def _differs(task: str, one: WorkerInfo, other: WorkerInfo) -> bool:
    """Whether both run the same version of the task with different code. A new version is expected to differ."""
    versions = [max((v for name, v in worker.tasks if name == task), default=0) for worker in (one, other)]
    return versions[0] == versions[1] and code_changed(one.code[task], other.code.get(task, ""))


def _finding(tasks: list[str], first: WorkerInfo, second: WorkerInfo, now: datetime) -> Finding:
    named = ", ".join(repr(safe(task)) for task in sorted(tasks)[:_MAX_NAMED])
    more = f" and {counted(len(tasks) - _MAX_NAMED, 'other')}" if len(tasks) > _MAX_NAMED else ""
    what = (
        f"two live workers run different code for the {'task' if len(tasks) == 1 else 'tasks'} {named}{more}, and a "
        f"job may run on either: {_who(first, now)}, and {_who(second, now)}"
    )
    if first.app == second.app:
        return Finding(what, cure=f"restart the worker that has the old code; {_name(first)} was started first")
    return Finding(
        what,
        cure='rename the task in one app, @app.task(name="..."), or let the workers serve different queues',
    )


def _name(worker: WorkerInfo) -> str:
    return safe(worker.name or worker.id)


def _who(worker: WorkerInfo, now: datetime) -> str:
    where = f" on {safe(worker.host)}, process {worker.pid}" if worker.host else ""
    return f"{_name(worker)}{where} (app {safe(worker.app or 'without a name')}, started {ago(worker.started_at, now)})"
