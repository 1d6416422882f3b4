"""Time: delays, schedules and expiry, and the two clocks. Only the steady clock decides about leases."""

from __future__ import annotations

from typing import Any

import pytest

from daybreak.core.model import Done, Lease, Outcome, Reason, State
from daybreak.policy.settle import settle
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim, Exchange, Purge, Reap, Store
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import (
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    SECOND,
    TWICE,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    exchange,
    get_job,
    kinds_of,
    run_one,
    spec,
    state_of,
)


class Delays:
    async def test_a_delayed_job_starts_at_its_time_and_not_before(self, store: Store) -> None:
        job = await accept(store, delay=MINUTE)
        found = await get_job(store, job)
        assert (found.state, found.run_at) == (State.SCHEDULED, NOON + MINUTE)
        assert await claim_jobs(store, now=NOON + MINUTE - SECOND) == []
        assert await claim_ids(store, now=NOON + MINUTE) == [job]
        assert await kinds_of(store, job) == ["submitted", "due", "started"]
        assert (await get_job(store, job)).run_at is None

    async def test_a_job_scheduled_for_an_instant_starts_then_and_not_before(self, store: Store) -> None:
        job = await accept(store, run_at=NOON + HOUR)
        found = await get_job(store, job)
        assert (found.state, found.run_at) == (State.SCHEDULED, NOON + HOUR)
        assert await claim_jobs(store, now=NOON + HOUR - SECOND) == []
        assert await claim_ids(store, now=NOON + HOUR) == [job]

    async def test_an_instant_that_has_passed_is_now(self, store: Store) -> None:
        late, none = await accept(store, run_at=NOON - HOUR), await accept(store, delay=SECOND * 0)
        for job in (late, none):
            found = await get_job(store, job)
            assert (found.state, found.run_at) == (State.QUEUED, None)
        assert await claim_ids(store, 2) == [late, none]

    async def test_an_empty_claim_says_when_the_next_job_falls_due(self, store: Store) -> None:
        claim = Claim(worker="w1", limit=5)
        assert (await exchange(store, claim=claim)).next_in is None
        await accept(store, run_at=NOON + HOUR)
        assert (await exchange(store, claim=claim)).next_in == HOUR
        await accept(store, delay=MINUTE)
        answer = await exchange(store, claim=claim, now=NOON + SECOND)
        assert (answer.leases, answer.next_in, answer.again) == ([], MINUTE - SECOND, False)

    async def test_a_full_claim_says_that_more_may_be_there(self, store: Store) -> None:
        await accept_all(store, 3)
        assert (await exchange(store, claim=Claim(worker="w1", limit=2))).again
        assert not (await exchange(store, claim=Claim(worker="w1", limit=2))).again

    async def test_advance_queues_what_is_due_in_bounded_numbers(self, store: Store) -> None:
        jobs = await accept_all(store, 3, delay=MINUTE)
        last = await accept(store, delay=HOUR)
        advanced = await store.advance(2, now=NOON + MINUTE)
        assert (advanced.due, advanced.again) == (2, True)
        assert [await state_of(store, job) for job in jobs] == [State.QUEUED, State.QUEUED, State.SCHEDULED]
        advanced = await store.advance(2, now=NOON + MINUTE)
        assert (advanced.due, advanced.again, advanced.next_in) == (1, False, HOUR - MINUTE)
        assert await state_of(store, last) is State.SCHEDULED
        await assert_sound(store)

    async def test_a_claim_needs_no_scheduler_to_find_due_jobs(self, store: Store) -> None:
        jobs = await accept_all(store, 3, delay=MINUTE) + [await accept(store, run_at=NOON + MINUTE)]
        assert await claim_ids(store, 9, now=NOON + MINUTE) == jobs

    async def test_a_claim_queues_a_bounded_number_of_due_jobs_and_asks_to_be_repeated(self, store: Store) -> None:
        await store.insert([spec(delay=MINUTE) for _ in range(PROMOTED_PER_CLAIM + 5)], now=NOON)
        claim = Claim(worker="w1", limit=PROMOTED_PER_CLAIM * 2)
        first = await exchange(store, claim=claim, now=NOON + HOUR)
        assert (len(first.leases), first.again) == (PROMOTED_PER_CLAIM, True)
        second = await exchange(store, claim=claim, now=NOON + HOUR)
        assert (len(second.leases), second.again) == (5, False)


