"""Queues and their settings."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from daybreak.server.bodies.base import Answer, Duration, Request

SmallNumber = Annotated[int, Meta(ge=0, le=2**31)]


class QueueBody(Answer, frozen=True):
    """A queue: the fields of `daybreak queues show --json`, and its waiting jobs. `depth` counts all waiting jobs.
    `oldest_wait` and `patience` are in seconds."""

    name: str
    paused: bool
    max_running: int | None
    capacity: int | None
    when_full: Literal["refuse", "shed"]
    discipline: Literal["fifo", "aging"]
    patience: float
    weight: int
    by_state: dict[str, int]
    by_priority: dict[str, int]
    by_task: dict[str, int]
    depth: int
    running: int
    oldest_at: str | None
    oldest_wait: float | None


class QueueList(Answer, frozen=True):
    queues: list[QueueBody]


class QueueChanges(Request, frozen=True):
    """Settings to change; null removes a limit."""

    paused: bool | UnsetType = UNSET
    max_running: SmallNumber | UnsetType | None = UNSET
    capacity: SmallNumber | UnsetType | None = UNSET
    when_full: Literal["refuse", "shed"] | UnsetType = UNSET
    discipline: Literal["fifo", "aging"] | UnsetType = UNSET
    patience: Duration | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1, le=2**31)] | UnsetType = UNSET
