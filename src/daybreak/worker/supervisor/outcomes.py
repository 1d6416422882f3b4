"""Decides the outcome of a lease from what its child reported and from what the job was asked to do meanwhile."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from daybreak.core.model import (
    Cancelled,
    Detached,
    Done,
    Ending,
    Failed,
    Failure,
    HandedBack,
    Lost,
    Suspended,
    TimedOut,
)
from daybreak.worker.supervisor.child import HeldLease
from daybreak.worker.wire import Ended


def timed_out(held: HeldLease, ran_for: float) -> TimedOut:
    """The outcome of a job that ran into its time limit, or that hung."""
    after = ran_for if held.hang_message else held.limit or ran_for
    return TimedOut(timedelta(seconds=after), held.hang_message, held.stack)


def outcome_of(held: HeldLease, ended: Ended) -> Ending:
    """The outcome that a child reported."""
    match ended.status:
        case "done":
            return Done(ended.result, ended.ran_for, ended.note)
        case "cancelled":
            return Cancelled()
        case "suspended":
            return Suspended(ended.note)
        case "timed out":
            return timed_out(held, ended.ran_for)
        case "handed back":
            return HandedBack(delay=ended.delay)
        case "detached":
            return Detached(ended.detached_for or timedelta())
        case _:
            return Failed(ended.failure or Failure(message="it failed without an error"), ended.ran_for)


def outcome_after_stop(held: HeldLease, outcome: Ending, now: float) -> Ending:
    """The outcome of a job that was asked to stop: if it ended because of that, the reason for the stop decides."""
    match held.stop_reason, outcome:
        case "cancel", Lost() | HandedBack():
            return Cancelled()
        case "suspend", Lost() | HandedBack():
            return Suspended()
        case "suspend" | "timeout", Failed(Failure(verdict="permanent")):
            return outcome  # the job itself said that it must not run again
        case "suspend", Failed(failure):
            return Suspended(str(failure))
        case "timeout", Failed(failure, ran_for):
            return replace(timed_out(held, ran_for), stack=held.stack or failure.traceback)
        case "timeout", Lost() | HandedBack() | Cancelled():
            return timed_out(held, now - held.started_at)
        case _:
            return outcome
