"""Promises 2 and 8: one accepted outcome per attempt, guarded by the fence; clocks decide only who may try."""

from __future__ import annotations

from typing import Any

import msgspec

from daybreak.core.model import Done, Lost, Put, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Beat, Extended, Store
from daybreak.testing.contract.builders import (
    DAY,
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
    beat,
    claim_jobs,
    claim_one,
    configure,
    exchange,
    find_all,
    get_job,
    kinds_of,
    reap,
    run_one,
    settle,
    spec,
    state_of,
)


class Fences:
    async def test_a_lease_says_all_that_a_runner_needs(self, store: Store) -> None:
        job = await accept(store, "report", args=b'{"n":1}', priority=2)
        lease = await claim_one(store, worker="w7", lease_for=MINUTE, call="c1", now=NOON + SECOND)
        assert (lease.job, lease.spec.args, lease.priority) == (job, b'{"n":1}', 2)
        assert (lease.worker, lease.call, lease.fence, lease.attempt) == ("w7", "c1", 1, 1)
        assert (lease.reaped, lease.alone) == (False, False)
        assert (lease.lease_for, lease.until) == (MINUTE, NOON + SECOND + MINUTE)
        assert (lease.created_at, lease.started_at) == (NOON, NOON + SECOND)
        running = await get_job(store, job)
        assert (running.state, running.worker, running.leased_until) == (State.RUNNING, "w7", lease.until)

    async def test_a_leased_job_is_claimed_by_nobody_else(self, store: Store) -> None:
        await accept(store)
        await claim_one(store)
        assert await claim_jobs(store, 9, worker="w2", now=NOON + DAY) == []

    async def test_a_claim_whose_answer_was_lost_is_answered_again(self, store: Store) -> None:
        await accept_all(store, 5)
        first, second, third = await claim_jobs(store, 3, call="c1")
        assert await settle(store, second)
        again = await claim_jobs(store, 3, call="c1", repeats=True, now=NOON + SECOND)
        assert again[:2] == [first, third]  # as they were: no new fence, no new attempt, no longer lease
        assert [lease.attempt for lease in again] == [1, 1, 1]
        assert again[2].seq not in {first.seq, second.seq, third.seq}
        assert await claim_jobs(store, 1, call="c1", now=NOON + SECOND) != [first]  # a name alone repeats nothing

    async def test_a_repeated_claim_for_none_takes_nothing_new(self, store: Store) -> None:
        await accept_all(store, 5)
        held = await claim_jobs(store, 3, call="c1")
        assert await claim_jobs(store, 0, call="c1", repeats=True, now=NOON + SECOND) == held
        assert len(await claim_jobs(store, 9, call="c2")) == 2

    async def test_a_repeated_claim_knows_its_own_leases_only(self, store: Store) -> None:
        await accept_all(store, 3)
        await claim_jobs(store, 1, call="c1")
        await claim_jobs(store, 1, call="c2")
        [gone] = await claim_jobs(store, 1, call="c3", lease_for=SECOND)
        assert await reap(store, now=NOON + LEASE / 2) != []
        for said in ({"worker": "w2", "call": "c1"}, {"call": "c4"}, {"call": gone.call}, {"call": None}):
            assert await claim_jobs(store, 3, repeats=True, now=NOON + LEASE / 2, **said) == []

    async def test_a_lost_lease_cannot_settle(self, store: Store) -> None:
        job = await accept(store)
        slow = await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        assert taken.job == job
        before = await get_job(store, job)
        assert not await settle(store, slow, Done(b"late"), now=NOON + LEASE)
        assert await get_job(store, job) == before
        assert await kinds_of(store, job) == ["submitted", "started", "lease_expired"]

    async def test_a_lost_lease_cannot_settle_a_job_that_someone_else_runs(self, store: Store) -> None:
        job = await accept(store)
        slow = await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        await settle(store, taken, Lost(), now=NOON + LEASE)
        second = await claim_one(store, worker="w2", now=NOON + LEASE)
        assert not await settle(store, slow, Done(b"late"), now=NOON + LEASE)
        assert await settle(store, second, Done(b"good"), now=NOON + LEASE)
        assert (await get_job(store, job)).result == b"good"

    async def test_a_lost_lease_cannot_be_extended_nor_write_under_it(self, store: Store) -> None:
        job = await accept(store)
        slow = await claim_one(store)
        await reap(store, now=NOON + LEASE)
        before = await get_job(store, job)
        answer = await beat(store, slow, progress=0.9, checkpoint=b"late", now=NOON + LEASE)
        assert answer == Extended(held=False)
        assert await get_job(store, job) == before

    async def test_the_reaper_is_fenced_too(self, store: Store) -> None:
        job = await accept(store)
        slow = await claim_one(store)
        [first] = await reap(store, worker="r1", lease_for=SECOND, now=NOON + LEASE)
        [second] = await reap(store, worker="r2", now=NOON + LEASE + SECOND)
        assert slow.fence < first.fence < second.fence
        assert not await settle(store, first, Lost(), now=NOON + LEASE + SECOND)
        assert await state_of(store, job) is State.RUNNING
        assert await settle(store, second, Lost(), now=NOON + LEASE + SECOND)
        assert await state_of(store, job) is State.QUEUED

    async def test_fences_only_grow(self, store: Store) -> None:
        job = await accept(store)
        now, fences = NOON, [0]
        for _ in range(3):
            lease = await claim_one(store, now=now)
            now += LEASE
            [taken] = await reap(store, now=now)
            await settle(store, taken, now=now)
            fences += [lease.fence, taken.fence]
            await amend(store, "retry", job, now=now)
            assert (await get_job(store, job)).fence == taken.fence
        assert fences == sorted(set(fences))

    async def test_repeating_a_settlement_answers_true_and_changes_nothing(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert await settle(store, lease, Done(b"1"))
        before = await get_job(store, job)
        assert await settle(store, lease, Done(b"1"), now=NOON + HOUR)
        assert await settle(store, lease, FATAL, now=NOON + HOUR)  # one outcome per attempt: the first
        assert await get_job(store, job) == before
        assert await kinds_of(store, job) == ["submitted", "started", "completed"]

    async def test_what_a_settlement_brings_is_not_refused_for_a_full_queue(self, store: Store) -> None:
        await configure(store, "undo", capacity=0)
        await accept(store)
        undo = spec(queue="undo")
        assert await settle(store, await claim_one(store), inserts=(undo,))
        assert await state_of(store, undo.id) is State.QUEUED

    async def test_repeating_a_settlement_inserts_and_puts_nothing_twice(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        put = Put(kind="note", name="n", value=b"1")
        assert await settle(store, lease, puts=(put,))
        await store.put([Put(kind="note", name="n", value=b"2")])
        assert await settle(store, lease, puts=(put,), inserts=(spec(),))
        assert [record.value for record in await store.records("note")] == [b"2"]
        assert len(await find_all(store)) == 1

    async def test_a_settlement_of_an_earlier_attempt_is_refused(self, store: Store) -> None:
        job = await accept(store)
        first = await claim_one(store)
        assert await settle(store, first, OOPS)
        assert await settle(store, first, OOPS)
        second = await claim_one(store, now=NOON + HOUR)
        assert not await settle(store, first, now=NOON + HOUR)
        assert await settle(store, second, now=NOON + HOUR)
        assert (await get_job(store, job)).attempt == 2

    async def test_a_lost_lease_in_a_batch_sinks_no_other(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        leases = await claim_jobs(store, 3)
        stale = msgspec.structs.replace(leases[1], fence=99)
        ends = [settlement_of(lease, Done(), chance=0, by="w1") for lease in (leases[0], stale, leases[2])]
        unknown = msgspec.structs.replace(ends[0], seq=999_999, job="nobody")
        answer = await exchange(store, settle=[*ends, unknown])
        assert answer.settled == [True, False, True, False]
        assert [await state_of(store, job) for job in jobs] == [State.COMPLETED, State.RUNNING, State.COMPLETED]

    async def test_what_a_settlement_brings_happens_with_it(self, store: Store) -> None:
        await accept(store)
        lease, child = await claim_one(store), spec()
        assert await settle(store, lease, inserts=(child,), puts=(Put(kind="note", name="n", value=b"1"),))
        assert await state_of(store, child.id) is State.QUEUED
        assert [record.value for record in await store.records("note")] == [b"1"]

    async def test_what_a_refused_settlement_brings_does_not_happen(self, store: Store) -> None:
        await accept(store)
        lease, child = await claim_one(store), spec()
        await reap(store, now=NOON + LEASE)
        brought: dict[str, Any] = {"inserts": (child,), "puts": (Put(kind="note", name="n", value=b"1"),)}
        assert not await settle(store, lease, now=NOON + LEASE, **brought)
        assert await store.get([child.id]) == [None]
        assert await store.records("note") == []


class Lapses:
    async def test_a_lapsed_lease_not_taken_over_can_still_settle(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert await settle(store, lease, now=NOON + DAY)
        found = await get_job(store, job)
        assert (found.state, found.attempt, found.lost) == (State.COMPLETED, 1, 0)

    async def test_a_lapsed_lease_not_taken_over_can_still_be_extended(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert (await beat(store, lease, now=NOON + DAY)).held
        assert (await get_job(store, job)).leased_until == NOON + DAY + LEASE
        assert await reap(store, now=NOON + DAY + LEASE - SECOND) == []

    async def test_heartbeats_keep_a_lease(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        for step in range(1, 5):
            assert await reap(store, now=NOON + step * 9 * SECOND) == []
            assert (await beat(store, lease, now=NOON + step * 9 * SECOND)).held
        assert len(await reap(store, now=NOON + 36 * SECOND + LEASE)) == 1

    async def test_a_heartbeat_may_change_the_length_of_the_lease(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, lease_for=HOUR)
        assert await reap(store, now=NOON + HOUR - SECOND) == []
        assert await reap(store, now=NOON + HOUR, watched_for=HOUR - SECOND) == []
        assert len(await reap(store, now=NOON + HOUR, watched_for=HOUR)) == 1

    async def test_a_lease_is_lapsed_at_its_very_instant_and_not_before(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        assert await reap(store, now=lease.until - SECOND / 1_000_000) == []
        assert len(await reap(store, now=lease.until)) == 1

    async def test_after_an_outage_every_holder_gets_one_lease_to_report(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        back = NOON + DAY  # the store was out of reach meanwhile, so this reaper has watched for nothing yet
        assert await reap(store, now=back, watched_for=SECOND) == []
        assert await reap(store, now=back + LEASE - SECOND, watched_for=LEASE - SECOND) == []
        assert (await beat(store, lease, now=back + LEASE - SECOND)).held
        assert await reap(store, now=back + LEASE, watched_for=LEASE) == []
        assert await settle(store, lease, now=back + LEASE)

    async def test_a_holder_that_does_not_report_after_an_outage_is_given_up(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        [taken] = await reap(store, now=NOON + DAY + LEASE, watched_for=LEASE)
        assert (taken.job, taken.fence) == (lease.job, lease.fence + 1)

    async def test_leases_are_taken_over_earliest_first_and_in_bounded_numbers(self, store: Store) -> None:
        jobs = await accept_all(store, 5)
        for step in (4, 0, 3, 1, 2):
            await claim_one(store, now=NOON + step * SECOND)
        first = await reap(store, now=NOON + MINUTE, limit=2)
        rest = await reap(store, now=NOON + MINUTE)
        assert [lease.job for lease in first + rest] == [jobs[n] for n in (1, 3, 4, 2, 0)]

    async def test_a_take_over_says_all_that_policy_needs(self, store: Store) -> None:
        job = await accept(store, retry=msgspec.structs.replace(spec().options.retry, attempts=9))
        await claim_one(store, worker="w1", call="c1", now=NOON)
        [taken] = await reap(store, worker="r1", lease_for=MINUTE, now=NOON + LEASE)
        assert (taken.job, taken.worker, taken.reaped, taken.attempt, taken.lost) == (job, "r1", True, 1, 0)
        assert (taken.until, taken.lease_for, taken.started_at) == (NOON + LEASE + MINUTE, MINUTE, NOON)
        assert (taken.call, taken.spec) == (None, (await get_job(store, job)).spec)
        assert (await store.history(job))[-1].by == "r1"

    async def test_heartbeats_keep_what_the_job_wants_kept(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await beat(store, lease, progress=0.25, message="a quarter", checkpoint=b"25")
        await beat(store, lease, now=NOON + SECOND)
        found = await get_job(store, job)
        assert (found.progress, found.message, found.checkpoint) == (0.25, "a quarter", b"25")
        [taken] = await reap(store, now=NOON + HOUR)
        await settle(store, taken, Lost(), now=NOON + HOUR)
        assert (await claim_one(store, now=NOON + HOUR)).checkpoint == b"25"
        fresh = await get_job(store, job)
        assert (fresh.progress, fresh.message, fresh.checkpoint) == (None, "", b"25")

    async def test_heartbeats_are_answered_in_the_order_asked(self, store: Store) -> None:
        await accept_all(store, 2)
        first, second = await claim_jobs(store, 2)
        beats = [Beat(seq=second.seq, fence=second.fence), Beat(seq=999_999, fence=1), Beat(seq=first.seq, fence=7)]
        assert [answer.held for answer in await store.extend(beats, now=NOON)] == [True, False, False]

    async def test_a_heartbeat_after_the_end_is_told_so(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await settle(store, lease)
        assert await beat(store, lease, progress=0.5) == Extended(held=False)
        assert (await get_job(store, job)).progress is None

    async def test_crash_after_crash_loses_no_job(self, store: Store) -> None:
        jobs = await accept_all(store, 6, deaths=99, retry=msgspec.structs.replace(spec().options.retry, attempts=99))
        now = NOON
        for _ in range(4):
            await claim_jobs(store, 4, now=now)
            now += LEASE
            taken = await reap(store, now=now)
            for lease in taken[::2]:  # the reaper, too, dies half way
                await settle(store, lease, Lost(), now=now)
        now += HOUR
        for lease in await reap(store, now=now):
            await settle(store, lease, Lost(), now=now)
        assert await find_all(store, states=frozenset({State.QUEUED})) == jobs
        for _ in jobs:
            await run_one(store, now=now)
        await assert_sound(store, jobs)
