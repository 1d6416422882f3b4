"""The stated exception of promise 3: a claim that names a job takes that job and no other, within all limits."""

from __future__ import annotations

from daybreak.core.model import HandedBack, State
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import (
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    claim_ids,
    claim_one,
    configure,
    exchange,
    get_job,
    needs,
    provide,
    settle,
    state_of,
)


class ChosenJobs:
    async def test_a_claim_that_names_a_job_takes_it_and_leaves_those_before_it(self, store: Store) -> None:
        first, second, third = await accept_all(store, 3)
        urgent = await accept(store, priority=0)
        lease = await claim_one(store, job=second, tasks=frozenset({("work", 1)}))
        assert (lease.job, lease.attempt, lease.fence) == (second, 1, 1)
        other = await claim_one(store, job=third)
        assert await claim_ids(store, 9) == [urgent, first]
        assert (other.job, other.attempt) == (third, 1)
        assert await settle(store, lease)

    async def test_a_claim_that_names_a_job_takes_no_other_whatever_its_limit(self, store: Store) -> None:
        first, second = await accept_all(store, 2)
        assert await claim_ids(store, 9, job=second) == [second]
        assert await claim_ids(store, 9, job=second) == []
        assert await claim_ids(store, 9, job="unknown") == []
        assert await claim_ids(store, 9) == [first]

    async def test_a_job_that_is_not_queued_cannot_be_chosen(self, store: Store) -> None:
        held, late, ended = await accept(store), await accept(store, delay=MINUTE), await accept(store)
        await amend(store, "suspend", held)
        await amend(store, "cancel", ended)
        for job in (held, late, ended):
            assert await claim_ids(store, 1, job=job) == []
        assert await claim_ids(store, 1, job=late, now=NOON + MINUTE) == [late]
        assert (await get_job(store, held)).attempt == 0

    async def test_a_chosen_job_keeps_to_queues_tasks_pauses_and_max_running(self, store: Store) -> None:
        mail = await accept(store, "send", queue="mail")
        assert await claim_ids(store, 1, job=mail) == []
        assert await claim_ids(store, 1, job=mail, queues=("mail",), tasks=frozenset({("other", 1)})) == []
        await configure(store, "mail", paused=True)
        assert await claim_ids(store, 1, job=mail, queues=("mail",)) == []
        await configure(store, "mail", max_running=1)
        running = await accept(store, "send", queue="mail")
        lease = await claim_one(store, job=running, queues=("default", "mail"), tasks=frozenset({("send", 1)}))
        assert await claim_ids(store, 1, job=mail, queues=("mail",)) == []
        assert await settle(store, lease)
        assert await claim_ids(store, 1, job=mail, queues=("mail",)) == [mail]

    async def test_a_chosen_job_waits_for_its_resources_like_any_other(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        first, second = [await accept(store, resources=needs("plecs")) for _ in range(2)]
        lease = await claim_one(store, job=second)
        assert await claim_ids(store, 1, job=first) == []
        assert await state_of(store, first) is State.BLOCKED
        assert await settle(store, lease)
        assert await claim_ids(store, 1, job=first) == [first]

    async def test_a_chosen_job_that_waited_too_long_expires(self, store: Store) -> None:
        first, stale = await accept(store), await accept(store, expires_in=SECOND)
        assert await claim_ids(store, 1, job=stale, now=NOON + MINUTE) == []
        assert await state_of(store, stale) is State.FAILED
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [first]

    async def test_a_chosen_job_that_is_handed_back_stands_where_it_stood(self, store: Store) -> None:
        first, second, third = await accept_all(store, 3)
        lease = await claim_one(store, job=second)
        answer = await exchange(store)
        assert answer.leases == []
        assert await settle(store, lease, HandedBack())
        assert await claim_ids(store, 9) == [first, second, third]
