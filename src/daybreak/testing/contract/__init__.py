"""The contract: every promise that a store alone can keep, as a test with the promise for its name.

It speaks to stores through the seam only, passes time in, and never sleeps.
"""

from __future__ import annotations

import pytest

from daybreak.testing.clock import HandClock
from daybreak.testing.contract.acceptance import Acceptance
from daybreak.testing.contract.attempts import Attempts
from daybreak.testing.contract.cancelling import Cancelling
from daybreak.testing.contract.crowds import Shedding, Shortening
from daybreak.testing.contract.deaths import Deaths
from daybreak.testing.contract.holders import Holders
from daybreak.testing.contract.identity import Identity, Results
from daybreak.testing.contract.keeping import Keeping
from daybreak.testing.contract.keys import Keys, Uniques, UniquesWhileWaiting
from daybreak.testing.contract.knowing import Knowing
from daybreak.testing.contract.leases import Fences, Lapses
from daybreak.testing.contract.limits import Capacity, MaxRunning
from daybreak.testing.contract.moving import Moving
from daybreak.testing.contract.order import Aging, Order, Positions, Turns
from daybreak.testing.contract.pace import Gates, Pace
from daybreak.testing.contract.people import Amending, Bulk, Holding
from daybreak.testing.contract.reading import Finding
from daybreak.testing.contract.records import Records
from daybreak.testing.contract.retention import Retention
from daybreak.testing.contract.several import Several
from daybreak.testing.contract.slots import Slots
from daybreak.testing.contract.sparing import Haste, Sparing
from daybreak.testing.contract.telling import Events, Tallies
from daybreak.testing.contract.time import Delays, Expiry, TwoClocks
from daybreak.testing.contract.totals import Totals
from daybreak.testing.contract.versions import Programs, Versions
from daybreak.testing.contract.waiters import SheddingAtAResource, SheddingWaiters
from daybreak.testing.contract.waking import Waking


class StoreContract(
    Acceptance, Keys, Uniques, UniquesWhileWaiting,
    Order, Turns, Aging, Positions, MaxRunning, Capacity, Knowing, Slots, Several, Keeping, Pace, Gates, Holders,
    Sparing, Haste, Shedding, SheddingWaiters, SheddingAtAResource, Shortening, Totals,
    Fences, Lapses, Attempts, Deaths, Cancelling, Holding, Amending, Bulk,
    Delays, Expiry, TwoClocks, Events, Tallies, Records, Identity, Results, Retention, Moving, Finding, Waking,
    Versions,
):  # fmt: skip
    """Subclass it and bring a fixture `store`: an open, empty store, closed afterwards.

    A store that takes a `World` should be given the fixture `clock`: without it the tests of two clocks are skipped.
    A store that several programs share also brings a fixture `programs`: see `Programs`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()


__all__ = ["Programs", "StoreContract"]
