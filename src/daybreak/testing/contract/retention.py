"""Retention: what is kept and for how long, and what may be deleted."""

from __future__ import annotations

from typing import Any

from daybreak.core.model import Reason
from daybreak.store.protocol import Purge, Store
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    accept,
    accept_all,
    amend,
    assert_sound,
    beat,
    claim_jobs,
    claim_one,
    find_all,
    get_job,
    reap,
    run_one,
    settle,
)


class Retention:
    async def test_a_finished_job_is_kept_as_long_as_it_asked_and_then_forgotten(self, store: Store) -> None:
        job = await accept(store, keep_completed=DAY)
        await run_one(store, now=NOON + HOUR)
        assert (await store.purge(Purge(), now=NOON + DAY)).jobs == 0
        assert await find_all(store) == [job]
        assert (await store.purge(Purge(), now=NOON + DAY + HOUR)).jobs == 1
        assert await store.get([job]) == [None]
        assert await store.history(job) == []

    async def test_failed_jobs_are_kept_for_a_time_of_their_own(self, store: Store) -> None:
        said: dict[str, Any] = {"keep_completed": DAY, "keep_failed": 3 * DAY}
        completed, failed, cancelled = [await accept(store, **said) for _ in range(3)]
        expired = await accept(store, expires_in=HOUR, **said)
        await run_one(store)
        await run_one(store, FATAL)
        await amend(store, "cancel", cancelled)
        await store.advance(now=NOON + HOUR)
        assert (await store.purge(Purge(), now=NOON + DAY)).jobs == 2
        assert set(await find_all(store)) == {failed, expired}
        assert (await get_job(store, expired)).reason is Reason.EXPIRED
        assert (await store.purge(Purge(), now=NOON + 3 * DAY)).jobs == 1
        assert await find_all(store) == [expired]
        assert completed not in await find_all(store)

    async def test_what_is_kept_for_ever_is_never_purged(self, store: Store) -> None:
        job = await accept(store, keep_completed=None)
        await run_one(store)
        assert (await store.purge(Purge(), now=NOON + 9999 * DAY)).jobs == 0
        assert await find_all(store) == [job]

    async def test_unfinished_jobs_are_never_purged(self, store: Store) -> None:
        held, running, queued = await accept_all(store, 3)
        await amend(store, "suspend", held)
        await claim_one(store)
        delayed = await accept(store, delay=MINUTE)
        assert (await store.purge(Purge(), now=NOON + 9999 * DAY)).jobs == 0
        assert set(await find_all(store)) == {held, running, queued, delayed}

    async def test_a_retried_job_is_kept_from_its_new_end_on(self, store: Store) -> None:
        job = await accept(store, keep_completed=DAY)
        await run_one(store)
        await amend(store, "retry", job, now=NOON + HOUR)
        assert (await store.purge(Purge(), now=NOON + 9 * DAY)).jobs == 0
        await run_one(store, now=NOON + 9 * DAY)
        assert (await store.purge(Purge(), now=NOON + 10 * DAY)).jobs == 1

    async def test_purging_comes_in_bounded_numbers_oldest_first(self, store: Store) -> None:
        jobs = await accept_all(store, 5, keep_completed=DAY)
        for step in range(5):
            await run_one(store, now=NOON + step * MINUTE)
        purged = await store.purge(Purge(limit=2), now=NOON + 9 * DAY)
        assert (purged.jobs, purged.again) == (2, True)
        assert await find_all(store) == jobs[:1:-1]
        for _ in range(2):
            await store.purge(Purge(limit=2), now=NOON + 9 * DAY)
        assert await find_all(store) == []
        await assert_sound(store)

    async def test_a_lease_of_a_removed_job_can_do_nothing(self, store: Store) -> None:
        job = await accept(store, unique="u")
        slow = await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        assert await settle(store, taken, now=NOON + LEASE)
        assert await amend(store, "remove", job) == ["done"]
        for lease in (slow, taken):
            assert not await settle(store, lease)
            assert not (await beat(store, lease)).held
        assert await reap(store, now=NOON + DAY) == []
        assert await claim_jobs(store, 9) == []
        await accept(store, unique="u")
        await assert_sound(store)
