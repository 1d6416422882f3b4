"""Changes that people make: suspend, resume, retry, remove and re-rank, one by one and in bulk."""

from __future__ import annotations

import msgspec

from daybreak.core.model import Done, HandedBack, State
from daybreak.store.protocol import Amend, Amendment, Filter, Store
from daybreak.testing.contract.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    OOPS,
    accept,
    accept_all,
    amend,
    assert_sound,
    beat,
    claim_ids,
    claim_jobs,
    claim_one,
    find_all,
    get_job,
    kinds_of,
    run_one,
    settle,
    state_of,
)


class Suspension:
    async def test_a_suspended_job_is_held_until_it_is_resumed(self, store: Store) -> None:
        job = await accept(store)
        assert await amend(store, "suspend", job, note="wait for ann") == ["done"]
        assert (await get_job(store, job)).note == "wait for ann"
        assert await claim_jobs(store, now=NOON + DAY) == []
        assert await amend(store, "suspend", job) == ["refused"]
        assert await amend(store, "resume", job) == ["done"]
        assert await claim_ids(store) == [job]

    async def test_a_resumed_job_still_waits_for_its_time(self, store: Store) -> None:
        job = await accept(store, delay=HOUR)
        await amend(store, "suspend", job)
        await amend(store, "resume", job, now=NOON + MINUTE)
        found = await get_job(store, job)
        assert (found.state, found.run_at) == (State.SCHEDULED, NOON + HOUR)
        await amend(store, "suspend", job, now=NOON + MINUTE)
        await store.advance(now=NOON + 2 * HOUR)
        assert await state_of(store, job) is State.SUSPENDED
        await amend(store, "resume", job, now=NOON + 2 * HOUR)
        assert await state_of(store, job) is State.QUEUED

    async def test_a_running_job_asked_to_suspend_is_held_when_it_comes_back(self, store: Store) -> None:
        for outcome in (HandedBack(b"half"), OOPS):
            job = await accept(store)
            lease = await claim_one(store)
            assert await amend(store, "suspend", job) == ["requested"]
            assert await amend(store, "suspend", job) == ["requested"]
            assert (await get_job(store, job)).suspending
            assert (await beat(store, lease)).suspend
            await settle(store, lease, outcome)
            found = await get_job(store, job)
            assert (found.state, found.suspending) == (State.SUSPENDED, False), outcome
            assert await claim_jobs(store, now=NOON + DAY) == []
        await assert_sound(store)

    async def test_a_job_asked_to_suspend_may_still_finish(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await amend(store, "suspend", job)
        await settle(store, lease, Done(b"1"))
        assert await state_of(store, job) is State.COMPLETED

    async def test_resuming_withdraws_a_request_to_suspend(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert await amend(store, "resume", job) == ["refused"]
        await amend(store, "suspend", job)
        assert await amend(store, "resume", job) == ["done"]
        assert not (await beat(store, lease)).suspend
        await settle(store, lease, HandedBack())
        assert await state_of(store, job) is State.QUEUED
        await assert_sound(store)


class Amendments:
    async def test_only_finished_jobs_can_be_removed(self, store: Store) -> None:
        running, queued, held = await accept_all(store, 3)
        delayed = await accept(store, delay=MINUTE)
        lease = await claim_one(store)
        await amend(store, "suspend", held)
        assert await amend(store, "remove", running, queued, delayed, held) == ["refused"] * 4
        await settle(store, lease)
        assert await amend(store, "remove", running) == ["done"]
        assert await store.get([running]) == [None]
        assert await amend(store, "remove", running) == ["missing"]
        await assert_sound(store)

    async def test_removing_a_job_twice_at_once_is_harmless(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store)
        assert await amend(store, "remove", job, job) == ["done", "missing"]

    async def test_only_finished_jobs_can_be_retried(self, store: Store) -> None:
        running, queued, delayed = *await accept_all(store, 2), await accept(store, delay=MINUTE)
        await claim_one(store)
        assert await amend(store, "retry", running, queued, delayed) == ["refused"] * 3
        await amend(store, "cancel", queued)
        assert await amend(store, "retry", queued) == ["done"]
        assert await claim_ids(store) == [queued]

    async def test_each_job_is_answered_for_in_the_order_asked(self, store: Store) -> None:
        queued = await accept(store)
        done = await run_one(store)
        assert done == queued
        other = await accept(store)
        amended = await store.amend(Amend(action="cancel", by="ann", jobs=(other, "nobody", done)), now=NOON)
        assert amended.amendments == [
            Amendment(other, "done", State.CANCELLED),
            Amendment("nobody", "missing"),
            Amendment(done, "refused", State.COMPLETED),
        ]

    async def test_a_scheduled_job_can_be_started_before_its_time(self, store: Store) -> None:
        delayed, dated = await accept(store, delay=HOUR), await accept(store, run_at=NOON + DAY)
        assert await amend(store, "start", delayed, dated, by="ann") == ["done", "done"]
        found = await get_job(store, delayed)
        assert (found.state, found.run_at) == (State.QUEUED, None)
        assert await kinds_of(store, delayed) == ["submitted", "due"]
        assert (await store.history(delayed))[-1].by == "ann"
        assert await claim_ids(store, 9) == [delayed, dated]
        await store.advance(now=NOON + 2 * DAY)
        assert await kinds_of(store, delayed) == ["submitted", "due", "started"], "it is not due a second time"
        await assert_sound(store)

    async def test_a_retry_that_waits_can_be_started_at_once(self, store: Store) -> None:
        job = await accept(store)
        await settle(store, await claim_one(store), OOPS)
        assert await state_of(store, job) is State.SCHEDULED
        assert await amend(store, "start", job) == ["done"]
        assert (await claim_one(store)).attempt == 2

    async def test_only_scheduled_jobs_can_be_started_before_their_time(self, store: Store) -> None:
        running, queued, held, ended = *await accept_all(store, 3), await accept(store, delay=HOUR)
        await claim_one(store)
        await amend(store, "suspend", held)
        await amend(store, "cancel", ended)
        assert await amend(store, "start", running, queued, held, ended) == ["refused"] * 4
        assert await amend(store, "start", "nobody") == ["missing"]

    async def test_a_running_job_cannot_be_reprioritised(self, store: Store) -> None:
        job = await accept(store, priority=5)
        await claim_one(store)
        assert await amend(store, "rerank", job, priority=0) == ["refused"]
        assert (await get_job(store, job)).priority == 5

    async def test_scheduled_and_suspended_jobs_can_be_reprioritised(self, store: Store) -> None:
        delayed, held, urgent = await accept(store, delay=MINUTE), await accept(store), await accept(store, priority=2)
        await amend(store, "suspend", held)
        assert await amend(store, "rerank", delayed, held, priority=1) == ["done", "done"]
        await amend(store, "resume", held)
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [delayed, held, urgent]
        await assert_sound(store)

    async def test_re_ranking_to_the_same_priority_is_no_event(self, store: Store) -> None:
        job = await accept(store, priority=5)
        assert await amend(store, "rerank", job, priority=5) == ["done"]
        assert await kinds_of(store, job) == ["submitted"]


class BulkChanges:
    async def test_a_bulk_change_in_chunks_ends_and_touches_every_match_once(self, store: Store) -> None:
        jobs = await accept_all(store, 7, queue="mail")
        other = await accept(store)
        changed, chunks = await amend_all(store, Amend(action="cancel", by="ann", filter=Filter(queue="mail"), limit=3))
        assert sorted(amendment.job for amendment in changed) == jobs
        assert {(amendment.verdict, amendment.state) for amendment in changed} == {("done", State.CANCELLED)}
        assert max(chunks) <= 3
        assert await state_of(store, other) is State.QUEUED
        await assert_sound(store)

    async def test_a_bulk_change_does_not_touch_later_arrivals(self, store: Store) -> None:
        await accept_all(store, 5)
        request = Amend(action="cancel", by="ann", filter=Filter(states=frozenset({State.QUEUED})), limit=2)
        first = await store.amend(request, now=NOON)
        assert first.cursor is not None
        late = await accept_all(store, 5)
        changed, _ = await amend_all(store, msgspec.structs.replace(request, cursor=first.cursor))
        assert len(first.amendments) + len(changed) == 5
        assert await find_all(store, states=frozenset({State.QUEUED})) == late

    async def test_a_bulk_change_ends_though_it_makes_matches(self, store: Store) -> None:
        jobs = await accept_all(store, 5)
        for _ in jobs:
            await run_one(store)
        changed, _ = await amend_all(store, Amend(action="retry", by="ann", filter=Filter(), limit=2))
        assert sorted(amendment.job for amendment in changed) == jobs
        assert await claim_ids(store, 9) == jobs

    async def test_a_bulk_change_answers_only_for_what_it_changed(self, store: Store) -> None:
        running, done, queued = await accept_all(store, 3)
        leases = await claim_jobs(store, 2)
        await settle(store, leases[1])
        changed, _ = await amend_all(store, Amend(action="cancel", by="ann", filter=Filter(), limit=2))
        assert {(a.job, a.verdict) for a in changed} == {(running, "requested"), (queued, "done")}
        assert await state_of(store, done) is State.COMPLETED

    async def test_a_bulk_change_of_nothing_is_nothing(self, store: Store) -> None:
        await accept(store)
        changed, _ = await amend_all(store, Amend(action="cancel", by="ann", filter=Filter(queue="none")))
        assert changed == []

    async def test_bulk_removal_leaves_the_unfinished(self, store: Store) -> None:
        done, queued = await accept_all(store, 2)
        await run_one(store)
        changed, _ = await amend_all(store, Amend(action="remove", by="ann", filter=Filter(), limit=1))
        assert [amendment.job for amendment in changed] == [done]
        assert await find_all(store) == [queued]


async def amend_all(store: Store, request: Amend) -> tuple[list[Amendment], list[int]]:
    """Follow a bulk change to its end: all amendments, and how many there were in each chunk."""
    changed: list[Amendment] = []
    chunks: list[int] = []
    for _ in range(1000):
        amended = await store.amend(request, now=NOON)
        changed += amended.amendments
        chunks.append(len(amended.amendments))
        if amended.cursor is None:
            return changed, chunks
        request = msgspec.structs.replace(request, cursor=amended.cursor)
    raise AssertionError("a bulk change does not end")
