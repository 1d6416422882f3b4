"""Records: small values with a revision, written in one transaction with the change that they describe."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from daybreak.core.errors import BadInput
from daybreak.core.model import Done, JobSpec, Put, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import LATEST, Claim, Store, work_topic
from daybreak.testing.contract.builders import (
    MINUTE,
    NOON,
    accept,
    assert_sound,
    claim_ids,
    claim_one,
    configure,
    exchange,
    find_all,
    follow,
    get_job,
    needs,
    settle,
    spec,
    state_of,
)
from daybreak.testing.contract.wakeups import wakes


def note(
    value: bytes | None,
    *,
    expect: int | None = None,
    name: str = "n",
    kind: str = "note",
    inserts: tuple[JobSpec, ...] = (),
) -> Put:
    return Put(kind=kind, name=name, value=value, expect=expect, inserts=inserts)


async def write(store: Store, put: Put) -> int | None:
    """The revision it got, None if it was refused."""
    [record] = await store.put([put])
    return record.revision if record else None


async def read(store: Store, name: str = "n") -> bytes | None:
    found = await store.records("note", name)
    return found[0].value if found else None


class Records:
    async def test_a_record_may_be_told_of_in_the_feed(self, store: Store) -> None:
        before = (await store.events(LATEST)).cursor
        told = Put(kind="gate", name="plecs", value=b"{}", tells="breaker_opened", by="w1")
        assert await store.put([told], now=NOON) != [None]
        lost = Put(kind="gate", name="plecs", value=b"{}", expect=0, tells="breaker_closed", by="w1")
        assert await store.put([lost], now=NOON) == [None]
        job = await accept(store)
        found, _ = await follow(store, before)
        assert [(event.kind, event.job, event.n) for event in found] == [
            ("breaker_opened", "", 0), ("submitted", job, 1),
        ]  # fmt: skip
        assert (found[0].by, found[0].note, found[0].at) == ("w1", "plecs", NOON)

    async def test_it_is_told_with_whatever_it_was_written_with(self, store: Store) -> None:
        before = (await store.events(LATEST)).cursor
        told = Put(kind="note", name="n", value=b"1", tells="breaker_closed")
        await exchange(store, put=[told])
        await accept(store)
        lease = await claim_one(store)
        await settle(store, lease, puts=(told,))
        kinds = [event.kind for event in (await follow(store, before))[0]]
        assert kinds.count("breaker_closed") == 2

    async def test_an_event_that_there_is_not_is_refused(self, store: Store) -> None:
        with pytest.raises(BadInput, match="kind of event"):
            await store.put([Put(kind="note", name="n", value=b"1", tells="lunch")])
        assert await store.records("note") == []

    async def test_a_record_comes_back_as_it_was_put(self, store: Store) -> None:
        [put] = await store.put([note(b"\x00\xff")])
        assert put is not None
        assert await store.records("note", "n") == [put]
        assert (put.kind, put.name, put.value) == ("note", "n", b"\x00\xff")

    async def test_records_are_listed_by_kind_in_order_of_their_names(self, store: Store) -> None:
        await store.put([note(b"2", name="b"), note(b"1", name="a"), note(b"3", name="a", kind="other")])
        assert [(record.name, record.value) for record in await store.records("note")] == [("a", b"1"), ("b", b"2")]
        assert await store.records("none") == []

    async def test_compare_and_set_lets_one_of_two_writers_win(self, store: Store) -> None:
        first = await write(store, note(b"1", expect=0))
        assert first is not None
        assert await write(store, note(b"2", expect=0)) is None
        second = await write(store, note(b"2", expect=first))
        assert second is not None
        assert second > first
        assert await write(store, note(b"3", expect=first)) is None
        assert await read(store) == b"2"

    async def test_a_put_without_expectation_always_writes(self, store: Store) -> None:
        assert await write(store, note(b"1"))
        assert await write(store, note(b"2"))
        assert await read(store) == b"2"

    async def test_a_put_of_none_deletes_and_is_compared_too(self, store: Store) -> None:
        revision = await write(store, note(b"1"))
        assert await write(store, note(None, expect=999_999)) is None
        assert await read(store) == b"1"
        assert await write(store, note(None, expect=revision)) is not None
        assert await read(store) is None
        assert await write(store, note(b"2", expect=0)) is not None

    async def test_a_revision_is_never_used_twice(self, store: Store) -> None:
        revisions = [await write(store, note(value)) for value in (b"1", None, b"2", None, b"3")]
        assert len(set(revisions)) == len(revisions)
        assert await write(store, note(b"4", expect=revisions[0])) is None

    async def test_one_lost_race_in_a_batch_sinks_no_other(self, store: Store) -> None:
        answers = await store.put([note(b"1", name="a"), note(b"2", name="b", expect=7), note(b"3", name="c")])
        assert [answer is not None for answer in answers] == [True, False, True]
        assert [await read(store, name) for name in ("a", "b", "c")] == [b"1", None, b"3"]

    async def test_an_exchange_puts_records_and_answers_for_each(self, store: Store) -> None:
        await write(store, note(b"1"))
        answer = await exchange(store, put=[note(b"2", expect=0), note(b"3", name="m", expect=0)])
        assert [record is not None for record in answer.put] == [False, True]

    async def test_jobs_that_come_with_a_record_are_inserted_with_it(self, store: Store) -> None:
        first, second, third = spec(), spec(), spec()
        [record] = await store.put([note(b"1", expect=0, inserts=(first, second))], now=NOON)
        assert record is not None
        answer = await exchange(store, put=[note(b"2", expect=record.revision, inserts=(third,))])
        assert answer.put != [None]
        jobs = [first.id, second.id, third.id]
        assert [await state_of(store, job) for job in jobs] == [State.QUEUED] * 3
        assert await claim_ids(store, 5) == jobs
        await assert_sound(store)

    async def test_one_job_that_comes_with_two_records_is_one_job(self, store: Store) -> None:
        job = spec()
        delayed = replace(job, delay=timedelta(seconds=1), unique="u")
        assert None not in await store.put([note(b"1", inserts=(delayed,)), note(b"2", inserts=(job,))], now=NOON)
        assert await state_of(store, job.id) == State.SCHEDULED
        await assert_sound(store, [job.id])

    async def test_jobs_that_come_with_a_record_are_not_inserted_without_it(self, store: Store) -> None:
        await accept(store)
        lease, jobs = await claim_one(store), [spec() for _ in range(3)]
        lost = [note(b"1", expect=7, inserts=(job,)) for job in jobs]
        assert await store.put(lost[:1], now=NOON) == [None]
        assert (await exchange(store, put=lost[1:2])).put == [None]
        assert await settle(store, lease, puts=(lost[2],))
        assert await store.get([job.id for job in jobs]) == [None] * 3
        assert await read(store) is None

    async def test_of_two_writers_of_a_record_only_the_jobs_of_one_are_inserted(self, store: Store) -> None:
        jobs = [spec(), spec()]
        answers = await store.put([note(b"1", expect=0, inserts=(job,)) for job in jobs], now=NOON)
        assert [answer is not None for answer in answers] == [True, False]
        assert await find_all(store) == [jobs[0].id]

    async def test_a_settlement_brings_the_jobs_of_its_records(self, store: Store) -> None:
        await accept(store)
        lease, child, other = await claim_one(store), spec(), spec()
        assert await settle(store, lease, inserts=(other,), puts=(note(b"1", expect=0, inserts=(child,)),))
        assert await claim_ids(store, 5) == [other.id, child.id]
        await settle(store, lease, puts=(note(b"2", inserts=(spec(),)),))
        assert len(await find_all(store)) == 3

    async def test_jobs_that_come_with_a_record_go_into_a_full_queue(self, store: Store) -> None:
        await configure(store, "full", capacity=0)
        job = spec(queue="full")
        assert await store.put([note(b"1", inserts=(job,))], now=NOON) != [None]
        assert await state_of(store, job.id) is State.QUEUED

    async def test_keys_and_names_hold_for_jobs_that_come_with_a_record(self, store: Store) -> None:
        known, held, waits = spec(key="k"), spec(unique="u"), spec(unique="v")
        await store.insert([known, held, waits], now=NOON)
        same, replaces = spec(key="k"), spec(unique="v", on_conflict="replace")
        brought = (known, same, spec(unique="u"), replaces)
        assert await write(store, note(b"1", inserts=brought)) is not None
        assert sorted(await find_all(store)) == sorted([known.id, held.id, waits.id, replaces.id])
        assert await state_of(store, waits.id) is State.CANCELLED
        assert await state_of(store, replaces.id) is State.QUEUED
        await assert_sound(store)

    async def test_a_record_holds_for_the_jobs_that_come_with_it(self, store: Store) -> None:
        """A queue's new settings are in force, and the event of a record stands before those of its jobs."""
        before = (await store.events(LATEST)).cursor
        job = spec(queue="slow", delay=MINUTE)
        settings = Put(
            kind="queue", name="slow", value=b'{"capacity":0,"paused":true}', tells="breaker_closed", inserts=(job,)
        )
        assert await store.put([settings], now=NOON) != [None]
        found, _ = await follow(store, before)
        assert [(event.kind, event.job) for event in found] == [("breaker_closed", ""), ("submitted", job.id)]
        assert await state_of(store, job.id) is State.SCHEDULED

    async def test_a_holder_may_come_with_a_record(self, store: Store) -> None:
        lock = spec("lock", queue="lock", holder="ann", resources=needs("door"))
        assert await store.put([note(b"1", expect=0, inserts=(lock,))], now=NOON) != [None]
        job = await get_job(store, lock.id)
        assert (job.state, job.worker) == (State.RUNNING, "ann")

    async def test_jobs_that_come_with_a_record_wake_the_workers_of_their_queue(self, store: Store) -> None:
        put = note(b"1", expect=0, inserts=(spec(queue="q"),))
        assert await wakes(store, work_topic("q"), lambda: store.put([put], now=NOON))

    async def test_a_queue_put_in_an_exchange_holds_for_its_claim(self, store: Store) -> None:
        await accept(store)
        answer = await exchange(
            store, put=[note(b'{"paused":true}', kind="queue", name="default")], claim=Claim(worker="w1")
        )
        assert answer.leases == []

    async def test_settings_that_are_none_are_refused_and_nothing_of_the_call_is_written(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        bad = note(b'{"max_running":"many"}', kind="queue", name="default")
        with pytest.raises(BadInput):
            await store.put([note(b"1"), bad])
        with pytest.raises(BadInput):
            await exchange(
                store,
                settle=[settlement_of(lease, Done(), chance=0, by="w1")],
                insert=[spec()],
                put=[note(b"1"), bad],
                claim=Claim(worker="w1"),
            )
        assert await read(store) is None
        assert await state_of(store, job) is State.RUNNING
        assert await find_all(store) == [job]
        assert await store.records("queue") == []
