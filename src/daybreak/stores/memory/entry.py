"""One job in the memory store, with every field of its state."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from daybreak.core.events import Event, last_holder
from daybreak.core.model import FINAL, Failure, Job, JobSpec, Lease, Need, Reason, State
from daybreak.core.rank import Rank
from daybreak.core.units import moment, period
from daybreak.store.protocol import Filter

# Module constants, because Python 3.11 searches for an enum member at every access.
QUEUED: Final = State.QUEUED
RUNNING: Final = State.RUNNING
COMPLETED: Final = State.COMPLETED


class Entry(Struct, eq=False, gc=False, kw_only=True):
    """`lane` and `needs` are copied from the spec, which never changes. Nothing here refers back to the entry, so the
    garbage collector need not traverse all jobs again and again (`gc=False`)."""

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
    reaped: bool = False
    alone: bool = False
    ahead: bool = False
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

    def as_job(self) -> Job:
        return Job(
            spec=self.spec,
            seq=self.seq,
            state=self.state,
            reason=self.reason,
            blocked_on=self.blocked_on if self.state is State.BLOCKED else None,
            priority=self.priority,
            attempt=self.attempt,
            fence=self.fence,
            revision=self.n,
            lost=self.lost,
            timeouts=self.timeouts,
            created_at=moment(self.created),
            updated_at=self.history[-1].at,
            run_at=moment(self.due[1]) if self.due and self.state is State.SCHEDULED else None,
            expires_at=moment(self.expires) if self.expires is not None else None,
            started_at=moment(self.started) if self.started is not None else None,
            finished_at=moment(self.finished) if self.finished is not None else None,
            worker=last_holder(self.history) if self.state in FINAL else self.worker,
            leased_until=moment(self.until) if self.until is not None else None,
            progress=self.progress,
            message=self.message,
            note=self.note,
            cancelling=self.cancelling is not None,
            suspending=self.suspending,
            checkpoint=self.checkpoint,
            result=self.result,
            failure=self.failure,
        )

    def as_lease(self) -> Lease:
        assert self.worker is not None
        assert self.until is not None
        assert self.started is not None
        return Lease(
            seq=self.seq,
            spec=self.spec,
            fence=self.fence,
            attempt=self.attempt,
            priority=self.priority,
            worker=self.worker,
            until=moment(self.until),
            lease_for=period(self.term),
            started_at=moment(self.started),
            created_at=moment(self.created),
            lost=self.lost,
            timeouts=self.timeouts,
            checkpoint=self.checkpoint,
            call=self.call,
            reaped=self.reaped,
            alone=self.alone,
            begun=not self.ahead,
        )

    def matches(self, where: Filter) -> bool:
        spec = self.spec
        return (
            (not where.states or self.state in where.states)
            and where.reason in (None, self.reason)
            and where.queue in (None, spec.queue)
            and where.task in (None, spec.task)
            and where.run in (None, spec.run)
            and where.owner in (None, spec.owner)
            and where.key in (None, spec.key)
            and where.priority in (None, self.priority)
            and (where.tag is None or where.tag in spec.tags)
        )
