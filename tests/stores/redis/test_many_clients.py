"""Many clients at once: no limit is exceeded, no event is seen twice or missed, no wake-up is lost."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta

import pytest
from redis_servers import REDIS, Proxy, fresh, need_redis

from daybreak.core.errors import BadInput
from daybreak.core.model import Done, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import EVENTS_TOPIC, Claim, Exchange, InsertsNow, Verdict, job_topic, work_topic
from daybreak.stores.redis import RedisStore
from daybreak.testing.contract.builders import accept, accept_all, assert_sound, configure, follow, jobs_of, spec

PATIENCE = timedelta(seconds=5)


@pytest.fixture
def namespace():
    need_redis()
    with fresh() as name:
        yield name


def stores(namespace, count):
    return [RedisStore(REDIS, namespace=namespace) for _ in range(count)]


async def test_four_writers_and_a_follower_who_sees_each_event_once(namespace):
    writers = stores(namespace, 4)
    async with RedisStore(REDIS, namespace=namespace) as reader:
        seen, cursor = await follow(reader)
        going = asyncio.Event()
        going.set()

        async def write(store, name):
            async with store:
                for _ in range(25):
                    await store.insert([spec() for _ in range(3)])
                    asked = Exchange(insert=[spec(delay=timedelta())], claim=Claim(worker=name, limit=4))
                    leases = (await store.exchange(asked)).leases
                    ends = [settle(lease, Done(), chance=0.5, by=name) for lease in leases]
                    await store.exchange(Exchange(settle=ends))

        async def read():
            nonlocal seen, cursor
            while going.is_set():
                page = await reader.events(cursor, 7)
                seen, cursor = seen + page.events, page.cursor
                await asyncio.sleep(0)

        reading = asyncio.create_task(read())
        await asyncio.gather(*(write(store, f"w{n}") for n, store in enumerate(writers)))
        going.clear()
        await reading
        rest, _ = await follow(reader, cursor)
        seen += rest
        assert max(Counter((event.job, event.n) for event in seen).values()) == 1
        assert seen == (await follow(reader))[0]
        for job in await jobs_of(reader):
            assert [event for event in seen if event.job == job.id] == await reader.history(job.id)
        await assert_sound(reader)


async def test_max_running_is_never_exceeded_by_eight_clients(namespace):
    async with RedisStore(REDIS, namespace=namespace) as store:
        await configure(store, max_running=3)
        await accept_all(store, 60, now=None)
        most = 0

        async def work(client, name):
            nonlocal most
            async with client:
                while True:
                    leases = (await client.exchange(Exchange(claim=Claim(worker=name, limit=2)))).leases
                    running = sum(tally.n for tally in await client.count() if tally.state is State.RUNNING)
                    most = max(most, running)
                    ends = [settle(lease, Done(), chance=0.5, by=name) for lease in leases]
                    await client.exchange(Exchange(settle=ends))
                    if not any(tally.state is State.QUEUED for tally in await client.count()):
                        return

        await asyncio.gather(*(work(client, f"w{n}") for n, client in enumerate(stores(namespace, 8))))
        assert most == 3
        assert {job.state for job in await jobs_of(store)} == {State.COMPLETED}
        await assert_sound(store)


# -- callers without a loop --------------------------------------------------------------------------------------------


async def test_threads_that_submit_at_once_are_sent_together_and_each_gets_its_own_answer(namespace):
    async with RedisStore(REDIS, namespace=namespace) as store:
        assert isinstance(store, InsertsNow)
        known = await accept(store, now=None)
        answers = {}

        def submit(n):
            jobs = [spec(), spec(id=known), spec(priority=n % 3)]
            answers[n] = (jobs, store.insert_now(jobs))

        threads = [threading.Thread(target=submit, args=(n,)) for n in range(24)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        assert len(answers) == 24
        for jobs, found in answers.values():
            assert [answer.verdict for answer in found] == [Verdict.NEW, Verdict.DUPLICATE, Verdict.NEW]
            assert [answer.job for answer in found] == [job.id for job in jobs]
        await assert_sound(store)


async def test_one_bad_submission_sinks_no_other_thread(namespace):
    async with RedisStore(REDIS, namespace=namespace) as store:
        outcomes = []

        def submit(n):
            try:
                outcomes.append(store.insert_now([spec(id="x" * 70_000) if n % 4 == 0 else spec()])[0].verdict.value)
            except BadInput:
                outcomes.append("refused")

        threads = [threading.Thread(target=submit, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        assert Counter(outcomes) == {"new": 12, "refused": 4}


# -- waking ------------------------------------------------------------------------------------------------------------


async def test_a_change_by_another_process_wakes_at_once(namespace):
    async with RedisStore(REDIS, namespace=namespace) as idle, RedisStore(REDIS, namespace=namespace) as busy:
        [job] = await accept_all(busy, 1, now=None)
        for topic, change in (
            (work_topic("default"), lambda: accept(busy, now=None)),
            (EVENTS_TOPIC, lambda: accept(busy, now=None)),
            (job_topic(job), lambda: finish(busy)),
        ):
            watch = idle.watch([topic])
            while await watch.wait(timedelta(milliseconds=30)):
                pass
            await change()
            assert await watch.wait(PATIENCE), topic
            watch.close()


async def finish(store):
    leases = (await store.exchange(Exchange(claim=Claim(worker="w", limit=1)))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w") for lease in leases]))


async def test_after_a_break_everybody_is_woken_once_and_messages_come_again(namespace):
    async with (
        Proxy(REDIS) as proxy,
        RedisStore(REDIS, namespace=namespace) as busy,
        RedisStore(proxy.url, namespace=namespace) as idle,
    ):
        watch = idle.watch([work_topic("default")])
        while await watch.wait(timedelta(milliseconds=30)):
            pass
        proxy.cut()
        assert await watch.wait(PATIENCE)  # something may have been missed
        while await watch.wait(timedelta(milliseconds=30)):
            pass
        await accept(busy, now=None)
        assert await watch.wait(PATIENCE)
        watch.close()
