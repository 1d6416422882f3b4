"""What a child said of a job, and what was asked of it meanwhile -> how its lease ends."""

from __future__ import annotations

import time
from datetime import timedelta

from msgspec.structs import replace

from daybreak.core.model import Cancelled, Done, Failed, Failure, HandedBack, Lost, Outcome, Suspended, TimedOut
from daybreak.worker.supervisor.child import Held
from daybreak.worker.wire import Ended


def too_late(held: Held, ran_for: float) -> TimedOut:
    """One that hung ran as long as it ran; any other ran into its limit."""
    after = ran_for if held.story else held.limit or ran_for
    return TimedOut(timedelta(seconds=after), held.story, held.stack)


def outcome_of(held: Held, said: Ended) -> Outcome:
    match said.status:
        case "done":
            return Done(said.result, said.ran_for)
        case "cancelled":
            return Cancelled()
        case "suspended":
            return Suspended(said.note)
        case "timed out":
            return too_late(held, said.ran_for)
        case "handed back":
            return HandedBack()
        case _:
            return Failed(said.failure or Failure(message="it failed and did not say how"), said.ran_for)


def as_asked(held: Held, outcome: Outcome) -> Outcome:
    """One that was asked to end, and did, ended for that reason."""
    match held.asked, outcome:
        case "cancel", Lost() | HandedBack():
            return Cancelled()
        case "suspend", Lost() | HandedBack():
            return Suspended()
        case "suspend" | "timeout", Failed(Failure(verdict="permanent")):
            return outcome  # the job itself has ruled that it must not run again
        case "suspend", Failed(failure):
            return Suspended(str(failure))
        case "timeout", Failed(failure, ran_for):
            return replace(too_late(held, ran_for), stack=held.stack or failure.traceback)
        case "timeout", Lost() | HandedBack() | Cancelled():
            return too_late(held, time.monotonic() - held.begun_at)
        case _:
            return outcome
