"""Resources under many clients at once, and cases that only the scripts of this store could get wrong."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest
from redis_servers import REDIS, connect, fresh, keys_of, need_redis

from daybreak.core.model import Done, HandedBack, Settlement, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Exchange, job_topic
from daybreak.stores.memory import MemoryStore
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import (
    MINUTE,
    NOON,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_jobs,
    claim_one,
    follow,
    get_job,
    jobs_of,
    needs,
    provide,
    set_gate,
    settle,
    spec,
    state_of,
    verdicts,
)

PATIENCE = timedelta(seconds=30)
ODD = ("1:r", "r", "r:", "2:1:r", "é", "z", "\0", "a\nb", "{r}")


@pytest.fixture
def namespace():
    need_redis()
    with fresh() as name:
        yield name


@pytest.fixture
async def store(namespace):
    async with RedisStore(REDIS, namespace=namespace) as store:
        yield store


# -- many clients ------------------------------------------------------------------------------------------------------


async def work_off(namespace, jobs, clients=8):
    """Clients that claim, settle, and settle and claim in one, as it comes, until all of so many jobs are done."""
    left = jobs

    async def work(name, chance):
        nonlocal left
        async with RedisStore(REDIS, namespace=namespace) as client:
            held = []
            while left:
                chance.shuffle(held)
                ending, held = held[:2], held[2:]
                ends = [settlement_of(lease, Done(), chance=0.5, by=name) for lease in ending]
                claim = Claim(worker=name, limit=chance.randint(1, 4)) if chance.random() < 0.7 else None
                answer = await client.exchange(Exchange(settle=ends, claim=claim))
                assert all(answer.settled)
                left -= len(ends)
                held += answer.leases

    async with asyncio.timeout(PATIENCE.total_seconds()):
        await asyncio.gather(*(work(f"w{n}", random.Random(n)) for n in range(clients)))


async def most_used(store):
    """The highest number of used slots of each resource: events are in the order of commits."""
    needed = {job.id: job.spec.options.resources for job in await jobs_of(store)}
    used, most = Counter(), Counter()
    for event in (await follow(store))[0]:
        by = {State.RUNNING: 1, State.COMPLETED: -1}.get(event.state, 0)
        for need in needed[event.job]:
            used[need.resource] += by * need.slots
            most[need.resource] = max(most[need.resource], used[need.resource])
    assert not any(used.values())
    return most


async def test_three_slots_are_three_leases_at_most_for_eight_clients(namespace, store):
    await provide(store, "plecs", slots=3, now=None)
    await accept_all(store, 300, resources=needs("plecs"), now=None)
    await work_off(namespace, 300)
    assert await most_used(store) == {"plecs": 3}
    [usage] = await store.usage()
    assert (usage.used, usage.waiting) == (0, 0)
    await assert_sound(store)


async def test_a_mix_of_two_resources_is_all_or_none_for_eight_clients(namespace, store):
    await provide(store, "a", slots=2, now=None)
    await provide(store, "b", slots=3, now=None)
    mix = (needs("a"), needs("b"), needs("a", "b"), needs(b=2), needs(a=2, b=1), ())
    await store.insert([spec(resources=mix[n % 6], priority=n % 5, task=f"t{n % 2}") for n in range(300)])
    await work_off(namespace, 300)
    most = await most_used(store)
    assert most["a"] <= 2
    assert most["b"] <= 3
    assert [(usage.used, usage.waiting) for usage in await store.usage()] == [(0, 0), (0, 0)]
    await assert_sound(store)


async def test_one_of_eight_holds_the_lock_under_an_ever_higher_fence(namespace, store):
    await provide(store, "lock", slots=1, now=None)

    async def hold(who):
        async with RedisStore(REDIS, namespace=namespace) as client:
            for _ in range(10):
                job = await accept(client, "lock", queue="locks", resources=needs("lock"), holder=who, now=None)
                await granted(client, job)
                assert (await client.exchange(Exchange(settle=[end_of(await get_job(client, job))]))).settled == [True]

    async with asyncio.timeout(PATIENCE.total_seconds()):
        await asyncio.gather(*(hold(f"w{n}") for n in range(8)))
    assert await most_used(store) == {"lock": 1}
    fences = [event.fence for event in (await follow(store))[0] if event.kind == "started"]
    assert fences == list(range(1, 81))
    await assert_sound(store)


async def granted(client, job):
    watch = client.watch([job_topic(job)])
    try:
        while await state_of(client, job) is State.BLOCKED:
            assert await watch.wait(PATIENCE)
    finally:
        watch.close()


def end_of(held):
    return Settlement(seq=held.seq, job=held.id, fence=held.fence, state=State.COMPLETED, attempt=held.attempt)


# -- storage -----------------------------------------------------------------------------------------------------------


async def test_names_of_any_letters_stay_apart(store):
    for name in ODD:
        await provide(store, name, slots=1)
        await accept_all(store, 2, resources=needs(name))
    first = await claim_jobs(store, 50)
    assert {lease.spec.options.resources[0].resource for lease in first} == set(ODD)
    assert [(one.name, one.used, one.waiting) for one in await store.usage()] == [(name, 1, 1) for name in sorted(ODD)]
    for lease in first:
        await settle(store, lease)
    assert len(await claim_jobs(store, 50)) == len(ODD)
    await assert_sound(store)


async def test_what_nobody_set_up_and_nobody_uses_leaves_nothing_behind(namespace, store):
    await provide(store, "plecs", slots=1)
    await accept_all(store, 3, resources=needs("other", "plecs"))
    for _ in range(3):
        [lease] = await claim_jobs(store, 9)
        await settle(store, lease)
    await provide(store, "plecs")
    with connect() as connection:
        left = {key.decode().split(":")[1] for key in keys_of(connection, namespace)}
        assert not left & {"gauge", "looks", "blocked", "waits"}
        assert connection.call(("HGET", f"{{{namespace}}}:meta", "look")) is None


async def test_the_long_history_of_a_job_that_needs_something_folds(store):
    job = await accept(store, resources=needs("plecs"))
    for _ in range(210):
        await settle(store, await claim_one(store), HandedBack())
    history = await store.history(job)
    assert history[1].kind == "folded"
    lease = await claim_one(store)
    assert lease.spec.options.resources == needs("plecs")
    assert await settle(store, lease)
    await assert_sound(store)


async def test_the_fast_path_does_not_overtake_waiting_jobs(store):
    await accept(store, resources=needs("plecs"))
    await provide(store, "plecs", slots=1, max_waiting=1)
    await accept(store, resources=needs("plecs"))
    assert len(await claim_jobs(store, 9)) == 1
    assert await verdicts(store, spec(resources=needs("plecs"))) == ["full"]


# -- moving ------------------------------------------------------------------------------------------------------------


async def test_waiting_jobs_are_adopted_as_the_memory_store_does_it(store):
    async with MemoryStore() as source, MemoryStore() as expected:
        await provide(source, "plecs", slots=0)
        await accept_all(source, 2, resources=needs("plecs"))
        assert await claim_jobs(source) == []
        held = await accept(source, "lock", resources=needs("lock", "plecs"), holder="ann", hold_for=MINUTE)
        await amend(source, "suspend", await accept(source, resources=needs("plecs")))
        jobs = [job.id for job in reversed(await jobs_of(source))]
        moved = await source.pack(jobs)
        for target in (expected, store):
            await set_gate(target, "plecs", state="open", shut_for=MINUTE, probes=1)
        assert await store.adopt(moved, by="ann", now=NOON) == await expected.adopt(moved, by="ann", now=NOON)
        for target in (expected, store):
            await target.advance(now=NOON + MINUTE)
        assert await store.get(jobs) == await expected.get(jobs)
        assert await store.usage() == await expected.usage()
        assert [await store.history(job) for job in jobs] == [await expected.history(job) for job in jobs]
        assert await store.pack(jobs) == await expected.pack(jobs)
        assert await state_of(store, held) is State.RUNNING
        await assert_sound(store)
