"""Promise 4: slots are never exceeded, cluster-wide, and never leak. A job that waits for slots blocks no other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from daybreak.core.errors import BadInput
from daybreak.core.model import Cancelled, Done, HandedBack, Lost, Outcome, Put, State, Suspended, TimedOut
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Action, Claim, Store, work_topic
from daybreak.testing.contract.builders import (
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    SECOND,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    exchange,
    find_all,
    get_job,
    kinds_of,
    needs,
    provide,
    reap,
    settle,
    spec,
    state_of,
    used,
    verdicts,
    waiting,
)

EVERY_OUTCOME: tuple[Outcome, ...] = (
    Done(), OOPS, FATAL, TimedOut(MINUTE), Lost(), Cancelled(), Suspended(), HandedBack(),
)  # fmt: skip
PLECS = needs("plecs")


class Slots:
    async def test_slots_are_never_exceeded_and_never_leak(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 40, resources=PLECS)
        now = NOON
        for outcome in EVERY_OUTCOME:
            leases = await claim_jobs(store, 9, now=now)
            assert len(leases) == 2, outcome
            assert await claim_jobs(store, 9, now=now, worker="w2") == []
            assert await used(store, "plecs") == 2
            for lease in leases:
                assert await settle(store, lease, outcome, now=now)
            assert await used(store, "plecs") == 0
            await assert_sound(store)
            now += MINUTE

    async def test_slots_hold_under_concurrent_claims(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        await accept_all(store, 30, resources=PLECS)
        claims = await asyncio.gather(*(claim_jobs(store, 2, worker=f"w{n}") for n in range(8)))
        assert sum(map(len, claims)) == 3
        await assert_sound(store)

    async def test_a_resource_without_settings_limits_nothing(self, store: Store) -> None:
        jobs = await accept_all(store, 5, resources=PLECS)
        assert await claim_ids(store, 9) == jobs
        assert await used(store, "plecs") == 5

    async def test_a_job_that_must_wait_is_blocked_and_not_charged(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        first, second = await accept_all(store, 2, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        job = await get_job(store, second)
        assert (job.state, job.blocked_on, job.attempt) == (State.BLOCKED, "plecs", 0)
        assert await find_all(store, states=frozenset({State.BLOCKED})) == [second]
        assert await waiting(store, "plecs") == 1
        await settle(store, lease)
        assert lease.job == first
        assert await state_of(store, second) is State.QUEUED
        assert (await get_job(store, second)).blocked_on is None
        assert await claim_ids(store) == [second]
        assert await kinds_of(store, second) == ["submitted", "blocked", "unblocked", "started"]
        await assert_sound(store)

    async def test_one_exchange_gives_a_slot_back_and_takes_it_again(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        jobs = await accept_all(store, 4, resources=PLECS)
        lease = await claim_one(store)
        for expected in jobs[1:]:
            done = settlement_of(lease, Done(), chance=0.5, by="w1")
            [lease] = (await exchange(store, settle=[done], claim=Claim(worker="w1", limit=4, lease_for=LEASE))).leases
            assert lease.job == expected

    async def test_blocked_jobs_hold_up_no_other(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept_all(store, 250, resources=PLECS, priority=0)
        plain = await accept(store, priority=9)
        taken: list[str] = []
        for _ in range(4):  # one claim parks a bounded number
            taken += await claim_ids(store, 9)
        assert taken[-1] == plain
        assert len(taken) == 2
        assert await waiting(store, "plecs") == 249

    async def test_one_claim_parks_a_bounded_number_and_says_so(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        await accept_all(store, 150, resources=PLECS)
        asked = Claim(worker="w1", limit=5, lease_for=LEASE)
        first = await exchange(store, claim=asked)
        assert first.leases == []
        assert first.again
        assert await waiting(store, "plecs") == 100
        second = await exchange(store, claim=asked)
        assert not second.again
        assert await waiting(store, "plecs") == 150

    async def test_the_best_ranked_gets_what_is_freed(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        low = await accept(store, resources=PLECS, priority=8)
        lease = await claim_one(store)
        await accept(store, resources=PLECS, priority=7)
        high = await accept(store, resources=PLECS, priority=1)
        assert await claim_jobs(store) == []
        await settle(store, lease)
        assert lease.job == low
        assert await claim_ids(store, 9) == [high]

    async def test_a_changed_priority_holds_while_blocked(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        assert await amend(store, "rerank", third, priority=1) == ["done"]
        assert await state_of(store, third) is State.BLOCKED
        await settle(store, lease)
        assert await claim_ids(store) == [third]
        assert await state_of(store, second) in (State.BLOCKED, State.QUEUED)

    async def test_more_slots_set_while_jobs_wait_are_used_at_once(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        jobs = await accept_all(store, 5, resources=PLECS)
        await claim_one(store)
        assert await claim_jobs(store) == []
        await provide(store, "plecs", slots=3)
        assert await claim_ids(store, 9) == jobs[1:3]
        await store.put([Put(kind="resource", name="plecs", value=None)])
        assert await claim_ids(store, 9) == jobs[3:]
        assert await used(store, "plecs") == 5

    async def test_fewer_slots_than_in_use_take_nothing_away(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        jobs = await accept_all(store, 5, resources=PLECS)
        leases = await claim_jobs(store, 3)
        await provide(store, "plecs", slots=1)
        assert await claim_jobs(store) == []
        await settle(store, leases[0])
        await settle(store, leases[1])
        assert await claim_jobs(store) == []
        await settle(store, leases[2])
        assert await claim_ids(store, 9) == [jobs[3]]

    async def test_very_many_who_wait_are_freed_a_bounded_number_at_a_time(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        jobs = await accept_all(store, 250, resources=PLECS)
        for _ in range(3):
            assert await claim_jobs(store) == []
        assert await waiting(store, "plecs") == 250
        await provide(store, "plecs", slots=1000)
        assert await waiting(store, "plecs") == 150
        taken: list[str] = []
        for _ in range(6):
            taken += await claim_ids(store, 100, now=NOON + SECOND)
        assert taken == jobs

    async def test_a_dead_holders_slot_is_free_again_when_its_lease_is_settled(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        first, _ = await accept_all(store, 2, resources=PLECS)
        await claim_one(store)
        later = NOON + HOUR
        assert await claim_jobs(store, now=later) == []
        [taken] = await reap(store, now=later)
        assert await used(store, "plecs") == 1
        await settle(store, taken, Lost(), now=later)
        assert await used(store, "plecs") == 0
        assert await claim_ids(store, now=later) == [first]
        await assert_sound(store)

    async def test_a_job_that_goes_while_it_may_try_leaves_its_turn_to_the_next(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        actions: tuple[Action, ...] = ("cancel", "suspend")
        for action in actions:
            jobs = await accept_all(store, 3, resources=PLECS)
            lease = await claim_one(store)
            assert await claim_jobs(store) == []
            await settle(store, lease)
            assert await state_of(store, jobs[1]) is State.QUEUED
            assert await amend(store, action, jobs[1]) == ["done"]
            lease = await claim_one(store)
            assert lease.job == jobs[2]
            await settle(store, lease)

    async def test_cancelling_a_blocked_job_takes_it_out(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        assert await amend(store, "cancel", second) == ["done"]
        await settle(store, lease)
        assert await claim_ids(store, 9) == [third]
        await assert_sound(store)

    async def test_a_blocked_job_that_was_suspended_comes_back_to_its_place(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        assert await amend(store, "suspend", second) == ["done"]
        assert await amend(store, "resume", second) == ["done"]
        await settle(store, lease)
        assert await claim_ids(store) == [second]
        assert await state_of(store, third) in (State.BLOCKED, State.QUEUED)

    async def test_a_blocked_job_expires(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept(store, resources=PLECS)
        late = await accept(store, resources=PLECS, expires_in=MINUTE)
        after = await accept(store, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        await settle(store, lease, now=NOON + HOUR)
        assert await claim_ids(store, now=NOON + HOUR) == [after]
        assert await state_of(store, late) is State.FAILED
        await assert_sound(store)

    async def test_time_alone_ends_a_blocked_job_that_waited_too_long(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        late = await accept(store, resources=PLECS, expires_in=MINUTE)
        assert await claim_jobs(store) == []
        assert (await store.advance(now=NOON + HOUR)).expired == 1
        assert await state_of(store, late) is State.FAILED
        assert await waiting(store, "plecs") == 0

    async def test_a_paused_queue_does_not_sit_on_a_free_slot(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        held = await accept(store, queue="held", resources=PLECS, priority=0)
        first, second = await accept_all(store, 2, queue="other", resources=PLECS)
        both = ("held", "other")
        lease = await claim_one(store, queues=("other",))
        assert lease.job == first
        assert await claim_jobs(store, queues=both) == []
        await configure(store, "held", paused=True)
        await settle(store, lease)
        lease = await claim_one(store, queues=both)
        assert lease.job == second
        await configure(store, "held")
        await settle(store, lease)
        assert await claim_ids(store, queues=both) == [held]

    async def test_a_task_that_nobody_knows_does_not_sit_on_a_free_slot(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        mine = frozenset({("mine", 1)})
        await accept(store, "theirs", resources=PLECS, priority=0)
        first = await accept(store, "mine", resources=PLECS)
        second = await accept(store, "mine", resources=PLECS)
        lease = await claim_one(store, tasks=mine)
        assert lease.job == first
        assert await claim_jobs(store, 9) == []
        await settle(store, lease)
        assert await claim_ids(store, tasks=mine) == [second]

    async def test_max_waiting_refuses_more_of_those_who_wait(self, store: Store) -> None:
        await provide(store, "plecs", slots=1, max_waiting=2)
        await accept_all(store, 3, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        assert await verdicts(store, spec(resources=PLECS), spec()) == ["full", "new"]
        await settle(store, lease)
        assert await verdicts(store, spec(resources=PLECS)) == ["new"]

    async def test_a_freed_slot_wakes_those_who_look_for_work(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept_all(store, 2, resources=PLECS)
        lease = await claim_one(store)
        assert await claim_jobs(store) == []
        watch = store.watch([work_topic("default")])
        try:
            await watch.wait(timedelta(milliseconds=1))
            await settle(store, lease)
            assert await watch.wait(timedelta(seconds=20))
        finally:
            watch.close()

    async def test_the_place_among_those_who_wait_is_told(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        first = await accept(store, resources=PLECS)
        second = await accept(store, resources=PLECS)
        urgent = await accept(store, resources=PLECS, priority=0)
        assert await claim_jobs(store) == []
        for job, ahead in ((urgent, 0), (first, 1), (second, 2)):
            position = await store.position(job)
            assert position is not None
            assert position.ahead == ahead

    async def test_settings_that_are_none_are_refused(self, store: Store) -> None:
        for kind in ("resource", "gate"):
            with pytest.raises(BadInput, match="plecs"):
                await store.put([Put(kind=kind, name="plecs", value=b'{"slots": "many", "probes": "some"}')])
