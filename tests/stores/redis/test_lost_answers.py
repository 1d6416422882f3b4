"""A server that dies, hangs or loses scripts: a call took effect or not, and a retry is safe."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis_servers import REDIS, Proxy, connect, fresh, keys_of, need_redis, private

from daybreak.core.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from daybreak.core.model import Done, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import accept_all, assert_sound, follow, jobs_of, spec

QUICK = timedelta(seconds=5)


def ends(leases):
    return [settle(lease, Done(b"1"), chance=0.5, by=lease.worker) for lease in leases]


@pytest.fixture
async def through():
    """A store, and the proxy between it and the server."""
    need_redis()
    with fresh() as namespace:
        async with Proxy(REDIS) as proxy, RedisStore(proxy.url, namespace=namespace, timeout=QUICK) as store:
            yield store, proxy


async def test_an_answer_lost_after_the_commit_raises_outcome_unknown_and_the_retry_is_safe(through):
    store, proxy = through
    jobs = await accept_all(store, 6, now=None)
    claim = Claim(worker="w1", limit=3, call="c1")
    first = (await store.exchange(Exchange(claim=claim))).leases
    wanted = Exchange(settle=ends(first), insert=[spec()], claim=replace(claim, call="c2"))
    proxy.swallow()
    with pytest.raises(OutcomeUnknown):
        await store.exchange(wanted)
    again = await store.exchange(replace(wanted, claim=replace(claim, call="c2", repeats=True)))
    assert again.settled == [True] * 3
    assert again.inserted[0].verdict == "duplicate"
    assert [lease.job for lease in again.leases] == jobs[3:]
    assert [(lease.attempt, lease.fence) for lease in again.leases] == [(1, 1)] * 3
    await assert_sound(store)


async def test_an_insert_whose_answer_was_lost_is_one_job(through):
    store, proxy = through
    await accept_all(store, 1)
    job = spec()
    proxy.swallow()
    with pytest.raises(OutcomeUnknown):
        await store.insert([job])
    [again] = await store.insert([job])
    assert (again.verdict, again.same) == ("duplicate", "id")
    assert len(await jobs_of(store)) == 2


async def test_reads_are_retried_automatically(through):
    store, proxy = through
    [job] = await accept_all(store, 1)
    proxy.swallow()
    assert [found.id for found in await store.get([job])] == [job]


async def test_a_server_that_does_not_answer_is_given_up_in_time():
    need_redis()
    with fresh() as namespace:
        soon = timedelta(milliseconds=200)
        async with Proxy(REDIS) as proxy, RedisStore(proxy.url, namespace=namespace, timeout=soon) as store:
            proxy.hold()
            with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.2 s"):
                await store.insert([spec()])
            proxy.let_go()


async def test_a_refused_connection_is_unavailable_and_never_unknown(through):
    store, proxy = through
    proxy._server.close()
    proxy.cut()
    await asyncio.sleep(0.05)
    with pytest.raises(StoreUnavailable) as raised:
        await store.insert([spec()])
    assert not isinstance(raised.value, OutcomeUnknown)
    with pytest.raises(StoreUnavailable):
        await store.get(["nobody"])


async def test_scripts_flushed_under_load_are_sent_again():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store:
            with connect() as connection:
                for _ in range(20):
                    connection.call(("SCRIPT", "FLUSH"))
                    answers = await asyncio.gather(*(store.insert([spec()]) for _ in range(5)))
                    assert [answer.verdict for [answer] in answers] == ["new"] * 5
                    leases = (await store.exchange(Exchange(claim=Claim(worker="w", limit=5)))).leases
                    connection.call(("SCRIPT", "FLUSH"))
                    assert (await store.exchange(Exchange(settle=ends(leases)))).settled == [True] * 5
                    connection.call(("SCRIPT", "FLUSH"))
                    assert [a.verdict for a in store.insert_now([spec()])] == ["new"]
            await assert_sound(store)


async def test_a_server_killed_in_the_middle_loses_nothing_that_was_acknowledged(tmp_path):
    with private(tmp_path) as server:
        async with RedisStore(server.url, timeout=QUICK) as store:
            accepted: list[str] = []
            unknown = 0

            async def submit() -> None:
                nonlocal unknown
                for _ in range(4000):
                    jobs = [spec() for _ in range(3)]
                    try:
                        await store.insert(jobs)
                        accepted.extend(job.id for job in jobs)
                    except OutcomeUnknown:
                        unknown += 1
                        again = await repeat(lambda jobs=jobs: store.insert(jobs))
                        assert {answer.verdict for answer in again} in ({"new"}, {"duplicate"})
                        accepted.extend(job.id for job in jobs)
                        return
                    except StoreUnavailable:
                        return

            async def kill() -> None:
                while len(accepted) < 60:  # noqa: ASYNC110 - what is counted rings no bell
                    await asyncio.sleep(0.001)
                server.kill()
                await asyncio.sleep(0.05)
                server.start()

            await asyncio.gather(submit(), submit(), submit(), kill())
            assert unknown > 0
            assert all(found is not None for found in await repeat(lambda: store.get(accepted)))
            await assert_sound(store, accepted)


async def test_an_exchange_cut_by_a_kill_is_repeated_without_loss(tmp_path):
    with private(tmp_path) as server:
        async with RedisStore(server.url, timeout=QUICK) as store:
            await accept_all(store, 40, now=None)
            claim = Claim(worker="w1", limit=10, call="c0")
            leases = (await store.exchange(Exchange(claim=claim))).leases
            wanted = Exchange(settle=ends(leases), claim=replace(claim, call="c1"))
            asked = asyncio.create_task(store.exchange(wanted))
            await asyncio.sleep(0)  # it is on its way
            server.kill()
            server.start()
            try:
                answer = await asked
            except OutcomeUnknown:
                repeated = replace(wanted, claim=replace(claim, call="c1", repeats=True))
                answer = await repeat(lambda: store.exchange(repeated))
            assert answer.settled == [True] * 10
            assert len(answer.leases) == 10
            assert all(lease.attempt == 1 for lease in answer.leases)
            states = [job.state for job in await jobs_of(store)]
            assert (states.count(State.COMPLETED), states.count(State.RUNNING)) == (10, 10)
            await assert_sound(store)


async def repeat(call):
    for _ in range(200):
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.02)
    raise AssertionError("the server did not come back")


async def test_memory_that_is_full_refuses_and_nothing_is_half_written(tmp_path):
    with private(tmp_path, "--appendonly", "no", "--maxmemory", "4mb") as server:
        async with RedisStore(server.url, timeout=QUICK) as store:
            leases = []

            async def fill() -> None:
                for n in range(2000):
                    await store.insert([spec(args=bytes(n % 251 for n in range(3000)))])
                    if n % 10 == 0:
                        leases.extend((await store.exchange(Exchange(claim=Claim(worker="w", limit=2)))).leases)

            with pytest.raises(StoreFull, match="maxmemory"):
                await fill()
            with connect(server.url) as connection:  # the server may free buffers: keep it full
                connection.call(("CONFIG", "SET", "maxmemory", "1mb"))
            before = (await follow(store))[0], await jobs_of(store), await store.count()
            for asked in (
                lambda: store.insert([spec()]),
                lambda: store.insert([spec(key="k", unique="u")]),
                lambda: store.exchange(Exchange(settle=ends(leases), claim=Claim(worker="w", limit=9))),
                store.advance,
            ):
                with pytest.raises(StoreFull):
                    await asked()
            assert ((await follow(store))[0], await jobs_of(store), await store.count()) == before
            with connect(server.url) as connection:
                connection.call(("CONFIG", "SET", "maxmemory", "100mb"))
            assert (await store.exchange(Exchange(settle=ends(leases)))).settled == [True] * len(leases)
            await assert_sound(store)


async def test_a_replica_takes_no_writes_and_says_so(tmp_path):
    with private(tmp_path) as server:
        async with RedisStore(server.url, timeout=QUICK) as store:
            await accept_all(store, 2, now=None)
            with connect(server.url) as connection:
                connection.call(("REPLICAOF", "127.0.0.1", "1"))
                with pytest.raises(StoreUnavailable) as raised:
                    await store.insert([spec()])
                assert not isinstance(raised.value, OutcomeUnknown)
                connection.call(("REPLICAOF", "NO", "ONE"))
            await accept_all(store, 1, now=None)
            await assert_sound(store)


async def test_a_busy_server_says_what_it_is_busy_with(tmp_path):
    with private(tmp_path, "--lua-time-limit", "50") as server:
        async with RedisStore(server.url, timeout=QUICK) as store:
            await accept_all(store, 1, now=None)
            async with RedisStore(server.url, namespace="other") as other:
                looping = asyncio.create_task(other._client.command("EVAL", "while true do end", 0))
                await asyncio.sleep(0.2)
                with pytest.raises(StoreUnavailable, match="busy"):
                    await store.insert([spec()])
                with connect(server.url) as connection:
                    connection.call(("SCRIPT", "KILL"))
                await looping
            await accept_all(store, 1, now=None)


async def test_nothing_unfinished_expires_by_itself():
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store:
            await accept_all(store, 5, now=None, key=None, owner="ann")
            await store.exchange(Exchange(claim=Claim(worker="w", limit=2)))
            with connect() as connection:
                keys = keys_of(connection, namespace)
                assert len(keys) > 5
                assert {connection.call(("TTL", key)) for key in keys} == {-1}
