"""Locks: jobs that are run by the caller that submitted them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from daybreak.core.model import Lease, Lost, Settlement, State
from daybreak.store.protocol import Store, job_topic
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    accept,
    amend,
    assert_sound,
    beat,
    claim_jobs,
    exchange,
    get_job,
    kinds_of,
    needs,
    provide,
    reap,
    settle,
    state_of,
    used,
)

PATIENCE = 20 * SECOND


class Holders:
    """Jobs that are run by whoever submitted them: locks."""

    async def test_a_free_lock_is_held_by_its_submitter_at_once(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        job = await want(store, "ann", "lock:a")
        held = await get_job(store, job)
        assert (held.state, held.worker, held.fence, held.attempt) == (State.RUNNING, "ann", 1, 1)
        assert held.leased_until == NOON + LEASE
        assert await kinds_of(store, job) == ["submitted", "started"]
        await assert_sound(store)

    async def test_no_claim_finds_it(self, store: Store) -> None:
        await provide(store, "lock:a", slots=0)
        job = await want(store, "ann", "lock:a")
        assert await claim_jobs(store, 9, queues=("lock",)) == []
        assert await state_of(store, job) is State.BLOCKED

    async def test_what_is_freed_goes_to_the_best_ranked_of_those_who_wait(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a")
        cyd = await want(store, "cyd", "lock:a", priority=1)
        assert await give_back(store, ann)
        assert (await state_of(store, bob), await state_of(store, cyd)) == (State.BLOCKED, State.RUNNING)
        assert await give_back(store, cyd)
        assert await state_of(store, bob) is State.RUNNING
        assert (await get_job(store, bob)).worker == "bob"
        await assert_sound(store)

    async def test_one_who_gave_up_is_never_granted(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a")
        cyd = await want(store, "cyd", "lock:a")
        assert await amend(store, "cancel", bob) == ["done"]
        assert await give_back(store, ann)
        assert await state_of(store, cyd) is State.RUNNING
        assert await state_of(store, bob) is State.CANCELLED

    async def test_one_who_waited_too_long_is_never_granted(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a", expires_in=MINUTE)
        cyd = await want(store, "cyd", "lock:a")
        assert await give_back(store, ann, now=NOON + HOUR)
        assert await state_of(store, bob) is State.FAILED
        assert await state_of(store, cyd) is State.RUNNING

    async def test_a_dead_holder_loses_it_to_the_next_under_a_higher_fence(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a")
        held = await get_job(store, ann)
        later = NOON + HOUR
        [taken] = await reap(store, now=later)
        assert await state_of(store, bob) is State.BLOCKED
        assert await settle(store, taken, Lost(), now=later)
        assert await state_of(store, ann) is State.FAILED
        assert (await get_job(store, bob)).state is State.RUNNING
        assert not await give_back(store, ann, fence=held.fence, now=later)

    async def test_every_holder_has_a_higher_fence_than_all_before(self, store: Store) -> None:
        for name in ("lock:a", "lock:b"):
            await provide(store, name, slots=1)
        fences: dict[str, list[int]] = {"lock:a": [], "lock:b": []}
        for n, locks in enumerate((["lock:a"], ["lock:a"], ["lock:a", "lock:b"], ["lock:b"], ["lock:a"], ["lock:b"])):
            job = await want(store, f"w{n}", *locks)
            for name in locks:
                fences[name].append((await get_job(store, job)).fence)
            assert await give_back(store, job)
        for name, given in fences.items():
            assert given == sorted(set(given)), name
        await assert_sound(store)

    async def test_several_locks_are_all_or_none(self, store: Store) -> None:
        for name in ("lock:a", "lock:b"):
            await provide(store, name, slots=1)
        ann = await want(store, "ann", "lock:b")
        both = await want(store, "bob", "lock:a", "lock:b")
        assert await state_of(store, both) is State.BLOCKED
        assert await used(store, "lock:a") == 0
        cyd = await want(store, "cyd", "lock:a")
        assert await state_of(store, cyd) is State.RUNNING
        assert await give_back(store, ann)
        assert (await get_job(store, both)).blocked_on == "lock:a"
        assert await give_back(store, cyd)
        assert await state_of(store, both) is State.RUNNING
        assert (await used(store, "lock:a"), await used(store, "lock:b")) == (1, 1)
        await assert_sound(store)

    async def test_a_holder_that_needs_two_slots_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "lock:a", slots=2)
        held = [await want(store, "ann", "lock:a"), await want(store, "bob", "lock:a")]
        both = await accept(store, "lock", queue="lock", resources=needs(**{"lock:a": 2}), holder="cyd", hold_for=LEASE)
        now = NOON
        for n in range(60):
            now += SECOND
            held.append(await want(store, f"w{n}", "lock:a", now=now))
            running = [job for job in held if await state_of(store, job) is State.RUNNING]
            assert await give_back(store, running[0], now=now)
            if await state_of(store, both) is State.RUNNING:
                break
        assert await state_of(store, both) is State.RUNNING
        assert now - NOON < timedelta(seconds=40)
        await assert_sound(store)

    async def test_who_waits_is_told(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a")
        watch = store.watch([job_topic(bob)])
        try:
            assert await give_back(store, ann)
            assert await watch.wait(PATIENCE)
        finally:
            watch.close()

    async def test_the_place_of_a_waiter_is_told(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        await want(store, "ann", "lock:a")
        waiters = [await want(store, f"w{n}", "lock:a") for n in range(3)]
        assert await amend(store, "rerank", waiters[2], priority=0) == ["done"]
        for job, ahead in ((waiters[2], 0), (waiters[0], 1), (waiters[1], 2)):
            position = await store.position(job)
            assert position is not None
            assert position.ahead == ahead

    async def test_a_holder_keeps_it_by_its_heartbeat(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        job = await get_job(store, await want(store, "ann", "lock:a"))
        lease = await _lease_of(store, job.id)
        assert (await beat(store, lease, now=NOON + 5 * SECOND)).held
        assert await reap(store, now=NOON + 14 * SECOND) == []

    async def test_what_ended_is_not_tried_again(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        assert await give_back(store, ann)
        assert await amend(store, "retry", ann) == ["refused"]

    async def test_a_suspended_waiter_is_passed_over_until_it_is_resumed(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await want(store, "ann", "lock:a")
        bob = await want(store, "bob", "lock:a")
        assert await amend(store, "suspend", bob) == ["done"]
        assert await give_back(store, ann)
        assert await state_of(store, bob) is State.SUSPENDED
        assert await amend(store, "resume", bob) == ["done"]
        assert await state_of(store, bob) is State.RUNNING


async def want(store: Store, who: str, *locks: str, **said: Any) -> str:
    return await accept(store, "lock", queue="lock", resources=needs(*locks), holder=who, hold_for=LEASE, **said)


async def _lease_of(store: Store, job: str) -> Lease:
    held = await get_job(store, job)
    assert held.worker
    assert held.leased_until
    assert held.started_at
    return Lease(
        seq=held.seq,
        spec=held.spec,
        fence=held.fence,
        attempt=held.attempt,
        priority=held.priority,
        worker=held.worker,
        until=held.leased_until,
        lease_for=held.spec.hold_for,
        started_at=held.started_at,
        created_at=held.created_at,
    )


async def give_back(store: Store, job: str, *, fence: int | None = None, now: datetime = NOON) -> bool:
    held = await get_job(store, job)
    if held.state is State.RUNNING:
        return await settle(store, await _lease_of(store, job), now=now)
    settlement = Settlement(
        seq=held.seq, job=job, fence=fence or held.fence, state=State.COMPLETED, attempt=held.attempt
    )
    [settled] = (await exchange(store, settle=[settlement], now=now)).settled
    return settled
