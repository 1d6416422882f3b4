"""Runs and their rows in pages, as JSON data: what the server answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from daybreak.api.app_files import AppFiles
from daybreak.api.job_info import info_of
from daybreak.api.views.scalars import finite
from daybreak.client.client import Client
from daybreak.runs.record import KIND, RunRecord, label_of
from daybreak.runs.result_rows import Row, row_of
from daybreak.runs.run_info import RunInfo, counts_of, frozen_counts, info_of_run
from daybreak.tasks.registry import Program
from daybreak.values.file import File


async def page_of_runs(
    client: Client, limit: int, cursor: str | None, may_use: Callable[[str], bool]
) -> tuple[list[RunInfo], str | None]:
    """Runs of these queues, the newest first, and the cursor of the next page; only the jobs of runs on the page are
    counted."""
    records = [
        (record.name, msgspec.json.decode(record.value, type=RunRecord)) for record in await client.store.records(KIND)
    ]
    ordered = sorted(((_place(name, run), name, run) for name, run in records if may_use(run.queue)), reverse=True)
    after = [one for one in ordered if cursor is None or one[0] < cursor]
    page = after[:limit]
    found = [await _info(client, name, run) for _, name, run in page]
    return found, page[-1][0] if len(after) > limit else None


def _place(name: str, run: RunRecord) -> str:
    """Orders runs by their start. It is the cursor of the page that ends with this run."""
    return f"{run.started_at.isoformat()} {name}"


async def _info(client: Client, name: str, run: RunRecord) -> RunInfo:
    if run.figures is not None:
        return info_of_run(name, run, frozen_counts(run.figures), run.figures.reasons)
    counts, reasons = await counts_of(client, label_of(name, run.epoch))
    return info_of_run(name, run, counts, reasons)


async def page_of_rows(
    client: Client, files: AppFiles, label: str, limit: int, cursor: str | None
) -> tuple[list[Row], str | None]:
    """Rows of a run, the latest point first, and the cursor of the next page. Large results come from `files`."""
    page = await client.find(limit=limit, cursor=cursor, run=label)
    program, rows = Program(), []
    for job in page.jobs:
        whole, decode = await files.whole(job)
        rows.append(json_row(row_of(info_of(whole, program, decode))))
    return rows, page.cursor


def json_row(row: Row) -> Row:
    """The row as JSON data: what JSON does not have becomes text."""
    found: Row = finite(json.loads(json.dumps(row, default=_plain)))
    return found


def _plain(value: object) -> Any:
    if isinstance(value, File):
        return {"name": value.name, "sha256": value.digest, "size": value.size}
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)