class Expiry:
    async def test_a_job_that_waited_too_long_expires(self, store: Store) -> None:
        queued, delayed = await accept(store, expires_in=MINUTE), await accept(store, expires_in=MINUTE, delay=HOUR)
        held = await accept(store, expires_in=MINUTE)
        await amend(store, "suspend", held)
        assert (await get_job(store, queued)).expires_at == NOON + MINUTE
        assert (await store.advance(now=NOON + MINUTE - SECOND)).expired == 0
        assert (await store.advance(now=NOON + MINUTE)).expired == 3
        for job in (queued, delayed, held):
            found = await get_job(store, job)
            assert (found.state, found.reason, found.attempt) == (State.FAILED, Reason.EXPIRED, 0)
            assert (found.finished_at, found.expires_at) == (NOON + MINUTE, None)
            assert (await kinds_of(store, job))[-1] == "expired"
        await assert_sound(store)

    async def test_an_expired_job_never_starts(self, store: Store) -> None:
        job = await accept(store, expires_in=MINUTE, priority=0)
        fresh = await accept(store)
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [fresh]
        assert (await get_job(store, job)).reason is Reason.EXPIRED

    async def test_expiry_limits_only_the_wait_for_the_first_start(self, store: Store) -> None:
        job = await accept(store, expires_in=MINUTE, retry=TWICE)
        await run_one(store, OOPS, now=NOON + SECOND)
        assert (await get_job(store, job)).expires_at is None
        assert (await store.advance(now=NOON + HOUR)).expired == 0
        assert await claim_ids(store, now=NOON + HOUR) == [job]

    async def test_a_running_job_does_not_expire(self, store: Store) -> None:
        job = await accept(store, expires_in=MINUTE)
        await claim_one(store)
        assert (await store.advance(now=NOON + HOUR)).expired == 0
        assert await state_of(store, job) is State.RUNNING

    async def test_expiry_comes_in_bounded_numbers_earliest_first(self, store: Store) -> None:
        late, early = await accept(store, expires_in=2 * MINUTE), await accept(store, expires_in=MINUTE)
        advanced = await store.advance(1, now=NOON + HOUR)
        assert (advanced.expired, advanced.again) == (1, True)
        assert [await state_of(store, job) for job in (late, early)] == [State.QUEUED, State.FAILED]

    async def test_a_cancelled_job_does_not_expire(self, store: Store) -> None:
        job = await accept(store, expires_in=MINUTE)
        await amend(store, "cancel", job)
        assert (await store.advance(now=NOON + HOUR)).expired == 0
        assert await state_of(store, job) is State.CANCELLED


