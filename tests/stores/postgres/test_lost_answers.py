"""The connection breaks: errors say whether the call took effect, and a retry is safe."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from urllib.parse import quote

import psycopg
import pytest
from postgres_private import private_server

from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import Done, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Reap, Verdict
from daybreak.stores.postgres import PostgresStore
from daybreak.testing.contract.builders import assert_sound, spec, state_of

MINUTE = timedelta(minutes=1)


def claim(**options):
    return Claim(worker="w1", limit=2, lease_for=MINUTE, **options)


async def test_a_connection_cut_after_the_commit_and_before_the_reply(proxy, store):
    async with PostgresStore(proxy.url, connections=1) as far:
        await far.insert([spec() for _ in range(4)])
        first = await far.exchange(Exchange(claim=claim(call="c1")))
        done = [settle(lease, Done(b"1"), chance=0, by="w1") for lease in first.leases]
        proxy.cut_replies.set()
        with pytest.raises(OutcomeUnknown, match="retry, which is safe"):
            await far.exchange(Exchange(settle=done, claim=claim(call="c2")))
        proxy.cut_replies.clear()
        assert proxy.cut
        assert [await state_of(store, lease.job) for lease in first.leases] == [State.COMPLETED] * 2
        again = await far.exchange(Exchange(settle=done, claim=claim(call="c2", repeats=True)))
        assert again.settled == [True, True]
        assert [lease.attempt for lease in again.leases] == [1, 1]
        await assert_sound(store)


async def test_an_insert_whose_answer_was_lost_is_one_job(proxy, store):
    async with PostgresStore(proxy.url, connections=1) as far:
        await far.insert([spec()])
        job = spec()
        proxy.cut_replies.set()
        with pytest.raises(OutcomeUnknown):
            await far.insert([job])
        proxy.cut_replies.clear()
        [answer] = await far.insert([job])
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job.id)


async def test_reads_are_repeated_on_a_new_connection(proxy, store):
    name = f"of {store.address.schema}"
    async with PostgresStore(f"{proxy.url}&application_name={quote(name)}", connections=1) as far:
        job = spec()
        await far.insert([job])
        with psycopg.connect(store.address.conninfo, autocommit=True) as db:
            ended = db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (name,)
            )
            assert ended.rowcount > 0
        assert await state_of(far, job.id) is State.QUEUED
        assert (await far.insert([spec()]))[0].verdict is Verdict.NEW


async def test_a_hanging_reap_takes_over_nobody_who_could_not_report_meanwhile(proxy, store):
    async with PostgresStore(proxy.url, connections=2) as far:
        await store.insert([spec()])
        await far.count()
        claim = Claim(worker="w1", limit=1, lease_for=timedelta(seconds=3))
        [lease] = (await store.exchange(Exchange(claim=claim))).leases
        proxy.flowing.clear()
        reaping = asyncio.create_task(far.reap(Reap(worker="r", watched_for=MINUTE)))
        await asyncio.sleep(3.3)  # the lease lapses while the request is on its way
        proxy.flowing.set()
        assert await reaping == []
        assert [taken.job for taken in await far.reap(Reap(worker="r", watched_for=MINUTE))] == [lease.job]


async def test_an_answer_that_does_not_come_is_given_up(proxy, store):
    async with PostgresStore(proxy.url, connections=1, answer_within=timedelta(seconds=1)) as far:
        watch = far.watch(["events"])
        await far.insert([spec()])
        proxy.flowing.clear()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await far.insert([spec()])
        assert time.monotonic() - began < 10
        proxy.flowing.set()
        watch.close()
        assert (await far.insert([spec()]))[0].verdict is Verdict.NEW


async def test_a_server_that_is_killed_in_the_middle_of_things_loses_nothing_that_was_answered():
    with private_server() as server:
        async with PostgresStore(server.url, connections=2) as store:
            await store.insert([spec() for _ in range(3000)])
            done, unknown, lost = [], 0, []
            call, killed = 0, 0

            async def work():
                nonlocal unknown, call
                settling, repeats = [], False
                while killed < 3 or not unknown + len(lost) or len(done) < 3000:
                    asked = Exchange(settle=settling, claim=Claim(
                        worker="w1", limit=20, lease_for=MINUTE, call=f"c{call}", repeats=repeats))  # fmt: skip
                    try:
                        answer = await store.exchange(asked)
                    except OutcomeUnknown:
                        unknown += 1
                        repeats = True
                    except StoreUnavailable as error:
                        lost.append(str(error))
                        await asyncio.sleep(0.05)
                    else:
                        assert all(answer.settled)
                        done.extend(settlement.job for settlement in settling)
                        settling = [settle(lease, Done(), chance=0, by="w1") for lease in answer.leases]
                        assert {lease.attempt for lease in answer.leases} <= {1}
                        call, repeats = call + 1, False

            working = asyncio.create_task(work())
            # A kill between two calls may interrupt neither of them.
            while not working.done() and (killed < 3 or not unknown + len(lost)):
                assert killed < 30
                before = call
                while call < before + 20 and not working.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(server.restart)
                killed += 1
            await working
            assert len(done) == len(set(done)) == 3000
            assert [(tally.state, tally.n) for tally in await store.count()] == [(State.COMPLETED, 3000)]
