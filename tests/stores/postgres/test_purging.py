"""The check before a purge, by the server's own clock: each kind of row is purged when it is due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Purge
from daybreak.testing.contract.builders import spec

NOTHING = timedelta()


@pytest.mark.parametrize(
    ("keep", "purge", "gone"),
    [
        (NOTHING, Purge(), "jobs"),
        (timedelta(days=1), Purge(events_for=NOTHING), "events"),
        (NOTHING, Purge(keys_for=NOTHING), "keys"),
        (timedelta(days=1), Purge(), ""),
    ],
)
async def test_what_was_kept_long_enough_is_found_and_purged(store, keep, purge, gone):
    await store.insert([spec(key="k", keep_completed=keep)])
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w", lease_for=timedelta(hours=1))))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
    first = await store.purge(purge)  # a key is purged after its job
    purged = [first, await store.purge(purge)]
    assert sum(one.jobs for one in purged) == (keep == NOTHING)
    assert (sum(one.events for one in purged) > 0) is (gone == "events")
    assert (sum(one.keys for one in purged) > 0) is (gone == "keys")
