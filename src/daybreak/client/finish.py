"""Ends attempts that go on elsewhere, and moves their deadlines.

Whoever runs the work has only the id of the job and the fence of the attempt. The lease is made again from the store,
the policy decides what becomes of the job, and the store checks the fence in the transaction that writes it. An outcome
may come twice, late, or before the worker has detached the job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.leases import lease_of
from daybreak.core.errors import AttemptOver, BadInput, WrongState
from daybreak.core.events import Event
from daybreak.core.model import Cancelled, Done, Failed, Job, Lease, Settlement, State, TimedOut
from daybreak.core.units import ZERO, clean, micros, period
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Exchange

if TYPE_CHECKING:
    from daybreak.client.client import Client

FinishedWith = Done | Failed | TimedOut | Cancelled
ENDS: Final = frozenset({"completed", "failed", "cancelled", "retrying", "released", "suspended"})  # of an attempt
ERROR_SHOWN: Final = 300  # characters of an error that an event keeps


class Finished(Struct, frozen=True, kw_only=True):
    """What became of a job that was finished: its state after it, and the attempt that ended. `repeated` means that the
    attempt had ended with this outcome before, and nothing was written.

    `settled` is what this call wrote."""

    job: str
    state: State
    attempt: int
    fence: int
    repeated: bool = False
    settled: tuple[Lease, Settlement] | None = None


async def finish(
    client: Client, job_id: str, outcome: FinishedWith, *, fence: int | None = None, by: str | None = None
) -> Finished:
    """End the attempt with this fence. Without one, the attempt that is detached now. `by` is who ends it, if it is not
    the client.

    The same outcome again answers as the first time. Raises JobNotFound; AttemptOver if the attempt ended otherwise, or
    is of an earlier one; WrongState for a lock, and for a job that no fence names and that is not detached."""
    before = await client.get(job_id)
    if before.spec.holder is not None:
        raise WrongState(before.id, before.state, "it is a lock: release it with `daybreak locks release`")
    fence = _fence_of(before) if fence is None else check_fence(fence)
    settled = None
    if before.state is State.RUNNING and before.fence == fence:
        lease = replace(lease_of(before), checkpoint=before.checkpoint, detached=True)
        settlement = settle(lease, _timed(outcome, before, client.wall()), chance=client.chance(), by=by or client.by)
        await client.call(client.store.exchange(Exchange(settle=[settlement])))
        settled = (lease, settlement)
    # A store answers a second settlement under one fence like a repeated one. So the job itself tells what happened.
    after, history = await client.get(job_id), await client.history(job_id)
    end = end_of(history, fence)
    if end is None or not _is_same(outcome, end, after, fence):
        raise AttemptOver(after.id, fence, _what_happened(after, end), is_future=fence > after.fence)
    is_new = settled is not None and end.n > before.revision
    return Finished(
        job=after.id,
        state=end.state or after.state,
        attempt=before.attempt if before.fence == fence else after.attempt,
        fence=fence,
        repeated=not is_new,
        settled=settled if is_new else None,
    )


async def extend(
    client: Client, job_id: str, deadline: timedelta, *, fence: int | None = None, by: str | None = None
) -> Job:
    """Give a detached job a new deadline, counted from now. Returns the job. Raises JobNotFound; AttemptOver if another
    attempt runs; WrongState if the job is not detached."""
    if deadline <= ZERO:
        raise BadInput("deadline: it must be longer than 0")
    job = await client.get(job_id)
    fence = _fence_of(job) if fence is None else check_fence(fence)
    if job.state is State.RUNNING and job.fence == fence and not job.detached:
        raise WrongState(job.id, job.state, "it is not detached, its worker extends its lease")
    if job.state is State.RUNNING and job.fence == fence:
        beat = Beat(
            seq=job.seq, fence=fence, lease_for=deadline, detach=True, by=by or client.by or "someone", job=job.id
        )
        [reply] = await client.call(client.store.extend([beat]))
        if reply.held:
            return await client.get(job_id)
        job = await client.get(job_id)
    end = end_of(await client.history(job_id), fence)
    raise AttemptOver(job.id, fence, _what_happened(job, end), is_future=fence > job.fence)


def check_fence(fence: object) -> int:
    """A fence that a caller gave."""
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 1:
        raise BadInput(f"fence={fence!r:.40}: write the number that ctx.fence gave to the attempt")
    return fence


def _fence_of(job: Job) -> int:
    """The fence of the attempt that is detached, or of a job that has ended."""
    if job.detached or job.is_final:
        return job.fence
    raise WrongState(job.id, job.state, "it is not detached; name the attempt that ended by its fence")


def _timed(outcome: FinishedWith, job: Job, wall: int) -> FinishedWith:
    """The outcome with how long the attempt took."""
    assert job.started_at is not None
    ran = period(max(0, wall - micros(job.started_at)))
    match outcome:
        case Done() | Failed():
            return replace(outcome, ran=ran.total_seconds())
        case TimedOut():
            return replace(outcome, after=ran)
        case Cancelled():
            return outcome


def end_of(history: Sequence[Event], fence: int) -> Event | None:
    """The event that ended the attempt with this fence; None if it has not ended so, or a reaper ended it."""
    current = None
    for event in history:
        if event.fence is not None:
            current = event.fence
        elif current == fence and event.kind in ENDS:
            return event
    return None


def _is_same(outcome: FinishedWith, end: Event, job: Job, fence: int) -> bool:
    """Whether the attempt ended with this outcome."""
    match outcome:
        case Done(result):
            is_kept = job.state is State.COMPLETED and job.fence == fence
            return end.kind == "completed" and (not is_kept or job.result == result)
        case Cancelled():
            return end.kind == "cancelled"
        case Failed(failure):
            return end.error == clean(str(failure))[:ERROR_SHOWN]
        case TimedOut(_, story):
            return end.error == clean(f"TimeoutError: {story}")[:ERROR_SHOWN]


def _what_happened(job: Job, end: Event | None) -> str:
    if end is not None:
        what = end.kind if end.kind != "retrying" else "failed, and is retried"
        error = f" ({end.error})" if end.error else ""
        return (
            f"it {'was ' if end.kind in ('cancelled', 'released', 'suspended') else ''}{what} at {end.at:%F %T}{error}"
        )
    if job.state is State.RUNNING:
        return f"the job runs with fence {job.fence} now, as attempt {job.attempt}"
    return f"the job is {job.state} now, with fence {job.fence}"


__all__ = ["Finished", "FinishedWith", "check_fence", "end_of", "extend", "finish"]
