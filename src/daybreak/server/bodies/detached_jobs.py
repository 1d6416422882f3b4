"""Work that went on elsewhere: how it ended, and its deadline."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from daybreak.server.bodies.base import Answer, Duration, Note, Request, StateName

Fence = Annotated[int, Meta(ge=1, le=2**53)]


class FinishBody(Request, frozen=True):
    """How an attempt ended: with its `result`, or with an `error`, `cancelled` or `timed_out`. `fence` is what the
    attempt was given as `ctx.fence`; without it, the attempt that is detached now is ended. An error is retried unless
    it is `permanent`. `note` says why it timed out, or what people should know of a success."""

    fence: Fence | None = None
    result: Any = None
    error: Annotated[str, Meta(max_length=10_000)] | None = None
    permanent: bool = False
    cancelled: bool = False
    timed_out: bool = False
    note: Note = ""


class FinishedBody(Answer, frozen=True):
    """The state of the job after this attempt. `repeated`: the attempt had ended with this outcome before, and nothing
    was written."""

    id: str
    state: StateName
    attempt: int
    fence: int
    repeated: bool


class ExtendBody(Request, frozen=True):
    """A new `deadline`, counted from now."""

    deadline: Duration
    fence: Fence | None = None


class ExtendedBody(Answer, frozen=True):
    """When the attempt times out unless somebody finishes it."""

    id: str
    fence: int
    detached_until: str