class TwoClocks:
    """Here the store uses its own clock, which the test moves: `now` is not passed in."""

    async def test_a_wall_clock_that_jumps_expires_no_lease(self, store: Store, clock: HandClock) -> None:
        await _submit(store, clock)
        [lease] = await _claim(store)
        for jump in (365 * DAY, -2 * 365 * DAY):
            clock.jump(jump)
            assert await _reap(store) == []
        clock.advance(LEASE - SECOND)
        assert await _reap(store) == []
        clock.advance(SECOND)
        assert [taken.job for taken in await _reap(store)] == [lease.job]

    async def test_a_wall_clock_that_is_set_back_keeps_no_lease_alive(self, store: Store, clock: HandClock) -> None:
        await _submit(store, clock)
        await _claim(store)
        clock.jump(-DAY)
        clock.advance(LEASE)
        assert len(await _reap(store)) == 1

    async def test_a_delay_goes_by_the_steady_clock(self, store: Store, clock: HandClock) -> None:
        job = await _submit(store, clock, delay=MINUTE)
        clock.jump(DAY)
        assert await _claim(store) == []
        clock.jump(-2 * DAY)
        clock.advance(MINUTE)
        assert [lease.job for lease in await _claim(store)] == [job]

    async def test_a_scheduled_instant_goes_by_the_wall_clock(self, store: Store, clock: HandClock) -> None:
        job = await _submit(store, clock, run_at=NOON + HOUR)
        clock.jump(-DAY)
        clock.advance(HOUR)
        assert await _claim(store) == []
        clock.jump(DAY)
        assert [lease.job for lease in await _claim(store)] == [job]

    async def test_expiry_goes_by_the_steady_clock(self, store: Store, clock: HandClock) -> None:
        job = await _submit(store, clock, expires_in=MINUTE)
        clock.jump(DAY)
        assert (await store.advance()).expired == 0
        clock.jump(-2 * DAY)
        clock.advance(MINUTE)
        assert (await store.advance()).expired == 1
        assert await state_of(store, job) is State.FAILED

    async def test_a_jump_of_the_clock_ends_no_job_and_deletes_nothing(self, store: Store, clock: HandClock) -> None:
        done = await _submit(store, clock, key="a key")
        [lease] = await _claim(store)
        await _end(store, lease, Done())
        waiting = await _submit(store, clock, expires_in=2 * HOUR)
        for jump in (DAY, 30 * DAY, -365 * DAY, 400 * DAY):
            clock.jump(jump)
            assert (await store.advance()).expired == 0
            purged = await store.purge(Purge())
            assert (purged.jobs, purged.events, purged.keys) == (0, 0, 0)
        assert [await state_of(store, job) for job in (done, waiting)] == [State.COMPLETED, State.QUEUED]
        clock.advance(2 * HOUR)
        assert (await store.advance()).expired == 1
        clock.advance(8 * DAY)
        assert (await store.purge(Purge())).jobs == 1

    async def test_a_clock_set_back_leaves_delays_running(self, store: Store, clock: HandClock) -> None:
        delayed = await _submit(store, clock, delay=SECOND, priority=1)
        retried = await _submit(store, clock, retry=TWICE)
        [lease] = await _claim(store)
        await _end(store, lease, OOPS)
        clock.jump(-HOUR)
        answer = await store.exchange(Exchange(claim=Claim(worker="w1", limit=9, lease_for=LEASE)))
        assert answer.leases == []
        assert answer.next_in is not None
        assert answer.next_in <= SECOND
        clock.advance(SECOND)
        assert [lease.job for lease in await _claim(store, 9)] == [delayed, retried]

    async def test_a_jump_of_the_clock_moves_what_people_are_shown(self, store: Store, clock: HandClock) -> None:
        clock.jump(DAY)
        job = await _submit(store, clock)
        [lease] = await _claim(store)
        await _end(store, lease, Done())
        found = await get_job(store, job)
        shown = [found.created_at, found.started_at, found.finished_at, lease.started_at]
        shown += [event.at for event in await store.history(job)]
        assert all(abs(at - clock.now) < MINUTE for at in shown if at is not None)

    async def test_a_job_moved_after_a_jump_takes_along_what_is_left_of_its_wait(
        self, store: Store, clock: HandClock
    ) -> None:
        delayed = await _submit(store, clock, delay=HOUR, expires_in=2 * HOUR)
        scheduled = await _submit(store, clock, run_at=clock.now + HOUR)
        instant = clock.now + HOUR
        for jump in (DAY, -2 * DAY):
            clock.jump(jump)
            one, other = await store.pack([delayed, scheduled])
            assert one is not None
            assert other is not None
            assert (one.job.run_at, one.job.expires_at) == (clock.now + HOUR, clock.now + 2 * HOUR)
            assert other.job.run_at == instant

    async def test_a_clock_set_back_reorders_nothing(self, store: Store, clock: HandClock) -> None:
        jobs = []
        for _ in range(3):
            jobs.append(await _submit(store, clock))
            clock.jump(-HOUR)
        assert [lease.job for lease in await _claim(store, 9)] == jobs

    async def test_a_dead_workers_job_runs_again_within_two_leases(self, store: Store, clock: HandClock) -> None:
        job = await _submit(store, clock)
        reaper = Reaper(store, clock, name="reaper")
        await reaper.tick()
        await _claim(store)
        for _ in range(2 * LEASE // SECOND):
            clock.advance(SECOND)
            await reaper.tick()
            await _claim(store, worker="w2")
        assert (await get_job(store, job)).worker == "w2"

    async def test_a_reaper_that_was_away_gives_holders_one_lease(self, store: Store, clock: HandClock) -> None:
        job = await _submit(store, clock)
        reaper = Reaper(store, clock, name="reaper")
        await reaper.tick()
        [lease] = await _claim(store)
        clock.advance(HOUR)
        await reaper.tick()
        assert await state_of(store, job) is State.RUNNING
        assert (await get_job(store, job)).fence == lease.fence
        for _ in range(10):
            clock.advance(SECOND)
            await reaper.tick()
        assert await state_of(store, job) is State.QUEUED

    async def test_a_reaper_suspended_while_it_asks_takes_nothing_over(self, store: Store, clock: HandClock) -> None:
        await _submit(store, clock)
        [lease] = await _claim(store)
        asked_at = clock.steady()
        clock.advance(HOUR)
        assert await store.reap(Reap(worker="reaper", watched_for=DAY, asked_at=asked_at)) == []
        [taken] = await store.reap(Reap(worker="reaper", watched_for=DAY, asked_at=clock.steady()))
        assert taken.job == lease.job


async def _submit(store: Store, clock: HandClock, **said: Any) -> str:
    job = spec(**said)
    await store.insert([job])
    if not clock.is_read:
        pytest.skip("this store was not given the clock: take `clock` in the store fixture")
    return job.id


async def _end(store: Store, lease: Lease, outcome: Outcome) -> None:
    settlement = settle(lease, outcome, chance=0.5, by=lease.worker)
    assert (await store.exchange(Exchange(settle=[settlement]))).settled == [True]


async def _claim(store: Store, limit: int = 1, worker: str = "w1") -> list[Lease]:
    return (await store.exchange(Exchange(claim=Claim(worker=worker, limit=limit, lease_for=LEASE)))).leases


async def _reap(store: Store) -> list[Lease]:
    return await store.reap(Reap(worker="reaper", watched_for=DAY))
