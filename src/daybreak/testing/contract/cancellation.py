"""Promise 6: a cancelled job never starts or is stopped. A job never leaves a final state by itself."""

from __future__ import annotations

from daybreak.core.model import Lost, State
from daybreak.store.protocol import Amend, Amendment, Store
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    accept,
    amend,
    assert_sound,
    beat,
    claim_jobs,
    claim_one,
    get_job,
    kinds_of,
    reap,
    run_one,
    settle,
    state_of,
)
from daybreak.testing.contract.limits import EVERY_OUTCOME


class Cancellation:
    async def test_cancelled_before_start_never_starts(self, store: Store) -> None:
        queued, delayed, held = await accept(store), await accept(store, delay=MINUTE), await accept(store)
        await amend(store, "suspend", held)
        assert await amend(store, "cancel", queued, delayed, held, note="why") == ["done"] * 3
        await store.advance(now=NOON + DAY)
        assert await claim_jobs(store, 9, now=NOON + DAY) == []
        for job in (queued, delayed, held):
            found = await get_job(store, job)
            assert (found.state, found.finished_at, found.note) == (State.CANCELLED, NOON, "why")
            assert "started" not in await kinds_of(store, job)
        assert await amend(store, "resume", held) == ["refused"]

    async def test_cancelling_a_running_job_is_a_request_and_says_so(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        amended = await store.amend(Amend(action="cancel", by="ann", jobs=(job,)), now=NOON)
        assert amended.amendments == [Amendment(job, "requested", State.RUNNING)]
        assert (await get_job(store, job)).cancelling
        answer = await beat(store, lease)
        assert (answer.held, answer.cancel) == (True, True)

    async def test_a_running_job_asked_to_cancel_ends_cancelled(self, store: Store) -> None:
        for outcome in EVERY_OUTCOME:
            job = await accept(store)
            lease = await claim_one(store)
            await amend(store, "cancel", job, by="ann")
            assert await settle(store, lease, outcome)
            found = await get_job(store, job)
            assert (found.state, found.reason, found.result) == (State.CANCELLED, None, None), outcome
            assert (found.cancelling, found.leased_until, found.finished_at) == (False, None, NOON)
            assert (await store.history(job))[-1].by == "ann"
        assert await claim_jobs(store, now=NOON + DAY) == []
        await assert_sound(store)

    async def test_a_cancelled_job_whose_worker_died_ends_cancelled(self, store: Store) -> None:
        job = await accept(store)
        await claim_one(store)
        await amend(store, "cancel", job)
        [taken] = await reap(store, now=NOON + LEASE)
        assert await settle(store, taken, Lost(), now=NOON + LEASE)
        assert await state_of(store, job) is State.CANCELLED

    async def test_asking_twice_to_cancel_is_one_request(self, store: Store) -> None:
        job = await accept(store)
        await claim_one(store)
        assert await amend(store, "cancel", job, by="ann") == ["requested"]
        assert await amend(store, "cancel", job, by="bob") == ["requested"]
        assert await kinds_of(store, job) == ["submitted", "started", "cancel_requested"]

    async def test_a_request_to_cancel_does_not_reach_the_next_attempt(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await amend(store, "cancel", job)
        await settle(store, lease)
        await amend(store, "retry", job)
        again = await claim_one(store)
        assert not (await beat(store, again)).cancel
        await settle(store, again)
        assert await state_of(store, job) is State.COMPLETED

    async def test_final_is_final(self, store: Store) -> None:
        completed, failed, cancelled = await accept(store), await accept(store), await accept(store)
        await run_one(store)
        lease = await claim_one(store)
        await settle(store, lease, FATAL)
        await amend(store, "cancel", cancelled)
        jobs = (completed, failed, cancelled)
        before = await store.get(jobs)
        for action in ("cancel", "suspend", "resume", "rerank"):
            assert await amend(store, action, *jobs, now=NOON + HOUR, priority=0) == ["refused"] * 3
        await store.advance(now=NOON + DAY)
        assert await settle(store, lease, now=NOON + DAY)
        assert not (await beat(store, lease, now=NOON + DAY)).held
        assert await reap(store, now=NOON + DAY) == []
        assert await claim_jobs(store, 9, now=NOON + DAY) == []
        assert await store.get(jobs) == before
