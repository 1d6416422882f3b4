"""Known ways to get batch calls and the cache wrong. The story of batches and cache must notice every one."""

from __future__ import annotations

from bugs import batches, flights
from bugs.planting import Bug, bug
from planted import Change, Planted

from daybreak.core.model import Lost
from daybreak.services import reaper
from daybreak.stores.kernel.claim import Claiming
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.pool import Pool


@bug(Pool, "_end_all")
def WholeBatchCharged(real, self, child, end):  # noqa: N802 - the name of a bug
    """When a child dies in mid-call, every job of the call pays for it, also those that were not in the function."""
    for call in child.calls.values() if child.blamed is None else ():
        for held in call.members:
            if held.ended is None and child.held.get(held.lease.seq) is held:
                del child.held[held.lease.seq]
                self._end_lease(held, Lost(end))
    real(self, child, end)


@bug(Pool, "_end_all")
def known_outcomes_are_lost(real, self, child, end):
    """When a child dies in mid-call, what it had reported of other jobs of the call counts for nothing."""
    for held in child.held.values():
        held.ended = None
    real(self, child, end)


@bug(Child, "_end_in_call")
def outcome_of_the_first_for_all(real, self, held, call, end):
    """Each job of a call has its own outcome."""
    known = real(self, held, call, end)
    return [(held, known[0][1]) for held, _ in known]


@bug(Claiming, "_leads_earlier_call")
def number_of_a_call_that_runs(real, self, head):
    """A job that comes back leads a new call under its number while others of its old call still run. (A real one,
    found here.) Reapers that take over one lease at a time make that common."""
    return False


ONE_BY_ONE: Change = (reaper, "MAX_LEASES", 1)


def planted(caught_by: set[str], within: int, one: Bug, *more: Change) -> Planted:
    return Planted(one.__name__, caught_by, within, changes=(*one.changes, *more))


BATCHES = [
    planted({"I25"}, 10, WholeBatchCharged),
    planted({"I25"}, 10, known_outcomes_are_lost),
    planted({"I25"}, 10, outcome_of_the_first_for_all),
    planted({"I1", "I2"}, 10, batches.SkippedJobIsGone),
    planted({"I26"}, 10, batches.BatchMixesKeys),
    planted({"I26"}, 10, batches.suspect_runs_with_others),
    planted({"I27"}, 10, batches.CallTakesSlotPerElement),
    planted({"I27"}, 10, batches.SlotLeaksWithHead),
    planted({"I27"}, 10, number_of_a_call_that_runs, ONE_BY_ONE),
    planted({"I28"}, 10, flights.follower_without_leader),
    planted({"I29"}, 10, flights.two_leaders),
    planted({"I30"}, 10, flights.failure_is_cached),
    planted({"I9"}, 10, flights.hit_does_not_say_whose_result_it_has),
]
