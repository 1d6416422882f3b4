"""The live feed: its query and its messages."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from daybreak.core.events import KINDS
from daybreak.server.bodies.base import Answer, Name, ReasonName, Request, StateName

EventKind = Literal[KINDS]  # type: ignore[valid-type]


class LiveQuery(Request, frozen=True):
    """Selects events: those that match every given parameter. A parameter may have several values. With `summary`, one
    message per second at most says how many events of each kind there were."""

    job: tuple[Name, ...] = ()
    run: tuple[Name, ...] = ()
    queue: tuple[Name, ...] = ()
    task: tuple[Name, ...] = ()
    owner: tuple[Name, ...] = ()
    kind: tuple[EventKind, ...] = ()
    after: Annotated[str, Meta(min_length=1, max_length=4000)] | None = None
    summary: bool = False


class LiveEvent(Answer, frozen=True):
    """The data of one message of the live feed. Fields that are empty are left out."""

    kind: EventKind
    at: str
    n: int
    job: str | None = None
    by: str | None = None
    state: StateName | None = None
    reason: ReasonName | None = None
    task: str | None = None
    queue: str | None = None
    run: str | None = None
    owner: str | None = None
    priority: int | None = None
    attempt: int | None = None
    fence: int | None = None
    run_at: str | None = None
    progress: float | None = None
    note: str | None = None
    error: str | None = None
    replaced_by: str | None = None
    deadline: str | None = None
