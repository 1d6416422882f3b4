"""Batch calls: jobs with the same batch key are leased together and hold the slots of one job, but each stays a job of
its own."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from daybreak.core.model import (
    Batching,
    Cancelled,
    Done,
    Failed,
    Failure,
    HandedBack,
    JobSpec,
    Lease,
    Lost,
    Outcome,
    Settlement,
    State,
    TimedOut,
)
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Exchanged, Store, Verdict
from daybreak.stores.memory import MemoryStore
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
    configure,
    counted,
    exchange,
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
)

FOUR: Final = {("work", 1): Batching(size=4)}
LINGER: Final = {("work", 1): Batching(size=4, linger=MINUTE)}
PLECS: Final = needs("plecs")


def need_batches(store: Store) -> None:
    if "batches" not in store.traits.features:
        pytest.skip("this store has no batches")


async def submit(store: Store, *batches: str | None, **fields: Any) -> list[str]:
    """Submit one job for each batch key, in one call."""
    now = fields.pop("now", NOON)
    jobs = [spec(**{"task": "work", "batch": batch} | fields) for batch in batches]
    await store.insert(jobs, now=now)
    return [job.id for job in jobs]


async def calls_of(store: Store, limit: int = 9, **fields: Any) -> list[list[Lease]]:
    """Claim batch calls."""
    fields.setdefault("batches", FOUR)
    return grouped(await claim_jobs(store, limit, **fields))


def grouped(leases: list[Lease]) -> list[list[Lease]]:
    """The leases of each call, which must be neighbours and name their head."""
    calls: list[list[Lease]] = []
    for lease in leases:
        if calls and lease.group is not None and calls[-1][0].group == lease.group:
            calls[-1].append(lease)
        else:
            calls.append([lease])
    groups = [call[0].group for call in calls if call[0].group is not None]
    assert len(set(groups)) == len(groups), "the jobs of one call are not neighbours"
    assert all(call[0].group in (None, call[0].seq) for call in calls)
    return calls


def jobs_in(calls: list[list[Lease]]) -> list[list[str]]:
    return [[lease.job for lease in call] for call in calls]


async def end(store: Store, leases: list[Lease], outcome: Outcome | None = None, *, now: datetime = NOON) -> list[bool]:
    """Settle leases in one exchange."""
    settled = [settlement(lease, outcome) for lease in leases]
    return (await exchange(store, settle=settled, now=now)).settled


def settlement(lease: Lease, outcome: Outcome | None = None) -> Settlement:
    return settlement_of(lease, Done(ran=2.0) if outcome is None else outcome, chance=0.5, by=lease.worker)


class Batches:
    async def test_a_claim_leases_the_jobs_of_a_batch_together(self, store: Store) -> None:
        need_batches(store)
        a1, b1, a2, b2, a3, b3, a4, b4, a5 = await submit(store, *"ababababa")
        assert jobs_in(await calls_of(store, 1)) == [[a1, a2, a3, a4]]
        assert jobs_in(await calls_of(store)) == [[b1, b2, b3, b4], [a5]]
        assert await calls_of(store) == []
        await assert_sound(store)

    async def test_each_job_of_a_call_has_its_own_lease_and_outcome(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaaa")
        [call] = await calls_of(store)
        assert [(lease.attempt, lease.fence, lease.worker) for lease in call] == [(1, 1, "w1")] * 4
        outcomes: list[Outcome] = [Done(b"1"), FATAL, OOPS, HandedBack()]
        ended = [settlement(lease, outcome) for lease, outcome in zip(call, outcomes, strict=True)]
        assert (await exchange(store, settle=ended)).settled == [True] * 4
        states = [await state_of(store, job) for job in jobs]
        assert states == [State.COMPLETED, State.FAILED, State.SCHEDULED, State.QUEUED]
        assert (await get_job(store, jobs[3])).attempt == 0
        assert jobs_in(await calls_of(store, now=NOON + MINUTE)) == [[jobs[2], jobs[3]]]
        await assert_sound(store)

    async def test_one_call_never_mixes_keys_tasks_versions_or_queues(self, store: Store) -> None:
        need_batches(store)
        kinds: list[dict[str, Any]] = [
            {"batch": "a"}, {"batch": "b"}, {"batch": ""}, {"batch": None}, {"batch": "a", "task": "other"},
            {"batch": "a", "version": 2}, {"batch": "a", "queue": "mail"},
        ]  # fmt: skip
        jobs = [spec(**{"task": "work"} | kind) for _ in range(3) for kind in kinds]
        await store.insert(jobs, now=NOON)
        every = Batching(size=4)
        batches = {("work", 1): every, ("work", 2): every, ("other", 1): every}
        calls = await calls_of(store, 20, queues=("default", "mail"), batches=batches)
        assert sorted(len(call) for call in calls) == [1, 1, 1, 3, 3, 3, 3, 3, 3]
        for call in calls:
            assert len({(one.spec.queue, one.spec.task, one.spec.version, one.spec.batch) for one in call}) == 1
        assert [lease.group for call in calls for lease in call if lease.spec.batch is None] == [None] * 3
        await assert_sound(store)

    async def test_the_most_urgent_job_is_the_head_and_the_others_follow_in_rank_order(self, store: Store) -> None:
        need_batches(store)
        late = await submit(store, "a", "a", priority=6)
        normal = await submit(store, "a", "a", "a", priority=5)
        [urgent] = await submit(store, "a", priority=4)
        assert jobs_in(await calls_of(store, 1)) == [[urgent, *normal]]
        assert jobs_in(await calls_of(store, 1)) == [late]

    async def test_a_call_takes_jobs_at_most_one_priority_from_its_head(self, store: Store) -> None:
        need_batches(store)
        by_priority = {level: (await submit(store, "a", priority=level))[0] for level in range(11)}
        calls = [[by_priority.pop(level) for level in levels] for levels in ((0, 1), (2, 3, 4, 5), (6, 7, 8), (9, 10))]
        assert jobs_in(await calls_of(store)) == calls
        assert not by_priority

    async def test_jobs_that_a_call_passes_over_stay_as_they_were(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"abcabcabcabca")
        passed = [job for job, key in zip(jobs, "abcabcabcabca", strict=True) if key != "a"]
        before = await store.get(passed)
        positions = [await store.position(job) for job in passed]
        [call] = await calls_of(store, 1)
        assert [lease.spec.batch for lease in call] == ["a"] * 4
        assert await store.get(passed) == before
        assert [p.ahead for p in positions if p] == [1, 2, 4, 5, 7, 8, 10, 11]
        after = [await store.position(job) for job in passed]
        assert [p.ahead for p in after if p] == list(range(8))
        assert await claim_ids(store, 20) == [*passed, jobs[-1]]  # and all of them are still there
        await assert_sound(store)

    async def test_a_claim_without_batches_leases_them_one_by_one(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaaa")
        leases = await claim_jobs(store, 2)
        assert [(lease.job, lease.group) for lease in leases] == [(jobs[0], None), (jobs[1], None)]
        assert await end(store, leases) == [True, True]
        assert jobs_in(await calls_of(store, batches={("other", 1): Batching(size=4)})) == [[jobs[2]], [jobs[3]]]
        assert "calls" not in await counted(store)
        await assert_sound(store)

    async def test_a_claim_that_names_a_job_takes_it_without_others(self, store: Store) -> None:
        need_batches(store)
        first, second, third = await submit(store, *"aaa")
        assert jobs_in(await calls_of(store, job=second, batches=LINGER)) == [[second]]
        assert jobs_in(await calls_of(store)) == [[first, third]]

    # -- what a call counts as -----------------------------------------------------------------------------------------

    async def test_a_call_counts_once_towards_limit_and_begins(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaaaaabb")
        plain = await accept(store, "work")
        calls = await calls_of(store, 3, begins=2)
        assert jobs_in(calls) == [jobs[:4], jobs[4:6], jobs[6:]]
        assert [[lease.begun for lease in call] for call in calls] == [[True] * 4, [True] * 2, [False] * 2]
        assert await claim_ids(store) == [plain]

    async def test_every_job_of_a_call_counts_towards_max_running(self, store: Store) -> None:
        need_batches(store)
        await configure(store, max_running=6)
        jobs = await submit(store, *"aaaaaaaaaa")
        assert jobs_in(await calls_of(store)) == [jobs[:4], jobs[4:6]]
        assert await calls_of(store) == []
        assert jobs_in(await calls_of(store, batches=LINGER)) == []

    async def test_the_room_of_a_queue_limits_a_call_even_if_it_might_linger(self, store: Store) -> None:
        need_batches(store)
        await configure(store, max_running=2)
        jobs = await submit(store, *"aaaa")
        assert jobs_in(await calls_of(store, batches=LINGER)) == [jobs[:2]]

    async def test_concurrent_claims_never_share_a_job_nor_mix_keys(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *("abcd" * 12))
        claims = await asyncio.gather(*(calls_of(store, 3, worker=f"w{n}") for n in range(8)))
        calls = [call for claim in claims for call in claim]
        while more := await calls_of(store):
            calls += more
        taken = [lease.job for call in calls for lease in call]
        assert sorted(taken) == sorted(jobs)
        assert all(len({lease.spec.batch for lease in call}) == 1 for call in calls)
        await assert_sound(store)

    # -- slots and rates -----------------------------------------------------------------------------------------------

    async def test_a_call_takes_the_slots_and_the_token_of_one_job(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=2, every=MINUTE, burst=3)
        await submit(store, *("a" * 16), resources=PLECS)
        first, second = await calls_of(store)
        assert (len(first), len(second), await used(store, "plecs")) == (4, 4, 2)
        await assert_sound(store)
        await end(store, first)
        assert await used(store, "plecs") == 1
        [third] = await calls_of(store)  # the third token; the fourth comes after a minute
        assert len(third) == 4
        await end(store, [*second, *third])
        assert await used(store, "plecs") == 0
        assert await calls_of(store) == []
        [fourth] = await calls_of(store, now=NOON + MINUTE)
        assert len(fourth) == 4
        await assert_sound(store)

    async def test_a_call_holds_its_slots_until_its_last_job_is_settled(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=1)
        await submit(store, *("a" * 8), resources=PLECS)
        now = NOON
        for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
            [call] = await calls_of(store, now=now)
            assert len(call) == 4
            for place in order:
                assert await calls_of(store, now=now, worker="w2") == []
                assert await used(store, "plecs") == 1
                assert await settle(store, call[place], HandedBack(), now=now)
                await assert_sound(store)
            assert await used(store, "plecs") == 0
            now += MINUTE

    async def test_jobs_of_a_call_that_end_at_once_give_its_slots_back_once(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=2)
        await submit(store, *("a" * 24), resources=PLECS)
        for _ in range(3):
            [first], [second] = await calls_of(store, 1), await calls_of(store, 1)
            assert (len(first), len(second)) == (4, 4)
            assert all(await asyncio.gather(*(settle(store, lease) for lease in first)))
            assert await used(store, "plecs") == 1
            assert all(await asyncio.gather(*(settle(store, lease) for lease in second)))
            assert await used(store, "plecs") == 0
        await assert_sound(store)

    async def test_no_slot_leaks_whatever_becomes_of_the_head(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=1)
        now = NOON
        for outcome in (Done(), OOPS, FATAL, TimedOut(MINUTE), Lost(), Cancelled(), HandedBack()):
            await submit(store, *"aaa", resources=PLECS, queue=type(outcome).__name__, now=now)
            [[head, *others], *_] = await calls_of(store, 1, queues=(type(outcome).__name__,), now=now)
            assert await settle(store, head, outcome, now=now)
            assert await used(store, "plecs") == 1
            await assert_sound(store)
            await end(store, others, now=now)
            assert await used(store, "plecs") == 0
            await assert_sound(store)
            now += MINUTE

    async def test_a_head_that_left_its_call_begins_no_other_until_that_has_ended(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=2)
        await submit(store, *"aa", resources=PLECS)
        [[head, other]] = await calls_of(store)
        assert await settle(store, head, HandedBack())
        [[again]] = await calls_of(store)
        assert (again.job, again.group, await used(store, "plecs")) == (head.job, None, 2)
        assert await settle(store, other, HandedBack())
        assert await used(store, "plecs") == 1
        assert await settle(store, again, HandedBack())
        assert await used(store, "plecs") == 0
        assert [len(call) for call in await calls_of(store)] == [2]
        await assert_sound(store)

    async def test_a_dead_call_gives_its_slots_back_when_its_last_lease_is_settled(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=1)
        jobs = await submit(store, *"aaa", resources=PLECS)
        await calls_of(store, lease_for=LEASE)
        dead = [*(await reap(store, now=NOON + MINUTE, limit=2)), *(await reap(store, now=NOON + MINUTE))]
        assert sorted(lease.job for lease in dead) == sorted(jobs)
        for lease in dead:
            assert await used(store, "plecs") == 1
            await settle(store, lease, Lost(), now=NOON + MINUTE)
            await assert_sound(store)
        assert await used(store, "plecs") == 0
        assert "calls" not in await counted(store)

    async def test_a_call_takes_along_jobs_that_wait_for_its_slot(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=1)
        first = await submit(store, *"aaaaa", resources=PLECS)
        [call] = await calls_of(store)
        second = await submit(store, *"aaaa", resources=PLECS)
        assert await calls_of(store) == []
        assert [await state_of(store, job) for job in second] == [State.BLOCKED] * 4
        await end(store, call)
        [call] = await calls_of(store)
        assert [lease.job for lease in call] == [first[4], *second[:3]]
        await assert_sound(store)
        await end(store, call)
        assert jobs_in(await calls_of(store)) == [second[3:]]
        await assert_sound(store)

    async def test_what_was_offered_to_a_job_that_a_call_takes_along_goes_to_the_next(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=2)
        await submit(store, *"aaaabbbb", resources=PLECS)
        calls = await calls_of(store)
        jobs = await submit(store, *"ccccdddd", resources=PLECS)
        assert await calls_of(store) == []  # all of them are parked
        await end(store, [lease for call in calls for lease in call])
        taken = []
        for _ in range(4):
            taken += jobs_in(await calls_of(store, 1))
        assert taken == [jobs[:4], jobs[4:]]
        await assert_sound(store)

    async def test_jobs_with_other_needs_are_not_taken_along(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=5)
        [one] = await submit(store, "a", resources=PLECS)
        [two] = await submit(store, "a", resources=needs(plecs=2))
        [none] = await submit(store, "a")
        [same] = await submit(store, "a", resources=PLECS)
        assert jobs_in(await calls_of(store)) == [[one, same], [two], [none]]
        assert await used(store, "plecs") == 3
        await assert_sound(store)

    async def test_jobs_that_do_not_fit_hide_none_of_those_behind_them(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=9)
        [head] = await submit(store, "a", resources=PLECS)
        others = await submit(store, *"a" * 10, resources=needs(plecs=2))
        behind = await submit(store, *"aaa", resources=PLECS)
        called = jobs_in(await calls_of(store))
        assert called == [[head, *behind], others[:4], others[4:8], others[8:]]
        await assert_sound(store)

    async def test_an_unused_call_returns_its_token_only_as_a_whole(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", every=HOUR)
        await submit(store, *"aaa", resources=PLECS)
        unused = HandedBack(unused=True)
        [call] = await calls_of(store)
        await end(store, call, unused)
        [call] = await calls_of(store)
        assert len(call) == 3
        await end(store, call[:1], unused)
        await end(store, call[1:], unused)
        assert await calls_of(store) == []
        await assert_sound(store)

    # -- linger --------------------------------------------------------------------------------------------------------

    async def test_a_call_that_is_not_full_waits_until_its_head_is_old_enough(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaa")
        answer = await _claim(store, now=NOON + 20 * SECOND)
        assert (answer.leases, answer.next_in, answer.again) == ([], 40 * SECOND, False)
        assert [(await get_job(store, job)).revision for job in jobs] == [1, 1, 1]
        answer = await _claim(store, now=NOON + MINUTE)
        assert jobs_in(grouped(answer.leases)) == [jobs]
        await assert_sound(store)

    async def test_a_call_is_leased_as_soon_as_it_is_full(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaa")
        assert (await _claim(store)).leases == []
        jobs += await submit(store, "a")
        assert jobs_in(grouped((await _claim(store)).leases)) == [jobs]

    async def test_a_key_that_waits_holds_up_no_other_job(self, store: Store) -> None:
        need_batches(store)
        waiting = await submit(store, *"ab", priority=4)
        full = await submit(store, *"cccc")
        plain = await accept_all(store, 2, priority=9)
        answer = await _claim(store, limit=3)
        assert jobs_in(grouped(answer.leases)) == [full, plain[:1], plain[1:]]
        assert answer.next_in is None  # it got all that it asked for
        answer = await _claim(store, now=NOON + SECOND)
        assert (answer.leases, answer.next_in) == ([], 59 * SECOND)
        assert [await state_of(store, job) for job in waiting] == [State.QUEUED] * 2
        await assert_sound(store)

    async def test_more_waiting_keys_than_one_claim_reads_hold_up_no_other_job(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *(f"key {n}" for n in range(450)))
        plain = await accept(store, priority=9)
        assert [lease.job for lease in (await _claim(store)).leases] == [plain]

    async def test_one_claim_passes_over_a_bounded_number(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *(f"key {n}" for n in range(1000)))
        await accept(store, priority=9)
        answer = await _claim(store)
        assert (answer.leases, answer.next_in, answer.again) == ([], MINUTE, False)

    async def test_a_job_that_expires_is_not_taken_along(self, store: Store) -> None:
        need_batches(store)
        [brief] = await submit(store, "a", expires_in=SECOND)
        jobs = await submit(store, *"aa")
        [gone] = await submit(store, "a", expires_in=SECOND)
        now = NOON + 2 * SECOND
        assert jobs_in(await calls_of(store, now=now)) == [jobs]
        await store.advance(now=now)
        assert [(await get_job(store, job)).reason for job in (brief, gone)] == ["expired", "expired"]
        await assert_sound(store)

    # -- quarantine ----------------------------------------------------------------------------------------------------

    async def test_a_job_that_crashed_runs_alone(self, store: Store) -> None:
        await self._assert_runs_alone(store, Lost())
        await self._assert_runs_alone(store, Lost(alone=True))

    async def test_a_job_that_ran_into_its_limit_runs_alone(self, store: Store) -> None:
        await self._assert_runs_alone(store, TimedOut(MINUTE))

    async def _assert_runs_alone(self, store: Store, outcome: Outcome) -> None:
        need_batches(store)
        first, second, third, fourth = await submit(store, *"aaaa")
        [call] = await calls_of(store)
        await end(store, [call[0], call[2]], outcome)
        await end(store, [call[1], call[3]], HandedBack())
        [fresh] = await submit(store, "a")
        calls = await calls_of(store, now=NOON + MINUTE)
        assert sorted(jobs_in(calls)) == sorted([[first], [second, fourth, fresh], [third]])
        await end(store, [lease for call in calls for lease in call], now=NOON + MINUTE)

    async def test_a_failed_job_is_retried_with_others(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aa")
        [[bad, other]] = await calls_of(store)
        await end(store, [bad], Failed(Failure(message="x", kinds=("OSError",))))
        await end(store, [other], HandedBack())
        assert jobs_in(await calls_of(store, now=NOON + MINUTE)) == [jobs]

    # -- people, retries, other orders ---------------------------------------------------------------------------------

    async def test_cancelling_one_job_leaves_the_rest_of_the_call(self, store: Store) -> None:
        need_batches(store)
        await provide(store, "plecs", slots=1)
        jobs = await submit(store, *"aaaa", resources=PLECS)
        [call] = await calls_of(store)
        assert await amend(store, "cancel", jobs[0], jobs[2]) == ["requested"] * 2
        assert await end(store, call) == [True] * 4
        states = [await state_of(store, job) for job in jobs]
        assert states == [State.CANCELLED, State.COMPLETED, State.CANCELLED, State.COMPLETED]
        assert await used(store, "plecs") == 0
        await assert_sound(store)

    async def test_suspended_scheduled_and_ended_jobs_are_not_taken_along(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaaaa")
        await submit(store, "a", delay=MINUTE)
        await amend(store, "suspend", jobs[1])
        await amend(store, "cancel", jobs[3])
        assert jobs_in(await calls_of(store)) == [[jobs[0], jobs[2], jobs[4]]]
        await amend(store, "resume", jobs[1])
        await amend(store, "retry", jobs[3])
        assert jobs_in(await calls_of(store)) == [[jobs[1], jobs[3]]]
        await assert_sound(store)

    async def test_calls_follow_the_rank_of_an_aging_queue(self, store: Store) -> None:
        need_batches(store)
        await configure(store, discipline="aging", patience=timedelta(seconds=10))
        [old] = await submit(store, "a", priority=6)
        [newer] = await submit(store, "a", priority=4, now=NOON + 30 * SECOND)
        [newest] = await submit(store, "a", priority=2, now=NOON + 45 * SECOND)
        assert jobs_in(await calls_of(store, now=NOON + 46 * SECOND)) == [[old, newest, newer]]

    async def test_a_reranked_job_is_taken_along_in_its_new_place(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaaaaa")
        await amend(store, "rerank", jobs[5], priority=4)
        assert jobs_in(await calls_of(store, 1)) == [[jobs[5], *jobs[:3]]]
        assert jobs_in(await calls_of(store)) == [jobs[3:5]]

    async def test_queues_take_turns_by_the_jobs_they_gave(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *"aaaaaaaa")
        plain = await accept_all(store, 5, queue="mail")
        calls = jobs_in(await calls_of(store, 6, queues=("default", "mail")))
        assert [len(call) for call in calls] == [4, 1, 1, 1, 1, 4]
        assert [job for call in calls if len(call) == 1 for job in call] == plain[:4]

    # -- lost answers, counters, events --------------------------------------------------------------------------------

    async def test_a_repeated_claim_answers_the_same_calls(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *"bbbaaaaa", priority=5)
        await submit(store, "b", priority=4)
        calls = await calls_of(store, 3, call="c1")
        assert [len(call) for call in calls] == [4, 4, 1]
        again = await calls_of(store, 3, call="c1", repeats=True)
        assert sorted(jobs_in(again)) == sorted(jobs_in(calls))
        [more] = await submit(store, "c")
        assert jobs_in(await calls_of(store, 4, call="c1", repeats=True))[-1] == [more]

    async def test_calls_and_elements_are_counted_when_the_head_is_settled(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *"aaaabb")
        await submit(store, "c")
        calls = await calls_of(store)
        assert "calls" not in await counted(store)
        for call in calls:
            await end(store, call)
        totals = await counted(store, task="work")
        assert (totals.get("calls"), totals.get("elements")) == ((3, 6_000_000), (7, 6_000_000))
        assert totals["completed"] == (7, 14_000_000)

    async def test_a_call_that_was_not_used_is_not_counted(self, store: Store) -> None:
        need_batches(store)
        await submit(store, *"aaaa")
        [call] = await calls_of(store)
        await end(store, call, HandedBack(unused=True))
        assert "calls" not in await counted(store)

    async def test_the_head_tells_when_a_call_begins_and_ends(self, store: Store) -> None:
        need_batches(store)
        jobs = await submit(store, *"aaa")
        [alone] = await submit(store, "b")
        calls = await calls_of(store)
        for call in calls:
            await end(store, call)
        kinds = ["submitted", "started", "batch_started", "batch_completed", "completed"]
        assert await kinds_of(store, jobs[0]) == kinds
        assert await kinds_of(store, jobs[1]) == await kinds_of(store, alone) == ["submitted", "started", "completed"]
        told = [event for event in await store.history(jobs[0]) if event.kind.startswith("batch")]
        assert [(event.by, event.note) for event in told] == [("w1", "3 jobs")] * 2

    async def test_jobs_that_come_from_another_store_are_taken_along(self, store: Store) -> None:
        need_batches(store)
        async with MemoryStore() as other:
            moved = await submit(other, *"aab")
            packed = [one for one in await other.pack(moved) if one is not None]
        here = await submit(store, *"ab")
        assert [answer.verdict for answer in await store.adopt(packed, by="ann", now=NOON)] == [Verdict.NEW] * 3
        calls = sorted(sorted(call) for call in jobs_in(await calls_of(store)))
        assert calls == sorted([sorted([here[0], moved[0], moved[1]]), sorted([here[1], moved[2]])])
        await assert_sound(store)

    async def test_an_unknown_batch_key_is_an_ordinary_submit(self, store: Store) -> None:
        need_batches(store)
        first = spec("work", batch="a", key="k", unique="u")
        again = spec("work", batch="a", key="k", unique="u")
        assert await verdicts(store, first, again) == ["new", "duplicate"]
        [job] = await store.get([first.id])
        assert job is not None
        assert isinstance(job.spec, JobSpec)
        assert job.spec.batch == "a"


async def _claim(store: Store, limit: int = 9, now: datetime = NOON) -> Exchanged:
    asked = Claim(worker="w1", limit=limit, lease_for=LEASE, batches=LINGER)
    return await exchange(store, claim=asked, now=now)
