"""Runs, and their results as rows."""

from __future__ import annotations

from typing import Any, Literal

from daybreak.server.bodies.base import Answer, Cursor, Limit, Request


class EtaBody(Answer, frozen=True):
    """When the run will probably end: in one of ten cases before `low`, in one of ten after `high`."""

    low: str
    mid: str
    high: str


class RunBody(Answer, frozen=True):
    """A run: the fields of `daybreak runs show --json`. `jobs` counts its jobs by state, `failed` the failed ones by
    reason. `took` is in seconds."""

    name: str
    label: str
    task: str
    version: int
    epoch: int
    state: Literal["submitting", "running", "paused", "finished", "cancelled", "deleting"]
    total: int
    done: int
    jobs: dict[str, int]
    failed: dict[str, int]
    orphaned: int
    created_at: str
    started_at: str
    finished_at: str | None
    took: float | None
    by: str
    queue: str
    priority: int
    options: dict[str, str]
    columns: list[str]
    fixed: dict[str, str]
    code: str
    note: str
    eta: EtaBody | None


class RunQuery(Request, frozen=True):
    limit: Limit = 50
    cursor: Cursor | None = None


class RunPage(Answer, frozen=True):
    """One page of runs. A `cursor` of null means that there are no more runs."""

    runs: list[RunBody]
    cursor: str | None


class RowPage(Answer, frozen=True):
    """One page of rows, the latest point first: the arguments, the fields of the result, `state`, `error`, `ran_for`
    and `job`. A `cursor` of null means that there are no more rows."""

    rows: list[dict[str, Any]]
    cursor: str | None


class RunRetryBody(Request, frozen=True):
    """Which points run again."""

    state: Literal["failed", "cancelled"] = "failed"


class RunChanged(Answer, frozen=True):
    """`changed` counts the jobs that were changed, or asked to stop."""

    run: str
    changed: int


class RunDelete(Request, frozen=True):
    """With `force`, points that have not ended are cancelled."""

    force: bool = False
