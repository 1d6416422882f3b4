"""Retries at a failing resource are at most a tenth of first attempts. Further retries wait; they never fail for it."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from daybreak.core.model import HandedBack, Health, Lease, Put, Reason, Retry, State
from daybreak.store.protocol import Claim, Store
from daybreak.testing.contract.builders import (
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
    counted,
    exchange,
    get_job,
    kinds_of,
    needs,
    provide,
    set_gate,
    settle,
    state_of,
    waiting,
)

AT_ONCE = Retry(strategy="fixed", attempts=5, delay=timedelta())
SERVER = needs("server")


async def spare(store: Store, resource: str = "server", *, spare_for: timedelta = HOUR, now: datetime = NOON) -> None:
    value = msgspec.json.encode(Health(spare_for=spare_for))
    assert await store.put([Put(kind="health", name=resource, value=value)], now=now) != [None]


async def fail(store: Store, count: int, *, now: datetime = NOON) -> list[str]:
    """So many jobs that have failed once and wait to be tried again."""
    jobs = await accept_all(store, count, now=now, resources=SERVER, retry=AT_ONCE)
    await fail_all(store, await claim_jobs(store, count, now=now), now=now)
    return jobs


async def fail_all(store: Store, leases: list[Lease], *, now: datetime = NOON) -> None:
    for lease in leases:
        assert await settle(store, lease, OOPS, now=now)


class RetryBudget:
    async def test_retries_are_a_tenth_of_first_tries_while_a_resource_fails(self, store: Store) -> None:
        failed = await fail(store, 3)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        job = await get_job(store, failed[0])
        assert (job.state, job.blocked_on, job.attempt) == (State.BLOCKED, "retries of server", 1)
        assert await waiting(store, "retries of server") == 3
        fresh = await accept_all(store, 25, resources=SERVER, retry=AT_ONCE)
        taken: list[str] = []
        for _ in range(12):
            taken += await claim_ids(store, 5)
        assert sorted(taken) == sorted([*fresh, *failed[:2]])
        assert taken.index(failed[0]) >= 10
        assert taken.index(failed[1]) >= 21
        assert await state_of(store, failed[2]) is State.BLOCKED
        assert (await counted(store))["spared"][0] >= 3
        await assert_sound(store)

    async def test_retries_go_on_when_it_works_again(self, store: Store) -> None:
        failed = await fail(store, 3)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        await spare(store, spare_for=timedelta())
        assert await claim_ids(store, 9) == failed
        await assert_sound(store)

    async def test_sparing_ends_by_itself(self, store: Store) -> None:
        failed = await fail(store, 12)
        await spare(store, spare_for=0.5 * SECOND)
        answer = await exchange(store, claim=Claim(worker="w1", limit=20, lease_for=LEASE))
        assert (answer.leases, answer.next_in) == ([], 0.5 * SECOND)
        assert sorted(await claim_ids(store, 20, now=NOON + 0.5 * SECOND)) == failed

    async def test_where_no_first_tries_come_one_retry_goes_every_second(self, store: Store) -> None:
        failed = await fail(store, 5)
        await spare(store)
        now, taken = NOON, []
        for _ in range(17):
            taken += await claim_ids(store, 9, now=now)
            now += SECOND / 4
        assert sorted(taken) == failed[:4]
        assert await waiting(store, "retries of server") == 1

    async def test_where_first_tries_come_now_and_then_they_alone_count(self, store: Store) -> None:
        failed = await fail(store, 3)
        await spare(store)
        now, retried = NOON, 0
        for _ in range(40):
            await accept(store, now=now, resources=SERVER)
            retried += len(set(await claim_ids(store, 9, now=now)) & set(failed))
            now += 0.9 * SECOND
        assert retried == 3
        assert await claim_jobs(store, 9, now=now) == []

    async def test_what_was_tried_beyond_the_budget_is_owed(self, store: Store) -> None:
        failed = await fail(store, 3)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        assert await claim_ids(store, 9, now=NOON + SECOND) == failed[:1]
        now = NOON + 1.5 * SECOND
        fresh = await accept_all(store, 19, now=now, resources=SERVER)
        assert sorted(await claim_ids(store, 30, now=now)) == sorted(fresh)
        assert await claim_jobs(store, 9, now=now) == []
        await accept(store, now=now, resources=SERVER)
        assert len(await claim_jobs(store, 9, now=now)) == 1
        assert await claim_ids(store, 9, now=now) == failed[1:2]

    async def test_first_tries_never_wait_for_it(self, store: Store) -> None:
        await spare(store)
        fresh = await accept_all(store, 30, resources=SERVER)
        assert await claim_ids(store, 50) == fresh

    async def test_retries_that_use_nothing_else_do_not_hold_up_others(self, store: Store) -> None:
        await provide(store, "server", slots=2)
        failed = await fail(store, 2)
        await spare(store)
        fresh = await accept_all(store, 4, resources=SERVER)
        first = await claim_jobs(store, 9)
        assert [lease.job for lease in first] == fresh[:2]
        await fail_all(store, first)
        assert await claim_ids(store, 9) == fresh[2:]
        assert await state_of(store, failed[0]) is State.BLOCKED

    async def test_a_retry_that_waits_can_be_cancelled_and_reranked(self, store: Store) -> None:
        one, two, three = await fail(store, 3)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        assert await amend(store, "cancel", one) == ["done"]
        assert await amend(store, "rerank", three, priority=0) == ["done"]
        assert await claim_ids(store, 9, now=NOON + SECOND) == [three]
        assert await state_of(store, two) is State.BLOCKED
        assert await waiting(store, "retries of server") == 1
        await assert_sound(store)

    async def test_an_offer_that_is_not_taken_goes_to_the_next(self, store: Store) -> None:
        one, two = await fail(store, 2)
        await spare(store)
        assert await claim_jobs(store, 9) == []
        await store.advance(now=NOON + SECOND)
        assert await state_of(store, one) is State.QUEUED
        await amend(store, "suspend", one, now=NOON + SECOND)
        assert await claim_ids(store, 9, now=NOON + SECOND) == [two]

    async def test_what_is_handed_back_before_it_began_is_a_first_try_again(self, store: Store) -> None:
        job = await accept(store, resources=SERVER)
        await settle(store, await claim_one(store), HandedBack())
        await spare(store)
        assert await claim_ids(store, 9) == [job]


class Haste:
    async def test_one_that_will_not_wait_fails_at_an_open_breaker(self, store: Store) -> None:
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        job = await accept(store, resources=SERVER, fail_fast=True)
        patient = await accept(store, resources=SERVER)
        assert await claim_jobs(store, 9) == []
        found = await get_job(store, job)
        assert (found.state, found.reason) == (State.FAILED, Reason.ERROR)
        assert found.note == "the breaker of resource server is open"
        assert (found.attempt, found.failure) == (0, None)
        assert await kinds_of(store, job) == ["submitted", "failed"]
        assert await state_of(store, patient) is State.BLOCKED
        assert (await counted(store))["failed error"] == (1, 0)
        await assert_sound(store)

    async def test_one_that_waits_already_fails_when_it_opens(self, store: Store) -> None:
        await provide(store, "server", slots=1)
        holder, patient = await accept_all(store, 2, resources=SERVER)
        hasty = await accept(store, resources=SERVER, fail_fast=True)
        assert await claim_ids(store, 9) == [holder]
        assert await state_of(store, hasty) is State.BLOCKED
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        assert await state_of(store, hasty) is State.FAILED
        assert await state_of(store, patient) is State.BLOCKED
        await assert_sound(store)

    async def test_it_waits_for_slots_and_for_a_probe_like_others(self, store: Store) -> None:
        await provide(store, "server", slots=1)
        first, second = await accept_all(store, 2, resources=SERVER, fail_fast=True)
        assert await claim_ids(store, 9) == [first]
        assert await state_of(store, second) is State.BLOCKED
        await set_gate(store, "server", state="open", probes=1)
        assert await state_of(store, second) is State.BLOCKED
