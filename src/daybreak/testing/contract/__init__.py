"""The contract: a test for every promise that a store alone can keep. The name of the test is the promise.

The tests use only the store protocol, pass the time in, and never sleep.
"""

from __future__ import annotations

import pytest

from daybreak.testing.clock import HandClock
from daybreak.testing.contract.acceptance import Acceptance
from daybreak.testing.contract.attempts import Attempts
from daybreak.testing.contract.batches import Batches
from daybreak.testing.contract.cancellation import Cancellation
from daybreak.testing.contract.chosen_jobs import ChosenJobs
from daybreak.testing.contract.deaths import Deaths
from daybreak.testing.contract.detached import DetachedJobs
from daybreak.testing.contract.ends import Ends
from daybreak.testing.contract.events import Events, Tallies
from daybreak.testing.contract.flights import CacheRoom, DueFlights, Followers, KnownResults, Leaders, Uncaching
from daybreak.testing.contract.holders import Holders
from daybreak.testing.contract.identity import Identity, Results
from daybreak.testing.contract.keys import Keys, Uniques, UniquesWhileWaiting
from daybreak.testing.contract.known_tasks import KnownTasks
from daybreak.testing.contract.leases import Fences, Lapses
from daybreak.testing.contract.limits import Capacity, FullQueues, MaxRunning
from daybreak.testing.contract.manual_changes import Amendments, BulkChanges, Suspension
from daybreak.testing.contract.migration import Migration
from daybreak.testing.contract.order import Aging, Order, Positions, Turns
from daybreak.testing.contract.queries import Queries
from daybreak.testing.contract.rates import Gates, Rates
from daybreak.testing.contract.records import Records
from daybreak.testing.contract.reserved_slots import ReservedSlots
from daybreak.testing.contract.resource_sets import ResourceSets
from daybreak.testing.contract.retention import Retention
from daybreak.testing.contract.retry_budget import Haste, RetryBudget
from daybreak.testing.contract.shedding import Shedding, Shortening
from daybreak.testing.contract.slots import Slots
from daybreak.testing.contract.time import Delays, Expiry, TwoClocks
from daybreak.testing.contract.totals import Totals
from daybreak.testing.contract.versions import Programs, Versions
from daybreak.testing.contract.waiters import SheddingAtAResource, SheddingWaiters
from daybreak.testing.contract.wakeups import Wakeups


class StoreContract(
    Acceptance, Keys, Uniques, UniquesWhileWaiting,
    Order, ChosenJobs, Turns, Aging, Positions, MaxRunning, Capacity, FullQueues, KnownTasks, Slots, ResourceSets,
    ReservedSlots, Rates, Gates, Holders, RetryBudget, Haste, Shedding, SheddingWaiters, SheddingAtAResource,
    Shortening, Totals, Fences, Lapses, DetachedJobs, Attempts, Deaths, Cancellation, Suspension, Amendments,
    BulkChanges, Delays, Expiry, TwoClocks, Events, Ends, Tallies, Records, Identity, Results, Retention, Migration,
    Queries, KnownResults, DueFlights, Followers, Leaders, CacheRoom, Uncaching, Wakeups, Versions, Batches,
):  # fmt: skip
    """Subclass it and define a fixture `store`: an open, empty store that is closed afterwards.

    A store that takes a `World` should get the fixture `clock`; otherwise the tests of the two clocks are skipped. A
    store that several programs share also needs a fixture `programs`: see `Programs`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()


__all__ = ["Programs", "StoreContract"]
