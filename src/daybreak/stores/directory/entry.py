"""A job as a folder keeps it: the format of the journal and of metadata files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import Failure, JobSpec, Need, Reason, State
from daybreak.core.rank import Rank
from daybreak.stores.kernel.row import STEADY, WALL, Row
from daybreak.stores.memory.transaction import MemoryRow

_CLOCKS: dict[int, Literal["steady", "wall"]] = {STEADY: "steady", WALL: "wall"}
_CLOCK_NUMBERS = {word: number for number, word in _CLOCKS.items()}
# The fields that a row and an entry have in common.
_SHARED = (
    "seq", "state", "priority", "created", "arrived", "expires", "attempt", "fence", "n", "lost", "timeouts", "worker",
    "until", "term", "call", "group", "elements", "reaped", "alone", "ahead", "detached", "started", "finished",
    "purge_at", "progress", "message", "note", "cancelling", "suspending", "checkpoint", "result", "failure",
    "blocked_since",
)  # fmt: skip


class Entry(Struct, eq=False, gc=False, kw_only=True):
    """One job. `keys` are the idempotency keys that stand for it; `history` has all its events."""

    spec: JobSpec
    lane: tuple[str, str, int]
    needs: tuple[Need, ...]
    seq: int
    state: State
    rank: Rank
    priority: int
    created: int
    arrived: int
    due: tuple[Literal["steady", "wall"], int] | None = None
    expires: int | None = None
    reason: Reason | None = None
    attempt: int = 0
    fence: int = 0
    n: int = 0
    lost: int = 0
    timeouts: int = 0
    worker: str | None = None
    until: int | None = None
    term: int = 0
    call: str | None = None
    group: int | None = None
    elements: int = 0
    reaped: bool = False
    alone: bool = False
    ahead: bool = False
    detached: bool = False
    started: int | None = None
    finished: int | None = None
    purge_at: int | None = None
    progress: float | None = None
    message: str = ""
    note: str = ""
    cancelling: str | None = None
    suspending: bool = False
    checkpoint: bytes | None = None
    result: bytes | None = None
    failure: Failure | None = None
    history: list[Event] = []
    keys: tuple[str, ...] = ()
    blocked_on: str | None = None
    blocked_since: int | None = None


def entry_of(row: Row, keys: Iterable[str]) -> Entry:
    """What the folder keeps of a job."""
    return Entry(
        spec=row.spec,
        lane=row.name,
        needs=row.needs,
        rank=row.rank,
        due=None if row.clock is None or row.due is None else (_CLOCKS[row.clock], row.due),
        reason=None if row.reason is None else Reason(row.reason),
        history=row.events(),
        keys=tuple(keys),
        blocked_on=row.cause,
        **{name: getattr(row, name) for name in _SHARED},
    )


def row_of(entry: Entry) -> Row:
    """The job that a folder kept."""
    row = MemoryRow(
        id=entry.spec.id,
        name=entry.lane,
        options=entry.spec.options,
        unique=entry.spec.unique,
        batch=entry.spec.batch,
        known_spec=entry.spec,
        band=entry.rank.band,
        ord=entry.rank.order,
        reason=entry.reason,
        cause=entry.blocked_on if entry.state is State.BLOCKED else None,
        history=tuple(entry.history) or None,
        **{name: getattr(entry, name) for name in _SHARED},
    )
    if entry.due is not None and entry.state in (State.SCHEDULED, State.SUSPENDED):
        row.clock, row.due = _CLOCK_NUMBERS[entry.due[0]], entry.due[1]
    return row
