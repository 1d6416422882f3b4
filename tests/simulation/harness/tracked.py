"""What the events and requests so far say of one job: the checker's own book, kept apart from any store's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from daybreak.core.events import Event, Folded
from daybreak.core.model import FINAL, JobSpec, State
from daybreak.core.rank import Rank


@dataclass(slots=True, eq=False)
class Tracked:
    spec: JobSpec
    seq: int
    arrived: int
    rank: Rank
    folded: Folded = field(default_factory=Folded)
    events: list[Event] = field(default_factory=list)
    due: tuple[Literal["steady", "wall"], int] | None = None
    expires: int | None = None
    may_expire: int | None = None  # earlier, if its queue was nearly full when it came
    charged: int = 0
    deaths: int = 0
    alone: bool = False
    begun: bool = True
    reaped: bool = False
    holder: str | None = None
    claimed_by: str | None = None
    call: tuple[str, str | None] | None = None  # the claim that took it, and by which commit
    claimed_at: int = 0
    until: int = 0
    term: int = 0
    extended: int = 0
    settled: set[int] = field(default_factory=set)
    cancel_asked: bool = False
    suspend_asked: bool = False
    reranked: bool = False
    purge_at: int | None = None
    result: bytes | None = None
    shared: bytes | None = None  # the result that its flight knew, if it has that
    cached_from: str | None = None
    group: int | None = None  # the batch call of its present lease
    blocked_on: str = ""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def state(self) -> State | None:
        return self.folded.state

    @property
    def queue(self) -> str:
        return self.spec.queue

    @property
    def is_final(self) -> bool:
        return self.folded.state in FINAL

    def is_overdue(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now

    def may_be_overdue(self, now: int) -> bool:
        return self.expires is not None and (self.may_expire or self.expires) <= now
