"""A stopped server: calls end with the caller's patience, and a late answer is never taken for that of another call."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from redis_servers import REDIS, Proxy, fresh, need_redis

from daybreak.client.client import Client
from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.stores.redis import RedisStore
from daybreak.system import patience
from daybreak.testing.contract.builders import jobs_of, spec

SHORT = timedelta(milliseconds=400)
FAR = 8  # seconds; less than the reply timeout of 10 s


async def test_every_call_ends_with_the_callers_patience(freezing):
    async with RedisStore(freezing.url) as store:
        client = Client(store, patience=SHORT)
        job = await client.submit("t")
        freezing.freeze()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.\d+ s"):
            await client.submit("t")
        for call in (lambda: client.cancel(job), client.find, lambda: client.submit_many([client.spec("t")])):
            with pytest.raises(StoreUnavailable):
                await call()
        assert time.monotonic() - began < FAR
        freezing.thaw()
        assert (await Client(store).get(job)).id == job
        await Client(store).submit("t")


async def test_a_thread_gives_up_as_well_and_goes_on_at_once_afterwards(freezing):
    async with RedisStore(freezing.url) as store:
        await asyncio.to_thread(store.insert_now, [spec()])

        def insert():
            with patience.within(SHORT.total_seconds()):
                return store.insert_now([spec()])

        freezing.freeze()
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.\d+ s"):
            await asyncio.to_thread(insert)
        assert not store._blocking_client._connection.is_open, "or its late answer would be taken for the next"
        freezing.thaw()
        late = spec()
        [answer] = await asyncio.to_thread(store.insert_now, [late])
        assert answer.job == late.id
        assert late.id in [job.id for job in await jobs_of(store)]


async def test_a_call_behind_one_that_hangs_reports_that_it_was_not_sent(freezing):
    async with RedisStore(freezing.url) as store:
        client = Client(store, patience=SHORT)
        await client.submit("t")
        freezing.freeze()
        long = asyncio.create_task(client._submit(client.spec("t"), 2.0))
        await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable, match="nothing was sent") as raised:
            await client.submit("t")
        assert not isinstance(raised.value, OutcomeUnknown)
        freezing.thaw()
        await long


async def test_opening_is_repeated_when_its_answer_is_cut():
    need_redis()
    with fresh() as namespace:
        async with Proxy(REDIS) as proxy:
            proxy.swallow()
            async with RedisStore(proxy.url, namespace=namespace) as store:
                assert await jobs_of(store) == []
