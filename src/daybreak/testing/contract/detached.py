"""Detached jobs: an attempt that goes on elsewhere keeps its lease, its slots and its fence until somebody finishes it,
or until its deadline."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from daybreak.core.model import Done, HandedBack, Lease, Lost, Reason, State
from daybreak.store.protocol import Extended, Store
from daybreak.testing.contract.builders import (
    DAY,
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
    beat,
    claim_jobs,
    claim_one,
    configure,
    counted,
    get_job,
    kinds_of,
    needs,
    provide,
    reap,
    settle,
    state_of,
    used,
)


async def detach(store: Store, *, now: datetime = NOON, **fields: Any) -> tuple[str, Lease]:
    """Submit a job, run it, and detach it for a day."""
    job = await accept(store, now=now, **fields)
    lease = await claim_one(store, call="c1", now=now)
    assert await beat(store, lease, detach=True, lease_for=DAY, now=now) == Extended(held=True)
    return job, lease


async def take_over(store: Store, *, now: datetime = NOON + DAY, **fields: Any) -> list[Lease]:
    """Reap as a reaper does that has watched for long."""
    return await reap(store, watched_for=9 * DAY, now=now, **fields)


class DetachedJobs:
    async def test_a_detached_job_runs_on_without_a_worker(self, store: Store) -> None:
        job, lease = await detach(store)
        found = await get_job(store, job)
        assert (found.state, found.detached, found.leased_until) == (State.RUNNING, True, NOON + DAY)
        assert (found.worker, found.fence, found.attempt) == ("w1", lease.fence, 1)
        assert await take_over(store, now=NOON + DAY - SECOND) == []
        assert await claim_jobs(store, 9, now=NOON + HOUR) == []
        await assert_sound(store, [job])

    async def test_the_event_of_a_detached_job_names_its_deadline_and_who_set_it(self, store: Store) -> None:
        job, lease = await detach(store)
        await beat(store, lease, detach=True, lease_for=2 * DAY, by="ann", now=NOON + HOUR)
        events = await store.history(job)
        assert [(one.kind, one.by, one.deadline) for one in events[2:]] == [
            ("detached", "w1", NOON + DAY),
            ("detached", "ann", NOON + HOUR + 2 * DAY),
        ]
        assert [(one.state, one.fence, one.attempt) for one in events[2:]] == [(None, None, None)] * 2
        assert (await counted(store))["detached"] == (1, 0)
        await assert_sound(store, [job])

    async def test_a_repeated_detachment_is_not_told_again(self, store: Store) -> None:
        job, lease = await detach(store)
        assert await beat(store, lease, detach=True, lease_for=DAY, now=NOON + SECOND) == Extended(held=True)
        assert await kinds_of(store, job) == ["submitted", "started", "detached"]
        assert (await get_job(store, job)).leased_until == NOON + DAY + SECOND

    async def test_a_checkpoint_and_progress_come_with_the_detachment(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, detach=True, lease_for=DAY, progress=0.5, message="sent", checkpoint=b'{"state":7}')
        found = await get_job(store, job)
        assert (found.detached, found.progress, found.message) == (True, 0.5, "sent")
        assert found.checkpoint == b'{"state":7}'

    async def test_a_late_heartbeat_of_the_worker_changes_nothing(self, store: Store) -> None:
        job, lease = await detach(store)
        before = await get_job(store, job)
        answer = await beat(store, lease, progress=0.9, message="late", checkpoint=b"late", now=NOON + SECOND)
        assert answer == Extended(held=False)
        assert await get_job(store, job) == before

    async def test_a_repeated_claim_does_not_return_a_detached_job(self, store: Store) -> None:
        job, _ = await detach(store)
        assert await claim_jobs(store, 3, call="c1", repeats=True, now=NOON + SECOND) == []
        assert await state_of(store, job) is State.RUNNING

    async def test_only_the_fence_of_the_attempt_detaches_a_job(self, store: Store) -> None:
        job = await accept(store)
        slow = await claim_one(store)
        await reap(store, now=NOON + LEASE)
        assert await beat(store, slow, detach=True, lease_for=DAY, now=NOON + LEASE) == Extended(held=False)
        assert not (await get_job(store, job)).detached

    # -- finish --------------------------------------------------------------------------------------------------------

    async def test_the_fence_of_a_detached_job_finishes_it(self, store: Store) -> None:
        job, lease = await detach(store, priority=1)
        assert await settle(store, lease, Done(b"42"), now=NOON + HOUR)
        found = await get_job(store, job)
        assert (found.state, found.result, found.detached) == (State.COMPLETED, b"42", False)
        assert await kinds_of(store, job) == ["submitted", "started", "detached", "completed"]
        await assert_sound(store, [job])

    async def test_the_fence_of_another_attempt_finishes_nothing(self, store: Store) -> None:
        job, first = await detach(store, retry=TWICE)
        [taken] = await take_over(store)
        assert await settle(store, taken, Lost(), now=NOON + DAY)
        second = await claim_one(store, now=NOON + DAY + MINUTE)
        await beat(store, second, detach=True, lease_for=DAY, now=NOON + DAY + MINUTE)
        before = await get_job(store, job)
        assert not await settle(store, first, Done(b"late"), now=NOON + DAY + HOUR)
        assert not (await beat(store, first, detach=True, lease_for=DAY, now=NOON + DAY + HOUR)).held
        assert await get_job(store, job) == before
        assert await settle(store, second, Done(b"good"), now=NOON + DAY + HOUR)
        assert (await get_job(store, job)).result == b"good"

    async def test_a_job_that_was_finished_before_it_was_detached_is_not_detached(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert await settle(store, lease, Done(b"fast"))
        assert await beat(store, lease, detach=True, lease_for=DAY) == Extended(held=False)
        found = await get_job(store, job)
        assert (found.state, found.result, found.detached) == (State.COMPLETED, b"fast", False)

    async def test_a_detached_job_that_is_retried_is_no_longer_detached(self, store: Store) -> None:
        job, lease = await detach(store, retry=TWICE)
        assert await settle(store, lease, OOPS, now=NOON + HOUR)
        found = await get_job(store, job)
        assert (found.state, found.detached) == (State.SCHEDULED, False)
        again = await claim_one(store, now=NOON + 2 * HOUR)
        assert (again.attempt, again.detached, again.fence > lease.fence) == (2, False, True)
        assert not (await get_job(store, job)).detached
        assert (await beat(store, again, now=NOON + 2 * HOUR)).held

    # -- the deadline --------------------------------------------------------------------------------------------------

    async def test_a_detached_job_times_out_at_its_deadline_and_no_death_is_charged(self, store: Store) -> None:
        job, _ = await detach(store, retry=ONCE)
        [taken] = await take_over(store)
        assert taken.detached
        assert await settle(store, taken, Lost(alone=taken.alone), now=NOON + DAY)
        found = await get_job(store, job)
        assert (found.state, found.reason) == (State.FAILED, Reason.TIMEOUT)
        assert (found.lost, found.timeouts, found.attempt) == (0, 1, 1)
        assert await kinds_of(store, job) == ["submitted", "started", "detached", "lease_expired", "failed"]
        await assert_sound(store, [job])

    async def test_policy_may_retry_a_detached_job_after_its_deadline(self, store: Store) -> None:
        job, _ = await detach(store, retry=TWICE)
        [taken] = await take_over(store)
        assert await settle(store, taken, Lost(), now=NOON + DAY)
        found = await get_job(store, job)
        assert (found.state, found.lost, found.timeouts) == (State.SCHEDULED, 0, 1)
        assert "deadline" in str(found.failure)

    async def test_a_reaper_that_dies_leaves_a_detached_job_detached(self, store: Store) -> None:
        await detach(store)
        [first] = await take_over(store, worker="r1", lease_for=SECOND)
        [second] = await take_over(store, worker="r2", now=NOON + DAY + SECOND)
        assert (first.detached, second.detached, second.fence) == (True, True, first.fence + 1)

    async def test_a_new_deadline_counts_from_when_it_was_set(self, store: Store) -> None:
        job, lease = await detach(store)
        assert (await beat(store, lease, detach=True, lease_for=DAY, by="ann", now=NOON + 20 * HOUR)).held
        assert await take_over(store, now=NOON + DAY + HOUR) == []
        assert (await get_job(store, job)).leased_until == NOON + DAY + 20 * HOUR
        assert [lease.job for lease in await take_over(store, now=NOON + DAY + 20 * HOUR)] == [job]

    # -- slots ---------------------------------------------------------------------------------------------------------

    async def test_a_detached_job_keeps_its_slots_until_it_ends(self, store: Store) -> None:
        await provide(store, "pods", slots=1)
        _, lease = await detach(store, resources=needs("pods"))
        waiting = await accept(store, resources=needs("pods"))
        assert await claim_jobs(store, 9, now=NOON + HOUR) == []
        assert await used(store, "pods") == 1
        assert await settle(store, lease, Done(), now=NOON + HOUR)
        assert [found.job for found in await claim_jobs(store, 9, now=NOON + HOUR)] == [waiting]
        await assert_sound(store)

    async def test_a_detached_job_counts_against_the_limit_of_its_queue(self, store: Store) -> None:
        await configure(store, max_running=1)
        _, lease = await detach(store)
        waiting = await accept(store)
        assert await claim_jobs(store, 9, now=NOON + HOUR) == []
        assert await settle(store, lease, Done(), now=NOON + HOUR)
        assert [found.job for found in await claim_jobs(store, 9, now=NOON + HOUR)] == [waiting]

    async def test_the_deadline_of_a_detached_job_frees_its_slots(self, store: Store) -> None:
        await provide(store, "pods", slots=1)
        await detach(store, resources=needs("pods"), retry=ONCE)
        [taken] = await take_over(store)
        assert await settle(store, taken, Lost(), now=NOON + DAY)
        assert await used(store, "pods") == 0

    # -- people --------------------------------------------------------------------------------------------------------

    async def test_cancelling_a_detached_job_ends_it_at_once(self, store: Store) -> None:
        await provide(store, "pods", slots=1)
        job, lease = await detach(store, resources=needs("pods"))
        assert await amend(store, "cancel", job, note="not needed", now=NOON + HOUR) == ["done"]
        found = await get_job(store, job)
        assert (found.state, found.note, found.detached) == (State.CANCELLED, "not needed", False)
        [*_, last] = await store.history(job)
        assert (last.kind, last.by, last.note) == ("cancelled", "ann", "not needed")
        assert await used(store, "pods") == 0
        await settle(store, lease, Done(b"late"), now=NOON + HOUR)
        assert (await get_job(store, job)).result is None
        await assert_sound(store, [job])

    async def test_a_job_that_is_being_cancelled_ends_when_it_is_detached(self, store: Store) -> None:
        await provide(store, "pods", slots=1)
        job = await accept(store, resources=needs("pods"))
        lease = await claim_one(store)
        assert await amend(store, "cancel", job) == ["requested"]
        assert (await beat(store, lease, detach=True, lease_for=DAY)).cancel
        found = await get_job(store, job)
        assert (found.state, found.detached) == (State.CANCELLED, False)
        assert await kinds_of(store, job) == ["submitted", "started", "cancel_requested", "cancelled"]
        assert await used(store, "pods") == 0
        await assert_sound(store, [job])

    async def test_a_detached_job_is_suspended_when_its_attempt_ends(self, store: Store) -> None:
        job, _ = await detach(store, retry=TWICE)
        assert await amend(store, "suspend", job, now=NOON + HOUR) == ["requested"]
        found = await get_job(store, job)
        assert (found.state, found.suspending, found.detached) == (State.RUNNING, True, True)
        [taken] = await take_over(store)
        assert await settle(store, taken, Lost(), now=NOON + DAY)
        assert await state_of(store, job) is State.SUSPENDED

    async def test_a_request_to_suspend_does_not_stop_a_detached_job_from_completing(self, store: Store) -> None:
        job, lease = await detach(store)
        await amend(store, "suspend", job)
        assert await settle(store, lease, Done(b"1"))
        assert await state_of(store, job) is State.COMPLETED

    async def test_a_released_detached_job_runs_again_under_a_new_fence(self, store: Store) -> None:
        job, lease = await detach(store)
        assert await settle(store, lease, HandedBack(), now=NOON + HOUR)
        found = await get_job(store, job)
        assert (found.state, found.detached, found.attempt) == (State.QUEUED, False, 0)
        again = await claim_one(store, now=NOON + HOUR)
        assert again.fence > lease.fence
        assert not await settle(store, lease, Done(b"late"), now=NOON + HOUR)
