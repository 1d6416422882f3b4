"""Logs of jobs on every store that processes can share: written by a worker, swept, moved, and waking nobody."""

from __future__ import annotations

import contextlib

import pytest
import server_tasks
from server_stores import place_on

from daybreak.client.client import Client
from daybreak.client.job_logs import INDEX_PARTS, index_put, log_kind, part_name, read_logs, sweep_logs
from daybreak.client.store_migration import Mover
from daybreak.core.model import Done, Put
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores import store_for
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    with contextlib.ExitStack() as around:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/jobs.db"
        else:
            yield around.enter_context(place_on(request.param))


@contextlib.asynccontextmanager
async def opened(url):
    store = store_for(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def ended_job(store) -> str:
    job = await Client(store).submit("t")
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(b"7"), chance=0.5, by="w")]))
    return job


def log_of(job: str, text: bytes = b"printed\n") -> list[Put]:
    return [index_put(job), Put(kind=log_kind(job), name=part_name(1, 1, 0), value=text)]


async def sweep_all(store) -> None:
    for part in range(INDEX_PARTS):
        await sweep_logs(store, part, 0.5)


def test_a_worker_keeps_what_its_jobs_print(url):
    app = server_tasks.app
    app.use(url)
    try:
        with app.worker(processes=1):
            jobs = [server_tasks.say.submit("sync"), server_tasks.asay.submit("async")]
            for job in jobs:
                job.result(timeout="60s")
        assert [job.logs().text for job in jobs] == ["said sync\n" * 3, "said async\n" * 3]
    finally:
        app.close()


async def test_only_the_logs_of_jobs_that_are_gone_are_swept(url):
    async with opened(url) as store:
        kept = await ended_job(store)
        await store.put([*log_of(kept), *log_of("gone")])
        await sweep_all(store)
        assert (await read_logs(store, kept)).text == "printed\n"
        assert await store.records(log_kind("gone")) == []
        assert await store.records(index_put("gone").kind, "gone") == []


async def test_removing_a_job_deletes_its_log_and_a_refused_removal_does_not(url):
    async with opened(url) as store:
        client = Client(store)
        ended, waiting = await ended_job(store), await client.submit("t")
        await store.put([*log_of(ended), *log_of(waiting)])
        assert (await client.remove(ended)).verdict == "done"
        assert (await client.remove(waiting)).verdict == "refused"
        assert await store.records(log_kind(ended)) == []
        assert (await client.logs(waiting)).text == "printed\n"


async def test_a_move_carries_the_logs(url):
    async with opened(url) as source:
        target = MemoryStore()
        job = await ended_job(source)
        await source.put(log_of(job))
        assert (await Mover(source, target, RealWorld(), by="mover").run()).moved == 1
        assert (await read_logs(target, job)).text == "printed\n"
        assert await target.records(index_put(job).kind, job) != []
        assert await source.records(log_kind(job)) == []


async def test_on_redis_a_log_does_not_count_as_changed_settings():
    with place_on("redis") as url:
        async with opened(url) as store:

            async def settings() -> object:
                return await store._client.command("HGET", store._client.prefix + b"meta", "set")

            await store.put([Put(kind="note", name="n", value=b"1")])
            before = await settings()
            await store.put(log_of("job"))
            assert await settings() == before
            await store.put([Put(kind="note", name="n", value=b"2")])
            assert await settings() != before
