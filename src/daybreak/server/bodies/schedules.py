"""Schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from daybreak.server.bodies.base import Answer, Request, StateName


class ScheduleBody(Answer, frozen=True):
    """A schedule: the fields of `daybreak schedules show --json`. `every`, `grace` and `jitter` are in seconds. `app`
    is null if it was saved at run time. `is_known` is false if no live worker knows its task."""

    name: str
    state: Literal["active", "late", "paused", "moving", "ended", "ahead", "unknown zone"]
    words: str
    task: str
    version: int
    queue: str
    priority: int
    args: Any
    cron: str | None
    every: float | None
    at: list[str]
    tz: str
    catch_up: Literal["skip", "latest", "all"]
    overlap: Literal["skip", "queue", "allow"]
    grace: float
    jitter: float
    next_tick: str | None
    last_tick: str | None
    last_job: str | None
    last_state: StateName | None
    ticks: int
    skipped: int
    paused_at: str | None
    paused_by: str
    app: str | None
    is_known: bool
    created_at: str
    changed_at: str
    changed_by: str


class ScheduleList(Answer, frozen=True):
    schedules: list[ScheduleBody]


class PreviewQuery(Request, frozen=True):
    n: Annotated[int, Meta(ge=1, le=100)] = 10


class TickBody(Answer, frozen=True):
    """A tick to come. `local` is its time in the zone of the schedule; `note` says what a change of the clock does."""

    at: str
    local: str
    note: str


class Preview(Answer, frozen=True):
    schedule: str
    words: str
    ticks: list[TickBody]


class RunNow(Answer, frozen=True):
    """The job. If it is not new, the schedule skips what overlaps, and this job of it has not ended."""

    schedule: str
    job: str
    is_new: bool


class RemovedSchedule(Answer, frozen=True):
    removed: str
