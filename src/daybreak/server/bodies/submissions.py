"""Submitting one job or many."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from daybreak.policy.admit import TAGS_LIMIT
from daybreak.server.bodies.base import Answer, Duration, Instant, Name, PriorityValue, ProblemBody, Request, StateName

Preset = Literal["default", "aggressive", "conservative", "simulator", "upload"]


class RetryBody(Request, frozen=True):
    """The retry policy. `attempts` counts all attempts, including the first."""

    strategy: Literal["fixed", "linear", "exponential", "jittered", "adaptive"] = "jittered"
    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    delay: Duration = "1s"
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: Duration = "30s"
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    unknown: Literal["retry", "fail"] = "retry"


class SubmitBody(Request, frozen=True):
    """A job to submit. Options that are left out have the values that the task declares, or the defaults. `timeout` may
    be `adaptive:10m`. `cache` is for cached tasks: false computes the result whatever is known, and keeps nothing;
    "refresh" computes it anew and keeps it."""

    task: Name
    args: dict[str, Any] = {}
    queue: Name | None = None
    priority: PriorityValue | None = None
    version: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    delay: Duration | None = None
    run_at: Instant | None = None
    expires_in: Duration | None = None
    key: Name | None = None
    unique: Name | None = None
    unique_while: Literal["unfinished", "waiting"] | None = None
    on_conflict: Literal["return", "replace", "raise", "refuse"] | None = None
    retry: Annotated[int, Meta(ge=1, le=1_000_000)] | Preset | RetryBody | None = None
    timeout: Duration | None = None
    keep: Duration | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] = []
    meta: dict[str, Any] = {}
    run: Name | None = None
    owner: Name | None = None
    cache: bool | Literal["refresh"] | None = None


class Submitted(Answer, frozen=True):
    """An accepted job. `position` is how many jobs of its queue are claimed before it, or null if it does not wait.
    `created` is false if a job with the same key or unique name exists already: then this is that job."""

    id: str
    state: StateName
    position: int | None
    created: bool


class BatchBody(Request, frozen=True):
    """Jobs to submit together. Each is accepted or refused by itself."""

    jobs: Annotated[list[SubmitBody], Meta(min_length=1, max_length=1000)]


class BatchItem(Answer, frozen=True):
    """The result of one job of a batch: the accepted job, or the problem."""

    id: str | None
    state: StateName | None
    created: bool
    problem: ProblemBody | None


class BatchAnswer(Answer, frozen=True):
    """The results in the order of the request. `accepted` counts the jobs that were accepted."""

    accepted: int
    jobs: list[BatchItem]
