"""Resources and their settings."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from daybreak.server.bodies.base import Answer, Duration, Request

SlotNumber = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class BreakerBody(Answer, frozen=True):
    """When a breaker opens and closes; `open_for` and `forget_after` are in seconds."""

    failures: int
    successes: int
    open_for: float
    probes: int
    forget_after: float | None


class ResourceBody(Answer, frozen=True):
    """A resource: the fields of `daybreak resources --json`."""

    name: str
    slots: int | None
    used: int
    waiting: int
    retries_waiting: int
    rate: str
    burst: int
    max_waiting: int | None
    breaker: Literal["none", "closed", "open"]
    failures: int
    opened: int
    shut_until: str | None
    set_by: str
    differs: bool
    breaker_settings: BreakerBody | None


class ResourceDetail(ResourceBody, frozen=True):
    """`holders` are the jobs that hold it now."""

    holders: list[str]


class ResourceQuery(Request, frozen=True):
    """Locks are resources too. There may be many, so they are listed only with `locks`."""

    locks: bool = False


class ResourceList(Answer, frozen=True):
    resources: list[ResourceBody]


class BreakerChanges(Request, frozen=True):
    failures: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 5
    successes: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 2
    open_for: Duration = "60s"
    probes: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1
    forget_after: Duration | None = None


class ResourceChanges(Request, frozen=True):
    """Settings to change; null removes a limit or the breaker. `rate` is a number per time, such as 10/s or 100/min."""

    slots: SlotNumber | UnsetType | None = UNSET
    rate: Annotated[str, Meta(min_length=1, max_length=40, examples=["10/s"])] | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1, le=1_000_000_000)] | UnsetType = UNSET
    max_waiting: SlotNumber | UnsetType | None = UNSET
    breaker: BreakerChanges | bool | UnsetType | None = UNSET
