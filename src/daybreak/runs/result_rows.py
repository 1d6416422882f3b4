"""The results of a run as flat rows: the arguments of a point, the fields of its result, and what became of its job.

| column | what it has |
|---|---|
| `point` | the number of the point |
| every argument | its value; an argument that is named like another column is `args.NAME` |
| every field of the result | its value; `result.NAME` if another column has that name |
| `result` | a result that has no fields |
| `state`, `error`, `ran_for`, `job` | what became of the job, the seconds of its latest attempt, its id |
| `cached_from` | of a cached task: the job that computed the result, if this one did not |
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import msgspec

from daybreak.api.app_files import AppFiles
from daybreak.api.job_info import JobInfo, info_of
from daybreak.client.client import Client
from daybreak.core.model import Job
from daybreak.runs.submission import POINT_META
from daybreak.tasks.registry import Program

COLUMNS: Final = ("point", "state", "error", "ran_for", "job", "cached_from")
PAGE: Final = 500
REORDERED: Final = 20_000  # rows that are held back until those with lower numbers have come
HELD_PAGES: Final = 20  # of which the rows are held; a longer run is read twice

Row = dict[str, Any]


async def rows_of(client: Client, label: str, program: Program, files: AppFiles) -> AsyncIterator[Row]:
    """A row for each job of the run, by the numbers of their points. Large results come from `files`."""
    waiting: list[tuple[int, int, Row]] = []
    expected = arrived = 0
    async for job in _oldest_first(client, label):
        whole, decode = await files.whole(job)
        number, row = number_of(job), row_of(info_of(whole, program, decode))
        if number != expected:
            arrived += 1
            heapq.heappush(waiting, (number, arrived, row))
        else:
            yield row
            expected += 1
        while waiting and (waiting[0][0] <= expected or len(waiting) > REORDERED):
            number, _, row = heapq.heappop(waiting)
            yield row
            expected = max(expected, number + 1)
    for _, _, row in sorted(waiting):
        yield row


async def _oldest_first(client: Client, label: str) -> AsyncIterator[Job]:
    """The jobs of a run, the oldest first. Stores list the newest first: so the pages are read backwards, from cursors
    that a first reading found."""
    cursors: list[str | None] = [None]
    held: list[list[Job]] = []
    while True:
        page = await client.find(limit=PAGE, cursor=cursors[-1], run=label)
        if len(cursors) <= HELD_PAGES:
            held.append(page.jobs)
        if page.cursor is None:
            break
        cursors.append(page.cursor)
    for number in range(len(cursors) - 1, -1, -1):
        jobs = (
            held.pop()
            if number < len(held)
            else (await client.find(limit=PAGE, cursor=cursors[number], run=label)).jobs
        )
        for job in reversed(jobs):
            yield job


def number_of(job: Job) -> int:
    """The number of a job's point. A job that was put into the run by hand has none, and comes last."""
    text = job.spec.meta.get(POINT_META, "")
    return int(text) if text.isdecimal() else 1 << 62


def row_of(job: JobInfo) -> Row:
    """The row of one job."""
    number = number_of(job)
    row: Row = {"point": None if number == 1 << 62 else number}
    for name, value in job.args.items():
        row[f"args.{name}" if name in COLUMNS else name] = value
    for name, value in fields_of(job.result):
        row[f"result.{name}" if name in row or name in COLUMNS else name] = value
    ran_for = None
    if job.started_at is not None and job.finished_at is not None:
        ran_for = max((job.finished_at - job.started_at).total_seconds(), 0.0)
    row["state"] = job.state.value
    row["error"] = _error(job)
    row["ran_for"] = ran_for
    row["job"] = job.id
    if job.spec.flight is not None:
        row["cached_from"] = job.cached_from
    return row


def _error(job: JobInfo) -> str | None:
    if job.failure is not None and job.state.value != "completed":
        return str(job.failure)
    if job.reason is not None:
        return job.reason.value
    return None


def fields_of(result: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a result, one level deep; anything without fields is one field named `result`."""
    if result is None:
        return
    if isinstance(result, Mapping):
        for name, value in result.items():
            yield str(name), value
    elif isinstance(result, msgspec.Struct):
        for name in result.__struct_fields__:
            yield name, getattr(result, name)
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield field.name, getattr(result, field.name)
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        yield from zip(result._fields, result, strict=True)
    elif hasattr(type(result), "model_fields"):  # a model of pydantic
        for name in type(result).model_fields:
            yield name, getattr(result, name)
    else:
        yield "result", result
