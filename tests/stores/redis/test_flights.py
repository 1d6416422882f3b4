"""The cache on Redis: what is stored of it, once and for as long as it is used; and claims among flights."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis_servers import REDIS, connect, fresh, keys_of, need_redis

from daybreak.core.model import Caching, Done, State
from daybreak.store.protocol import CacheQuery, Purge, Uncache
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import (
    DAY,
    HOUR,
    NOON,
    SECOND,
    accept,
    amend,
    assert_sound,
    claim_ids,
    get_job,
    needs,
    provide,
    run_one,
    spec,
)

LARGE = b"daybreak " * 5000


@pytest.fixture
async def store():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as made:
            yield made


def flying(flight="f", *, ttl=None, size=None, **fields):
    return spec(flight=flight, flight_parts={"arguments": flight}, cache=Caching(ttl=ttl, size=size), **fields)


async def submit(store, *specs, now=NOON):
    return [answer.job for answer in await store.insert(specs, now=now)]


def stored(store, command, name, *args):
    with connect() as connection:
        return connection.call((command, f"{{{store.namespace}}}:{name}", *args))


async def test_a_thousand_jobs_keep_one_copy_of_their_result(store):
    leader, *followers = await submit(store, *(flying() for _ in range(150)))
    await run_one(store, Done(LARGE))
    hits = await submit(store, *(flying() for _ in range(850)))
    assert {job.state for job in await store.get([leader, *followers, *hits])} == {State.COMPLETED}
    assert stored(store, "HLEN", "result") == 0
    assert stored(store, "HLEN", "computed") == 1
    assert (await get_job(store, hits[-1])).result == LARGE


async def test_a_result_counts_with_its_own_size_though_it_is_compressed(store):
    await submit(store, flying())
    await run_one(store, Done(LARGE))
    [entry] = (await store.cached(CacheQuery())).entries
    assert entry.size == len(LARGE)
    with connect() as connection:
        [value] = connection.call(("HVALS", f"{{{store.namespace}}}:computed"))
    assert len(value) < len(LARGE) / 10


async def test_nothing_of_a_flight_expires_by_itself(store):
    await submit(store, flying("f", ttl=HOUR), flying("f"), flying("g", ttl=HOUR))
    await run_one(store, Done(b"1"))
    with connect() as connection:
        keys = keys_of(connection, store.namespace)
        assert {connection.call(("TTL", key)) for key in keys} == {-1}


async def test_what_was_purged_and_forgotten_leaves_nothing_behind(store):
    kept = {"keep_completed": DAY, "keep_failed": DAY}
    for flight, ttl in (("f", None), ("g", HOUR), ("h", HOUR), ("i", None)):
        await submit(store, *(flying(flight, ttl=ttl, **kept) for _ in range(3)))
        await run_one(store, Done(b"1"))
        await submit(store, flying(flight, ttl=ttl, **kept))
    await submit(store, flying("f", size=1, **kept))
    await store.uncache(Uncache(flights=("f", "h")), now=NOON)
    leader, follower = await submit(store, flying("j", **kept), flying("j", **kept))
    await amend(store, "cancel", leader, follower)
    for now in (NOON + 9 * DAY, NOON + 19 * DAY):
        for _ in range(30):
            await store.purge(Purge(events_for=DAY, keys_for=DAY), now=now)
    with connect() as connection:
        left = {key.decode().partition("}:")[2] for key in keys_of(connection, store.namespace)}
    known = {"entry", "computed", "flight", "known:work", "used:work", "room"}  # of flight i, which has no limit
    assert left == {"meta", "lane", "lanes:default", "total"} | known
    assert stored(store, "HKEYS", "flight") == [b"i"]
    await store.uncache(Uncache(), now=NOON + 19 * DAY)
    with connect() as connection:
        left = {key.decode().partition("}:")[2] for key in keys_of(connection, store.namespace)}
    assert left == {"meta", "lane", "lanes:default", "total"}


@pytest.mark.parametrize("options", [{}, {"resources": needs("plecs")}])
async def test_a_leader_that_a_claim_finds_expired_takes_no_other_job_with_it(store, options):
    """A claim removes what it took from the head of a lane; the follower comes into that lane meanwhile."""
    await provide(store, "plecs", slots=10)
    first = await accept(store, priority=2)
    expired = flying(expires_in=SECOND, priority=5, **options)
    follower = flying(priority=5, **options)
    await submit(store, expired, follower)
    later = [await accept(store, priority=5 + n) for n in range(3)]
    now = NOON + timedelta(minutes=1)
    taken = await claim_ids(store, 3, now=now)
    taken += await claim_ids(store, 10, now=now)
    assert sorted(taken) == sorted([first, follower.id, *later])
    assert (await get_job(store, expired.id)).state is State.FAILED
    await assert_sound(store)
