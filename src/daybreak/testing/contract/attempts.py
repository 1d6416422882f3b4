"""Promise 5: attempts are exact."""

from __future__ import annotations

from daybreak.core.model import Done, HandedBack, Lost, Reason, State, Suspended, TimedOut
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import (
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    ONCE,
    OOPS,
    SECOND,
    TWICE,
    accept,
    amend,
    assert_sound,
    claim_jobs,
    claim_one,
    get_job,
    reap,
    run_one,
    settle,
)


class Attempts:
    async def test_an_attempt_is_counted_when_it_is_claimed(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store, now=NOON + SECOND)
        found = await get_job(store, job)
        assert (lease.attempt, found.attempt, found.started_at) == (1, 1, NOON + SECOND)

    async def test_lease_expiry_charges_one(self, store: Store) -> None:
        job = await accept(store)
        await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        await settle(store, taken, Lost(), now=NOON + LEASE)
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.lost) == (State.QUEUED, 1, 1)
        assert (await claim_one(store, now=NOON + LEASE)).attempt == 2

    async def test_a_reapers_own_lease_charges_nothing(self, store: Store) -> None:
        job = await accept(store)
        await claim_one(store)
        for step in range(1, 4):  # reaper after reaper dies before it can settle
            [taken] = await reap(store, lease_for=LEASE, now=NOON + step * LEASE)
        await settle(store, taken, Lost(), now=NOON + 3 * LEASE)
        found = await get_job(store, job)
        assert (found.attempt, found.lost) == (1, 1)

    async def test_a_job_handed_back_is_not_charged(self, store: Store) -> None:
        job = await accept(store, retry=ONCE)
        for _ in range(3):
            lease = await claim_one(store)
            assert lease.attempt == 1
            assert await settle(store, lease, HandedBack(b"half"))
            found = await get_job(store, job)
            assert (found.state, found.attempt, found.lost) == (State.QUEUED, 0, 0)
        assert (await claim_one(store)).checkpoint == b"half"

    async def test_a_job_that_suspends_itself_is_not_charged(self, store: Store) -> None:
        job = await accept(store, retry=ONCE)
        await run_one(store, Suspended("waits for ann", b"half"))
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.note) == (State.SUSPENDED, 0, "waits for ann")
        assert await claim_jobs(store, now=NOON + HOUR) == []
        await amend(store, "resume", job)
        lease = await claim_one(store)
        assert (lease.attempt, lease.checkpoint) == (1, b"half")

    async def test_a_failed_attempt_is_tried_again_after_its_delay(self, store: Store) -> None:
        job = await accept(store, retry=TWICE)
        await run_one(store, OOPS)
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.run_at) == (State.SCHEDULED, 1, NOON + SECOND)
        assert found.failure is not None
        assert (found.failure.message, found.failure.attempt) == ("oops", 1)
        assert await claim_jobs(store, now=NOON + SECOND / 2) == []
        assert (await claim_one(store, now=NOON + SECOND)).attempt == 2

    async def test_attempts_used_up_fail_the_job_with_the_reason(self, store: Store) -> None:
        job = await accept(store, retry=TWICE)
        await run_one(store, OOPS)
        await run_one(store, OOPS, now=NOON + MINUTE)
        found = await get_job(store, job)
        assert (found.state, found.reason, found.attempt) == (State.FAILED, Reason.EXHAUSTED, 2)
        assert (found.finished_at, found.leased_until) == (NOON + MINUTE, None)
        assert await claim_jobs(store, now=NOON + HOUR) == []

    async def test_a_permanent_error_fails_at_once(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store, FATAL)
        found = await get_job(store, job)
        assert (found.state, found.reason, found.attempt) == (State.FAILED, Reason.ERROR, 1)
        assert found.failure is not None
        assert str(found.failure) == "ValueError: no"

    async def test_timeouts_are_counted_and_told_to_the_next_attempt(self, store: Store) -> None:
        job = await accept(store, retry=TWICE, timeout=MINUTE)
        await run_one(store, TimedOut(MINUTE))
        lease = await claim_one(store, now=NOON + MINUTE)
        assert (lease.attempt, lease.timeouts) == (2, 1)
        await settle(store, lease, TimedOut(MINUTE), now=NOON + MINUTE)
        found = await get_job(store, job)
        assert (found.state, found.reason, found.timeouts) == (State.FAILED, Reason.TIMEOUT, 2)

    async def test_a_job_that_killed_its_worker_too_often_is_lost(self, store: Store) -> None:
        job = await accept(store, deaths=2)
        await run_one(store, Lost(alone=True))
        lease = await claim_one(store)
        assert lease.lost == 1
        await settle(store, lease, Lost(alone=True))
        found = await get_job(store, job)
        assert (found.state, found.reason, found.lost) == (State.FAILED, Reason.LOST, 2)

    async def test_a_completed_job_keeps_its_result_and_nothing_of_the_way_there(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store, OOPS)
        await run_one(store, HandedBack(b"half"), now=NOON + HOUR)
        await run_one(store, Done(b'{"pi":3}'), now=NOON + HOUR)
        found = await get_job(store, job)
        assert (found.state, found.result, found.attempt) == (State.COMPLETED, b'{"pi":3}', 2)
        assert (found.failure, found.checkpoint, found.reason) == (None, None, None)

    async def test_a_retry_by_a_person_gives_a_fresh_budget_and_goes_on_with_the_history(self, store: Store) -> None:
        job = await accept(store, retry=ONCE)
        await run_one(store, OOPS)
        assert await amend(store, "retry", job, now=NOON + HOUR) == ["done"]
        found = await get_job(store, job)
        assert (found.state, found.reason, found.attempt, found.fence) == (State.QUEUED, None, 0, 1)
        assert (found.finished_at, found.result) == (None, None)
        lease = await claim_one(store, now=NOON + HOUR)
        assert (lease.attempt, lease.fence) == (1, 2)
        await settle(store, lease, now=NOON + HOUR)
        kinds = [event.kind for event in await store.history(job)]
        assert kinds == ["submitted", "started", "failed", "retried", "started", "completed"]
        await assert_sound(store, [job])
