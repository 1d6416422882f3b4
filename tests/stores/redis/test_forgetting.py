"""A server that lost its last writes assigns the same seqs and fences again: an old lease must never be taken for that
of another job."""

from __future__ import annotations

import pytest
from redis_servers import REDIS, connect, fresh, keys_of, need_redis

from daybreak.core.model import Done, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import NOON, OOPS, SECOND, accept, claim_one, exchange, get_job, spec


@pytest.fixture
async def two():
    """Two stores on one namespace; and how to make the server forget it."""
    need_redis()
    with fresh() as namespace:

        def forget():
            with connect() as connection:
                connection.call(("DEL", *keys_of(connection, namespace)))

        async with RedisStore(REDIS, namespace=namespace) as one, RedisStore(REDIS, namespace=namespace) as other:
            yield one, other, forget


async def held_twice(two):
    """A lease, and the lease of another job that got the same seq and fence after the server lost its data."""
    one, other, forget = two
    await accept(one, now=NOON)
    old = await claim_one(one, worker="old", now=NOON)
    forget()
    await accept(one, now=NOON)
    new = await claim_one(other, worker="new", now=NOON)
    assert (old.seq, old.fence) == (new.seq, new.fence)
    assert old.job != new.job
    return old, new


@pytest.mark.parametrize("outcome", [Done(b"old"), OOPS])
@pytest.mark.parametrize("more", [False, True])
async def test_an_outcome_is_never_taken_for_that_of_another_job(two, outcome, more):
    one, other, _ = two
    old, new = await held_twice(two)
    late = settle(old, outcome, chance=0.5, by="old")
    # With more in it the exchange takes the general path.
    answer = await exchange(one, settle=[late], insert=[spec()] if more else [], now=NOON + SECOND)
    assert answer.settled == [False]
    assert (await get_job(one, new.job)).state is State.RUNNING
    assert await one.get([old.job]) == [None]
    own = settle(new, Done(b"new"), chance=0.5, by="new")
    assert (await exchange(other, settle=[own], now=NOON + SECOND)).settled == [True]
    assert (await get_job(one, new.job)).result == b"new"
    assert (await exchange(one, settle=[late], now=NOON + SECOND)).settled == [False]


async def test_a_heartbeat_is_never_taken_for_that_of_another_job(two):
    one, other, _ = two
    old, new = await held_twice(two)
    beat = Beat(seq=old.seq, fence=old.fence, lease_for=SECOND, checkpoint=b"old", job=old.job)
    [kept] = await one.extend([beat], now=NOON)
    assert not kept.held
    assert (await get_job(one, new.job)).checkpoint is None
    [kept] = await other.extend([Beat(seq=new.seq, fence=new.fence, job=new.job)], now=NOON)
    assert kept.held
