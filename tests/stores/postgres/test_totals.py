"""Totals are appended and folded. Folding changes no sum, however it was added and whoever adds meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import psycopg
from msgspec.structs import replace

from daybreak.core.model import Done, Failed, Failure, HandedBack, Retry
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Total
from daybreak.stores.postgres import PostgresStore, plain_path
from daybreak.testing.contract.builders import NOON, SECOND, amend, claim_jobs, counted, exchange, spec

LEASE = timedelta(minutes=1)
AT_ONCE = Retry(strategy="fixed", attempts=3, delay=timedelta())
OOPS = Failed(Failure(message="no", kinds=("OSError",)), ran=0.25)


def fold(store: PostgresStore) -> None:
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        db.execute(f"SELECT {store.address.schema}.fold_1()")


def rows(store: PostgresStore) -> int:
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        [(found,)] = db.execute(f"SELECT count(*) FROM {store.address.schema}.total").fetchall()
    return found


def submitted(totals: list[Total]) -> int:
    return sum(total.n for total in totals if total.what == "submitted")


async def play_story(store: PostgresStore) -> None:
    """Attempts of several kinds, settled together and one by one, in two lanes and of two priorities."""
    jobs = [spec(task, priority=5 + n % 2, retry=AT_ONCE) for task in ("a", "b") for n in range(6)]
    await store.insert(jobs, now=NOON)
    for turn, outcomes in enumerate(((Done(ran=1.0), OOPS, HandedBack()), (Done(ran=2.0), Done()), (Done(ran=0.5),))):
        now = NOON + (turn + 1) * SECOND
        leases = await claim_jobs(store, 12, now=now)
        settlements = [
            settle(lease, outcomes[n % len(outcomes)], chance=0.5, by="w1") for n, lease in enumerate(leases)
        ]
        done = [one for one in settlements if one.state == "completed"]
        await exchange(store, now=now, settle=done)
        for one in settlements:
            await exchange(store, now=now, settle=[one])  # repeats those of the first exchange
    await amend(store, "cancel", (await store.insert([spec("a")], now=NOON))[0].job)


async def test_folding_changes_no_total(store):
    await play_story(store)
    before = await store.totals()
    assert len(before) > 10
    fold(store)
    assert await store.totals() == before
    folded = rows(store)
    fold(store)
    assert (await store.totals(), rows(store)) == (before, folded)
    await play_story(store)
    twice = await store.totals()
    fold(store)
    assert (await store.totals(), rows(store)) == (twice, folded)
    assert submitted(twice) == 2 * submitted(before) == 26


async def test_the_plain_path_counts_as_the_general_path_does(store, monkeypatch):
    await play_story(store)
    short = await store.totals()
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        for table in ("total", "tally", "done", "job"):
            db.execute(f"DELETE FROM {store.address.schema}.{table}")
    monkeypatch.setattr(plain_path, "are_plain", lambda _: False)
    monkeypatch.setattr(plain_path, "is_plain", lambda _: False)
    await play_story(store)
    assert await store.totals() == short


async def test_what_does_not_count_is_no_batch(store):
    await store.insert([spec(), spec(priority=6)], now=NOON)
    [one, two] = await claim_jobs(store, 2)
    silent = replace(settle(one, Done(), chance=0.5, by="w1"), counts_as="")
    loud = settle(two, Done(), chance=0.5, by="w1")
    await exchange(store, settle=[silent, loud])
    found = {(total.priority, total.what): total.n for total in await store.totals()}
    assert found[6, "batches"] == found[6, "completed"] == 1
    assert (5, "batches") not in found
    assert (5, "completed") not in found


async def test_no_total_is_lost_while_others_fold(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresStore(url, connections=1)) for _ in range(4)]

        async def work(number, store):
            settling = []
            await store.insert([spec() for _ in range(60)])
            while True:
                claim = Claim(worker=f"w{number}", limit=4, lease_for=LEASE)
                answer = await store.exchange(Exchange(settle=settling, claim=claim))
                settling = [settle(lease, Done(ran=1.0), chance=0.5, by="w") for lease in answer.leases]
                if not settling:
                    return

        async def fold_often(store):
            while True:
                await asyncio.to_thread(fold, store)
                found = await counted(store)
                assert found.get("completed", (0,))[0] <= 240

        folding = asyncio.create_task(fold_often(stores[0]))
        await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
        folding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await folding
        found = await counted(stores[0])
        assert found["submitted"] == (240, 0)
        assert found["completed"] == (240, 240_000_000)
        assert found["waited"][0] == 240
