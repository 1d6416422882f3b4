"""Promise 10: a worker is known by the identity of one process start, whatever its host or process number."""

from __future__ import annotations

from daybreak.core.model import Done, Put
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import (
    LEASE,
    NOON,
    SECOND,
    accept,
    accept_all,
    beat,
    claim_jobs,
    claim_one,
    get_job,
    reap,
    settle,
)


class Identity:
    async def test_a_restarted_worker_is_not_given_what_the_one_before_it_claimed(self, store: Store) -> None:
        await accept_all(store, 2)
        [held] = await claim_jobs(store, 1, worker="host/1 start-a", call="c1")
        again = await claim_jobs(store, 1, worker="host/1 start-b", call="c1", repeats=True, now=NOON + SECOND)
        assert [lease.seq for lease in again] != [held.seq]
        assert await claim_jobs(store, 0, worker="host/1 start-a", call="c1", repeats=True, now=NOON + SECOND) == [held]

    async def test_each_lease_and_its_events_name_the_start_that_held_it(self, store: Store) -> None:
        job = await accept(store)
        await claim_one(store, worker="host/1 start-a")
        [taken] = await reap(store, now=NOON + LEASE)
        await settle(store, taken, now=NOON + LEASE)
        job = await accept(store)
        lease = await claim_one(store, worker="host/1 start-b", now=NOON + LEASE)
        assert (await get_job(store, job)).worker == "host/1 start-b"
        assert (await beat(store, lease, now=NOON + LEASE)).held
        events = await store.history(job)
        assert [event.by for event in events if event.kind == "started"] == ["host/1 start-b"]

    async def test_two_starts_have_two_records(self, store: Store) -> None:
        for start in ("a", "b"):
            await store.put([Put(kind="worker", name=f"host/1 start-{start}", value=start.encode())])
        found = await store.records("worker")
        assert {record.name: record.value for record in found} == {"host/1 start-a": b"a", "host/1 start-b": b"b"}


class Results:
    """Promise 12: a result is never lost for its size or content."""

    async def test_every_byte_of_a_result_comes_back(self, store: Store) -> None:
        job = await accept(store)
        result = bytes(range(256)) * 3
        await settle(store, await claim_one(store), Done(result))
        assert (await get_job(store, job)).result == result

    async def test_a_result_of_four_megabytes_comes_back_whole(self, store: Store) -> None:
        job = await accept(store)
        result = bytes(n * 31 % 251 for n in range(1 << 16)) * 64
        await settle(store, await claim_one(store), Done(result))
        assert (await get_job(store, job)).result == result

    async def test_an_empty_result_is_a_result(self, store: Store) -> None:
        job = await accept(store)
        await settle(store, await claim_one(store), Done(b""))
        assert (await get_job(store, job)).result == b""
