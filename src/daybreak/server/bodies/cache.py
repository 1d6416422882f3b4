"""The cache: known results, and what they saved."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from daybreak.server.bodies.base import Answer, Cursor, Limit, Name, Request


class CacheTotalsBody(Answer, frozen=True):
    """`entries` results of `bytes` bytes may be used now. `cached` jobs were completed from a known result, `followed`
    jobs from one that was on its way, both together are the `hits`, and `computed` jobs ran. `hit_rate` is the share of
    these jobs that did not run. `saved` is how many seconds they would have run."""

    entries: int
    bytes: int
    hits: int
    cached: int
    followed: int
    computed: int
    hit_rate: float
    saved: float


class TaskCacheBody(CacheTotalsBody, frozen=True):
    """The figures of one task."""

    task: str


class CacheBody(CacheTotalsBody, frozen=True):
    """The figures of all tasks together and of each. If `is_exact` is false, there are more entries than these."""

    is_exact: bool
    tasks: list[TaskCacheBody]


class CacheEntryBody(Answer, frozen=True):
    """A known result, without the result. `job` computed it and ran for `ran` seconds; it has `size` bytes, and `hits`
    jobs were completed from it. It may be used until `until`, or until it makes room."""

    flight: str
    task: str
    version: int
    job: str
    size: int
    ran: float
    hits: int
    created_at: str
    used_at: str
    until: str | None


class CacheEntriesQuery(Request, frozen=True):
    """Of one task or of all; those that were used last first."""

    task: Name | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class CacheEntriesBody(Answer, frozen=True):
    """A `cursor` continues the list; null means that this is its end."""

    entries: list[CacheEntryBody]
    cursor: str | None


class DifferenceBody(Answer, frozen=True):
    """A part of the key that differs. `before` is its value in the nearest entry and `now` that of the job, if they can
    still be read."""

    kind: Literal["argument", "source", "version", "environment", "salt", "others"]
    name: str
    before: str | None
    now: str | None


class CacheWhyBody(Answer, frozen=True):
    """What the cache did for a job. A job that had to be computed is compared with the nearest known result."""

    job: str
    task: str
    flight: str | None
    outcome: Literal["uncached", "cached", "followed", "following", "computed", "waiting"]
    cached_from: str | None
    nearest: CacheEntryBody | None
    differences: list[DifferenceBody]
    text: str


class InvalidateBody(Request, frozen=True):
    """Exactly one of `task`, `job` and `flight`. `dry_run` counts the results and drops nothing."""

    task: Name | None = None
    job: Name | None = None
    flight: Annotated[str, Meta(pattern="^[0-9a-f]{1,64}$")] | None = None
    dry_run: bool = False


class ClearBody(Request, frozen=True):
    """`dry_run` counts the results and drops nothing."""

    dry_run: bool = False


class Dropped(Answer, frozen=True):
    """How many results were dropped, or would be."""

    dropped: int
    dry_run: bool
