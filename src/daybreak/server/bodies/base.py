"""Types of fields, the base classes of all bodies, and the problem document."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from daybreak.policy.admit import NAME_LIMIT

StateName = Literal[
    "scheduled", "blocked", "queued", "running", "suspended", "completed", "failed", "cancelled"
]  # fmt: skip
ReasonName = Literal["error", "exhausted", "timeout", "expired", "shed", "lost", "upstream"]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
Duration = Annotated[str, Meta(min_length=2, max_length=40, description="such as 90s or 1h30m", examples=["90s"])]
Instant = Annotated[datetime, Meta(tz=True)]
Cluster = Annotated[str, Meta(pattern="^[0-9a-f]{12}$", description="a failure cluster, as GET /failures names it")]
Past = Annotated[str, Meta(min_length=2, max_length=40, description="an age or an instant", examples=["1d"])]
PriorityValue = Annotated[int, Meta(ge=0, le=10)] | Annotated[str, Meta(min_length=3, max_length=10)]
PriorityWord = Annotated[str, Meta(pattern="^([0-9]|10|[A-Za-z]{3,10})$", description="0 to 10, or a name")]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=200)]
Note = Annotated[str, Meta(max_length=1000)]
EXAMPLE_ID: Final = "0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d"


class Request(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A request body or query: fields that are not listed are refused."""


class Answer(Struct, kw_only=True, frozen=True):
    """A response body."""


class ProblemBody(Answer, frozen=True):
    """A problem document (RFC 9457). `hint` says what to do; `job` and `queue` name the cause."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    job: str | None = None
    queue: str | None = None
