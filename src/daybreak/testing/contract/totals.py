"""Promise 9: totals are counted in the same transaction as the change, exactly and permanently."""

from __future__ import annotations

import asyncio

from daybreak.core.model import Cancelled, Done, Failed, Failure, HandedBack, Lost, Suspended, TimedOut
from daybreak.core.units import micros
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Purge, Store
from daybreak.testing.contract.builders import (
    DAY,
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
    accept_all,
    amend,
    claim_jobs,
    claim_one,
    configure,
    counted,
    exchange,
    reap,
    run_one,
    settle,
    spec,
    verdicts,
)

MILLION = 1_000_000


class Totals:
    async def test_every_way_to_end_is_counted_once(self, store: Store) -> None:
        for outcome in (Done(ran=2.0), Done(ran=1.0), Failed(FATAL.failure, ran=0.5), Cancelled(), Lost(alone=True)):
            await accept(store, retry=ONCE, deaths=1)
            await run_one(store, outcome)
        cancelled = await accept(store)
        await amend(store, "cancel", cancelled)
        await accept(store, expires_in=MINUTE)
        await store.advance(now=NOON + MINUTE)
        assert await counted(store) == {
            "submitted": (7, 0), "completed": (2, 3 * MILLION), "failed error": (1, MILLION // 2), "cancelled": (2, 0),
            "failed lost": (1, 0), "failed expired": (1, 0), "waited": (5, 0), "batches": (5, 0),
            "last": (micros(NOON), 2 * MILLION),
        }  # fmt: skip

    async def test_retries_and_time_limits_are_told_apart(self, store: Store) -> None:
        await accept(store, retry=TWICE)
        await run_one(store, OOPS)
        await run_one(store, Done(ran=3.0), now=NOON + MINUTE)
        await accept(store, retry=TWICE, timeout=SECOND, adaptive=True)
        await run_one(store, TimedOut(SECOND), now=NOON + MINUTE)
        await run_one(store, TimedOut(SECOND), now=NOON + 2 * MINUTE)
        found = await counted(store)
        assert found["retrying fixed"] == (1, 0)
        assert found["completed again"] == (1, 3 * MILLION)
        assert found["retrying fixed late"] == (1, MILLION)
        assert found["failed timeout again late escalated"] == (1, MILLION)
        assert found["attempts"] == (2, 0)
        assert found["waited"] == (2, 60 * MILLION)

    async def test_what_is_not_charged_is_not_counted(self, store: Store) -> None:
        await accept(store)
        await run_one(store, HandedBack())
        await run_one(store, Suspended())
        assert await counted(store) == {"submitted": (1, 0)}

    async def test_a_death_counts_as_an_attempt(self, store: Store) -> None:
        await accept(store)
        await claim_one(store)
        [lapsed] = await reap(store, now=NOON + LEASE)
        await settle(store, lapsed, Lost(), now=NOON + LEASE)
        found = await counted(store)
        assert found["lost"] == (1, 0)
        assert found["waited"] == (1, 0)

    async def test_a_wait_counts_from_when_the_job_could_have_begun(self, store: Store) -> None:
        await accept(store, delay=HOUR)
        await accept(store, run_at=NOON + HOUR)
        await accept(store)
        now = NOON + HOUR + SECOND
        for lease in await claim_jobs(store, 3, now=now):
            await settle(store, lease, now=now)
        assert (await counted(store))["waited"] == (3, (1 + 1 + 3601) * MILLION)

    async def test_a_settlement_that_is_refused_or_repeated_counts_nothing(self, store: Store) -> None:
        await accept(store)
        lease = await claim_one(store)
        [taken_over] = await reap(store, now=NOON + LEASE)
        assert not await settle(store, lease, now=NOON + LEASE)
        assert await settle(store, taken_over, Lost(), now=NOON + LEASE)
        assert await settle(store, taken_over, Lost(), now=NOON + LEASE)
        assert {what: n for what, (n, _) in (await counted(store)).items()} == {
            "submitted": 1, "lost": 1, "waited": 1, "batches": 1, "last": micros(NOON + LEASE),
        }  # fmt: skip

    async def test_a_job_cancelled_while_it_ran_counts_as_cancelled(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await amend(store, "cancel", job)
        await settle(store, lease, Done(ran=1.0))
        assert await counted(store) == {"submitted": (1, 0), "cancelled": (1, 0)}

    async def test_duplicates_and_refused_jobs_are_not_submitted(self, store: Store) -> None:
        job = spec(key="k")
        assert await verdicts(store, job, job) == ["new", "duplicate"]
        await configure(store, capacity=1)
        assert await verdicts(store, spec()) == ["full"]
        assert await counted(store) == {"submitted": (1, 0)}

    async def test_one_exchange_is_one_batch_of_each_kind(self, store: Store) -> None:
        await accept_all(store, 3)
        await accept(store, "other")
        leases = await claim_jobs(store, 4)
        done = [settlement_of(lease, Done(), chance=0.5, by="w1") for lease in leases]
        await exchange(store, settle=done[:2])
        await exchange(store, settle=done[2:])
        assert (await counted(store, task="work"))["batches"] == (2, 0)
        assert (await counted(store, task="other"))["batches"] == (1, 0)

    async def test_totals_are_kept_by_queue_task_version_and_priority(self, store: Store) -> None:
        await accept(store, queue="a", priority=2)
        job = await accept(store, queue="b", version=3)
        await amend(store, "rerank", job, priority=9)
        await run_one(store, queues=("b",))
        told = [(t.queue, t.task, t.version, t.priority, t.what) for t in await store.totals()]
        assert told == sorted(told)
        assert [cell for cell in told if cell[4] in ("submitted", "completed")] == [
            ("a", "work", 1, 2, "submitted"), ("b", "work", 3, 5, "submitted"), ("b", "work", 3, 9, "completed"),
        ]  # fmt: skip
        assert {t.queue for t in await store.totals("a")} == {"a"}
        assert await store.totals("nowhere") == []

    async def test_totals_outlive_their_jobs(self, store: Store) -> None:
        await accept(store, keep_completed=SECOND)
        await run_one(store)
        removed = await accept(store)
        await run_one(store)
        await amend(store, "remove", removed)
        before = await store.totals()
        await store.purge(Purge(), now=NOON + DAY)
        assert await store.totals() == before
        assert (await counted(store))["completed"] == (2, 0)

    async def test_a_job_that_is_retried_by_hand_can_end_twice(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store)
        await amend(store, "retry", job)
        await run_one(store)
        found = await counted(store)
        assert (found["submitted"], found["completed"]) == ((1, 0), (2, 0))

    async def test_many_at_once_lose_no_count(self, store: Store) -> None:
        await accept_all(store, 60)

        async def work(name: str) -> None:
            while leases := await claim_jobs(store, 4, worker=name):
                done = [settlement_of(lease, Done(ran=1.0), chance=0.5, by=name) for lease in leases]
                await exchange(store, settle=done, claim=Claim(worker="nobody", queues=("none",), limit=1))
                await accept(store, queue="other")

        await asyncio.gather(*(work(f"w{n}") for n in range(5)))
        found = await counted(store, task="work", queue="default")
        assert found["completed"] == (60, 60 * MILLION)
        assert found["submitted"] == (60, 0)
        assert (await counted(store, queue="other"))["submitted"] == found["batches"]

    async def test_a_failure_that_says_when_to_come_back_is_counted_like_others(self, store: Store) -> None:
        await accept(store)
        await run_one(store, Failed(Failure(message="busy", retry_after=HOUR), ran=0.25))
        assert (await counted(store))["retrying jittered"] == (1, MILLION // 4)
