"""What is stored: values of any size, exact numbers, and nothing after a purge."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis_servers import REDIS, connect, fresh, need_redis

from daybreak.core.errors import BadInput, TooLarge
from daybreak.core.model import Done, Options, Put
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Amend, Beat, Claim, Exchange, Purge, Query, Reap
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import (
    DAY,
    NOON,
    accept,
    accept_all,
    assert_sound,
    beat,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    find_all,
    get_job,
    run_one,
    settle,
    spec,
)

LARGE = b"daybreak " * 5000


@pytest.fixture
async def store():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as made:
            yield made


async def test_large_values_are_kept_small_and_come_back_whole(store):
    job = await accept(store, args=LARGE)
    lease = await claim_one(store)
    assert lease.spec.args == LARGE
    await beat(store, lease, checkpoint=LARGE)
    assert (await get_job(store, job)).checkpoint == LARGE
    await settle(store, lease, Done(LARGE))
    [record] = await store.put([Put(kind="note", name="n", value=LARGE)])
    assert (await store.records("note"))[0] == record
    assert (await get_job(store, job)).result == LARGE
    with connect() as connection:
        kept = connection.call(("HGET", f"{{{store.namespace}}}:result", "0000000000000001"))
    assert len(kept) < len(LARGE) / 10


async def test_an_empty_result_is_not_none(store):
    job = await accept(store)
    await run_one(store, Done(b""))
    assert (await get_job(store, job)).result == b""


async def test_sequence_numbers_beyond_what_fourteen_digits_can_tell_stay_exact(store):
    with connect() as connection:
        connection.call(("HSET", f"{{{store.namespace}}}:meta", "seq", "999999999999990"))
    jobs = await accept_all(store, 30)
    single = [await accept(store) for _ in range(3)]
    assert await find_all(store) == [*reversed(single), *reversed(jobs)]
    leases = await claim_jobs(store, 40)
    assert [lease.seq for lease in leases] == list(range(999_999_999_999_991, 999_999_999_999_991 + 33))
    assert all([await settle(store, lease) for lease in leases])
    await assert_sound(store, jobs)


async def test_aging_tells_microseconds_apart(store):
    await configure(store, discipline="aging", patience=timedelta(microseconds=1))
    later = await accept(store, priority=3, now=NOON)
    sooner = await accept(store, priority=1, now=NOON + timedelta(microseconds=1))
    assert await claim_ids(store, 2) == [sooner, later]


async def test_jobs_of_many_kinds_in_one_call_keep_their_own(store):
    specs = [
        spec(task=f"t{n % 3}", queue=f"q{n % 2}", priority=n % 4, by=f"user{n % 5}", keep_failed=DAY if n % 2 else None)
        for n in range(60)
    ]
    answers = await store.insert(specs, now=NOON)
    assert [answer.seq for answer in answers] == list(range(1, 61))
    found = await store.get([each.id for each in specs])
    assert [job.spec for job in found] == specs
    history = await store.history(specs[7].id)
    assert (history[0].by, history[0].task, history[0].queue) == ("user2", "t1", "q1")


async def test_more_than_one_script_can_hold_goes_all_the_same(store):
    options = Options(timeout=timedelta(minutes=1))
    specs = [replace(spec(), options=options) for _ in range(1700)]
    assert {answer.verdict for answer in await store.insert(specs)} == {"new"}
    leases = (await store.exchange(Exchange(claim=Claim(worker="w", limit=1500)))).leases
    assert [lease.spec for lease in leases] == specs[:1500]
    ends = [settlement_of(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]
    answer = await store.exchange(Exchange(settle=ends, claim=Claim(worker="w", limit=500)))
    assert (answer.settled, len(answer.leases)) == ([True] * 1500, 200)
    assert all(kept.held for kept in await store.extend([Beat(seq=each.seq, fence=1) for each in answer.leases]))
    page = await store.find(Query(limit=1000))
    assert [job.id for job in page.jobs] == [each.id for each in reversed(specs)][:1000]
    assert sum(tally.n for tally in await store.count()) == 1700


async def test_what_was_purged_leaves_nothing_behind(store):
    await accept_all(store, 20, keep_completed=DAY, owner="ann", run="r", expires_in=DAY)
    await accept(store, key="k", unique="u", keep_completed=DAY)
    for _ in range(21):
        await run_one(store, Done(b"1"))
    for _ in range(30):
        await store.purge(Purge(events_for=DAY, keys_for=DAY), now=NOON + 9 * DAY)
        await store.purge(Purge(events_for=DAY, keys_for=DAY), now=NOON + 19 * DAY)
    with connect() as connection:
        _, keys = connection.call(("SCAN", "0", "MATCH", f"{{{store.namespace}}}:*", "COUNT", 1_000_000))
    left = {key.decode().partition("}:")[2] for key in keys}
    assert left == {"meta", "lane", "lanes:default", "total"}


async def test_names_that_are_too_long_are_refused_before_anything_is_written(store):
    long = "x" * 20_000
    for asked in (
        lambda: store.insert([spec(), spec(id=long)]),
        lambda: store.insert([spec(), spec(queue=long)]),
        lambda: store.insert([spec(), spec(key=long)]),
        lambda: store.insert([spec(), spec(by=long)]),
        lambda: store.exchange(Exchange(insert=[spec()], claim=Claim(worker=long))),
        lambda: store.exchange(Exchange(insert=[spec()], claim=Claim(worker="w", call=long))),
        lambda: store.reap(Reap(worker=long, watched_for=DAY)),
        lambda: store.amend(Amend(action="cancel", by=long, jobs=("x",))),
    ):
        with pytest.raises(TooLarge):
            await asked()
    assert await find_all(store) == []


async def test_an_invalid_priority_is_refused_before_anything_is_written(store):
    for priority in (-1, 11):
        with pytest.raises(BadInput, match="priority"):
            await store.insert([spec(), spec(priority=priority)])
    assert await find_all(store) == []
