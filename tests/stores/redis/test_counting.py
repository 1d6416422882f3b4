"""Totals and full queues: cases that only the scripts of this store could get wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis_servers import REDIS, fresh, need_redis

from daybreak.api.oldest import oldest_per_queue
from daybreak.client.client import Client
from daybreak.core.model import Done, State
from daybreak.core.units import MICROSECOND, span
from daybreak.core.wait_limit import SHORTENED_NOTE, shortened_wait
from daybreak.policy.settle import settle
from daybreak.store.protocol import SCANNED_PER_PAGE, Filter, Query
from daybreak.stores.memory import MemoryStore
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import (
    LEASE,
    MINUTE,
    NOON,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_jobs,
    configure,
    exchange,
    get_job,
    reap,
    spec,
)


@pytest.fixture
async def store():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as made:
            yield made


async def totals_of_a_mixed_batch(store):
    kinds = (("a", 2), ("a", 2), ("b", 2), ("a", 3), ("a", 2))
    specs = [spec(task, id=f"job {n}", priority=priority) for n, (task, priority) in enumerate(kinds)]
    await store.insert(specs, now=NOON)
    leases = await claim_jobs(store, 9, now=NOON + MINUTE)
    await amend(store, "cancel", "job 1", now=NOON + MINUTE)
    lapsed = await reap(store, limit=1, now=NOON + MINUTE + LEASE)
    assert len(lapsed) == 1
    done = [settle(lease, Done(ran=n + 0.5), chance=0.5, by="w1") for n, lease in enumerate(leases)]
    done[-1] = replace(done[-1], waited=None)
    answer = await exchange(store, settle=done, now=NOON + MINUTE + LEASE)
    return answer.settled, await store.totals()


async def test_a_batch_of_which_not_all_are_accepted_counts_those_that_are(store):
    assert await totals_of_a_mixed_batch(store) == await totals_of_a_mixed_batch(MemoryStore())


async def test_sums_of_microseconds_are_exact_beyond_what_fourteen_digits_can_tell(store):
    await accept_all(store, 3)
    leases = await claim_jobs(store, 3)
    done = [settle(lease, Done(), chance=0.5, by="w1") for lease in leases]
    for settlement, ran in zip(done, (1_234_567_890_123_457, 1, 1_000_000_000_000_002), strict=True):
        await exchange(store, settle=[replace(settlement, ran=ran)])
    [completed] = [total for total in await store.totals() if total.what == "completed"]
    assert (completed.n, completed.took) == (3, 2_234_567_890_123_460)


async def sheddings(store):
    await configure(store, capacity=3, when_full="shed")
    urgencies = (9, 8, 9, 7, 9, 6, 5, 5, 5, 4)
    specs = [spec(f"t{n % 2}", id=f"job {n}", priority=urgency) for n, urgency in enumerate(urgencies)]
    answers = await store.insert(specs, now=NOON)
    await assert_sound(store)
    return answers, await store.count(), await store.totals()


async def test_jobs_of_one_call_push_out_each_other(store):
    mine = await sheddings(store)
    assert mine == await sheddings(MemoryStore())
    assert sum(bool(answer.evicted) for answer in mine[0]) == 6


async def test_wait_limits_of_a_century_shrink_to_the_microsecond(store):
    await configure(store, capacity=7)
    await accept_all(store, 6)
    for odd in (1, 3, 5, 27, 1_000_003):
        limit = timedelta(days=36_400) - odd * MICROSECOND
        job = await get_job(store, await accept(store, priority=9, expires_in=limit))
        assert job.expires_at == NOON + shortened_wait(span(limit), 9, 6, 7) * MICROSECOND
        await amend(store, "cancel", job.id)


async def test_that_a_limit_was_shortened_is_told_after_hundreds_of_events_and_in_another_store(store):
    await configure(store, capacity=4)
    await accept_all(store, 3)
    await configure(store, capacity=3)
    first, *_ = await claim_jobs(store)
    await configure(store, capacity=2)
    following = spec(priority=9, expires_in=MINUTE)
    await exchange(store, settle=[replace(settle(first, Done(), chance=0.5, by="w1"), inserts=(following,))])
    assert (await get_job(store, following.id)).expires_at == NOON + MINUTE / 4
    for _ in range(210):
        await amend(store, "suspend", following.id)
        await amend(store, "resume", following.id)
    history = await store.history(following.id)
    assert [event.kind for event in history[:2]] == ["submitted", "folded"]
    assert history[0].note == SHORTENED_NOTE
    assert len(history) < 402
    async with MemoryStore() as other:
        [moved] = await store.pack([following.id])
        await other.adopt([moved], by="mover", now=NOON)
        assert (await other.history(following.id))[:-1] == history
        [back] = await other.pack([following.id])
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as third:
            await third.adopt([back], by="mover", now=NOON)
            assert (await third.history(following.id))[: len(history)] == history
            assert (await get_job(third, following.id)).state is State.QUEUED


@pytest.mark.parametrize("discipline", ["fifo", "aging"])
async def test_the_oldest_job_is_found_behind_any_number_of_more_urgent_ones(store, discipline):
    await configure(store, "default", discipline=discipline)
    await accept(store, priority=9, now=NOON)
    for _ in range(6):
        await store.insert([spec(priority=2) for _ in range(SCANNED_PER_PAGE // 5)], now=NOON + MINUTE)
    await accept(store, priority=0, now=NOON + MINUTE)
    await accept(store, priority=10, now=NOON + MINUTE)
    assert await oldest_per_queue(Client(store)) == {"default": NOON}


async def test_a_listing_of_one_priority_reads_no_other(store):
    """Also if some of its jobs were submitted while the queue aged."""
    await configure(store, "default", discipline="aging")
    aged = await accept_all(store, 3, priority=5)
    others = await accept_all(store, 3, priority=2)
    await configure(store, "default", discipline="fifo")
    later = [await accept(store, priority=priority) for priority in (0, 2, 5, 5, 7)]
    found, cursor = [], None
    where = Filter(states=frozenset({State.QUEUED}), priority=5)
    while True:
        page = await store.find(Query(filter=where, limit=2, cursor=cursor))
        found += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
    assert found == [*aged, later[2], later[3]]
    page = await store.find(Query(filter=Filter(states=frozenset({State.QUEUED}), priority=2)))
    assert [job.id for job in page.jobs] == [*others, later[1]]
    page = await store.find(Query(filter=Filter(states=frozenset({State.QUEUED}), priority=0)))
    assert [job.id for job in page.jobs] == [later[0]]
