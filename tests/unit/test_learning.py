"""What was seen is told to all, once, whatever ails the store; and nothing of it stops anyone."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import msgspec
import pytest

from daybreak.client import duration_stats as module
from daybreak.client.duration_stats import (
    KIND,
    MAX_SINGLE_READS,
    MAX_SUBJECTS,
    NAME_LIMIT,
    DurationStats,
    decoded,
    execution_of,
    subject_name,
)
from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import Health, JobSpec, Lease, Need, Options, Put, Record
from daybreak.core.units import moment
from daybreak.policy.durations import NO_DURATIONS, Durations, Hour, class_of, hour_of
from daybreak.policy.timeouts import LimitRules
from daybreak.services.janitor import Janitor

MINUTE = timedelta(minutes=1)
BAD = b'{"hours":3}'


@pytest.fixture
def learning(store, world):
    return DurationStats(store, world)


@pytest.fixture(autouse=True)
def _anew(monkeypatch):
    monkeypatch.setattr(module, "_unreadable", set())


class Faulty:
    """A store that raises when it is told to, hangs, or lets others come first."""

    def __init__(self, store):
        self.store, self.asked = store, []
        self.before_put = self.before_read = self.after_put = None

    async def records(self, kind, name=None):
        self.asked.append("records")
        if self.before_read is not None:
            await self.before_read()
        return await self.store.records(kind, name)

    async def put(self, puts):
        self.asked.append("put")
        if self.before_put is not None:
            await self.before_put()
        answer = await self.store.put(puts)
        if self.after_put is not None:
            await self.after_put()
        return answer


@pytest.fixture
def faulty(store):
    return Faulty(store)


def raising(trouble):
    async def fail():
        raise trouble

    return fail


async def forever():
    await asyncio.Event().wait()


async def seen(store, subject):
    [record] = await store.records(KIND, subject)
    return decoded(record).seen


# -- the store is in trouble -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before_read", "before_put"])
async def test_what_could_not_be_told_is_told_the_next_time(faulty, world, where):
    learning = DurationStats(faulty, world)
    for _ in range(50):
        learning.note("execution t", MINUTE, 1.0)
    setattr(faulty, where, raising(StoreUnavailable("away")))
    await learning.sync()
    learning.note("execution t", MINUTE, 9.0)
    setattr(faulty, where, None)
    await learning.sync()
    known, _ = await learning.read("execution t")
    assert (known.seen, known.seconds) == (51, 59)
    assert not learning.has_news


async def test_what_may_have_been_told_is_not_told_twice(faulty, world):
    learning = DurationStats(faulty, world)
    learning.note("execution t", MINUTE, 1.0)
    faulty.after_put = raising(OutcomeUnknown("no answer"))
    await learning.sync()
    faulty.after_put = None
    await learning.sync()
    assert await seen(faulty, "execution t") == 1


async def test_what_a_stop_interrupts_is_told_at_the_end(faulty, world):
    learning = DurationStats(faulty, world)
    learning.note("execution t", MINUTE, 1.0)
    faulty.before_read = forever
    tending = asyncio.create_task(learning.sync())
    await asyncio.sleep(0)
    tending.cancel()
    await asyncio.gather(tending, return_exceptions=True)
    faulty.before_read = None
    await learning.sync()
    assert await seen(faulty, "execution t") == 1


async def test_no_error_ends_what_should_go_on_for_ever(faulty, world):
    learning = DurationStats(faulty, world)
    faulty.before_read = raising(RuntimeError("what was that"))
    learning.note("execution t", MINUTE, 1.0)
    running = asyncio.create_task(learning.run())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not running.done()
    faulty.before_read = None
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert await seen(faulty, "execution t") == 1


async def test_a_store_that_hangs_delays_nobody_for_long_and_only_once(faulty, world, monkeypatch):
    monkeypatch.setattr(module, "LOAD_TIMEOUT", timedelta(milliseconds=50))
    faulty.before_read = forever
    learning = DurationStats(faulty, world)
    began = time.monotonic()
    for _ in range(100):
        assert await learning.limit("operation db", MINUTE) == MINUTE
    assert time.monotonic() - began < 2
    assert faulty.asked == ["records"]
    for loading, _ in list(learning._loading.values()):
        loading.cancel()


async def test_a_store_that_answers_late_is_believed_from_then_on(faulty, store, world):
    gate = asyncio.Event()
    faulty.before_read = gate.wait
    await store.put([Put(kind=KIND, name="operation db", value=slow(world))])
    learning = DurationStats(faulty, world)
    asking = [asyncio.create_task(learning._load("operation db")) for _ in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()  # who asked first need not wait for the others
    gate.set()
    await asyncio.gather(*asking, return_exceptions=True)
    assert await learning.limit("operation db", MINUTE) == 3 * MINUTE
    assert faulty.asked == ["records"]


def slow(world):
    hours = {hour_of(moment(world.wall())): Hour({class_of(600.0): 500})}
    return msgspec.json.encode(Durations(hours=hours))


async def test_a_store_that_cannot_be_asked_leaves_the_base_and_is_asked_again_soon(faulty, store, world):
    await store.put([Put(kind=KIND, name="operation db", value=slow(world))])
    faulty.before_read = raising(StoreUnavailable("away"))
    learning = DurationStats(faulty, world)
    assert await learning.limit("operation db", MINUTE) == MINUTE
    faulty.before_read = None
    await learning.sync()
    assert await learning.limit("operation db", MINUTE) == 3 * MINUTE


# -- many at once ------------------------------------------------------------------------------------------------------


async def test_many_who_tell_of_the_same_lose_nothing(store, world):
    tellers = [DurationStats(Slow(store), world) for _ in range(40)]
    for teller in tellers:
        teller.note("execution t", MINUTE, 1.0)
        teller.note("execution u", MINUTE, 1.0)
    while any(teller.has_news for teller in tellers):
        await asyncio.gather(*(teller.sync() for teller in tellers))
    assert (await seen(store, "execution t"), await seen(store, "execution u")) == (40, 40)
    assert len(set(world.slept)) > 10  # at random: those who lost together do not try together again


class Slow(Faulty):
    async def records(self, kind, name=None):
        found = await super().records(kind, name)
        await asyncio.sleep(0)
        return found


async def test_many_subjects_are_read_and_told_at_once(faulty, world):
    learning = DurationStats(faulty, world)
    for n in range(500):
        learning.note(f"operation {n}", MINUTE, 1.0)
    await learning.sync()
    assert faulty.asked == ["records", "put"]
    assert len(await faulty.records(KIND)) == 500
    for n in range(MAX_SINGLE_READS + 1):
        learning.known(f"wait {n}")
    faulty.asked.clear()
    await learning.sync()
    assert faulty.asked == ["records"]


async def test_only_those_that_lost_are_told_again(faulty, store, world):
    learning = DurationStats(faulty, world)
    for name in "abc":
        learning.note(f"operation {name}", MINUTE, 1.0)

    async def be_first():
        faulty.before_put = None
        other = DurationStats(store, world)
        other.note("operation b", MINUTE, 2.0)
        await other.sync()

    faulty.before_put = be_first
    await learning.sync()
    assert [await seen(store, f"operation {name}") for name in "abc"] == [1, 2, 1]
    assert faulty.asked == [*["records"] * 3, "put", "records", "put"]


async def test_what_one_collected_another_may_tell(learning, store, world):
    ended = DurationStats(None, world)
    ended.note("operation db", MINUTE, 1.0)
    learning.note("operation db", MINUTE, 2.0)
    learning.take_over(ended)
    await learning.sync()
    assert await seen(store, "operation db") == 2
    assert not ended.has_news


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_nothing_grows_for_ever(learning):
    for n in range(3 * MAX_SUBJECTS):
        learning.note(f"operation {n}", MINUTE, 1.0, late=bool(n % 2))
        learning.known(f"operation {n}")
    assert max(len(learning._late), len(learning._fresh), len(learning._wanted)) <= MAX_SUBJECTS
    for n in range(3 * MAX_SUBJECTS):
        learning.note(f"operation {n}", MINUTE, 1.0)
    assert not learning._late


async def test_a_limit_has_an_end_also_where_it_was_too_short_often(learning):
    for _ in range(20):
        learning.note("operation x", timedelta(days=30_000), 1.0, late=True)
    limit = await learning.limit("operation x", timedelta(days=30_000), LimitRules(escalate=100, escalate_after=1))
    assert limit == timedelta(days=36_500)


async def test_a_limit_with_rules_of_its_own_is_stored_as_these_rules_say(learning, store):
    narrow = LimitRules(lowest=0.9, highest=1.2)
    for _ in range(500):
        learning.note("operation x", MINUTE, 0.1, rules=narrow)
    await learning.sync()
    known, _ = await learning.read("operation x")
    assert (known.limit, known.multiple) == pytest.approx((54.0, 0.9))
    assert await learning.limit("operation x", MINUTE, narrow) == 0.9 * MINUTE
    assert await learning.limit("operation x", MINUTE) == 0.5 * MINUTE


async def test_limits_that_were_raised_are_counted(learning):
    for _ in range(5):
        learning.note("operation x", MINUTE, 60.0, late=True)
    learning.note("operation x", MINUTE, 60.0)
    learning.note("operation x", MINUTE, 60.0)
    await learning.sync()
    known, _ = await learning.read("operation x")
    assert (known.late, known.escalated) == (5, 3)  # the fourth, the fifth and the one that was in time


async def test_hours_outside_of_the_window_do_not_count(learning, store, world):
    now = hour_of(moment(world.wall()))
    hours = {now - 5: Hour({class_of(600.0): 500}), now: Hour({class_of(0.1): 500})}
    await store.put([Put(kind=KIND, name="operation x", value=msgspec.json.encode(Durations(hours=hours)))])
    assert await learning.limit("operation x", MINUTE) == 3 * MINUTE
    assert await learning.limit("operation x", MINUTE, LimitRules(window=timedelta(hours=3))) == MINUTE / 2
    assert await learning.limit("operation x", MINUTE, LimitRules(window=timedelta(hours=5))) == 3 * MINUTE


def test_long_names_are_cut_and_stay_apart():
    one, other = "operation " + "x" * 300, "operation " + "x" * 299 + "y"
    assert len(subject_name(one)) <= NAME_LIMIT
    assert subject_name(one).startswith("operation xxx")
    assert subject_name(one) != subject_name(other)
    assert subject_name(subject_name(one)) == subject_name(one)
    assert subject_name("operation db") == "operation db"


async def test_what_has_a_long_name_is_known_by_it(learning, store):
    name = "operation " + "x" * 300
    learning.note(name, MINUTE, 1.0)
    await learning.sync()
    assert learning.known(name).seen == 1
    assert (await learning.read(name))[0].seen == 1
    [record] = await store.records(KIND)
    assert len(record.name) <= NAME_LIMIT


def test_a_job_that_needs_much_is_timed_under_a_short_name(world):
    needs, now = tuple(Need(f"{n:0100}") for n in range(16)), moment(world.wall())
    spec = JobSpec(id="1", task="t", options=Options(resources=needs))
    lease = Lease(
        seq=1, spec=spec, fence=1, attempt=1, priority=5, worker="w", until=now, lease_for=MINUTE, started_at=now,
        created_at=now,
    )  # fmt: skip
    assert execution_of(lease.spec).startswith("execution t on 000")
    assert len(execution_of(lease.spec)) <= NAME_LIMIT


# -- what is not ours --------------------------------------------------------------------------------------------------


def record(value, name="execution t"):
    return Record(kind=KIND, name=name, value=value, revision=1)


@pytest.mark.parametrize(
    "value", [BAD, b"", b"\xff", b"[]", b'{"seen":-1}', b'{"hours":{"1":{"classes":{"99999":1}}}}']
)
def test_a_record_that_cannot_be_read_says_nothing_and_that_is_said_once(value, caplog):
    assert decoded(record(value)) == NO_DURATIONS
    assert decoded(record(value)) == NO_DURATIONS
    assert len(caplog.records) == 1
    assert decoded(record(value, "execution u")) == NO_DURATIONS
    assert len(caplog.records) == 2


def test_records_of_before_are_read():
    old = b'{"hours":{"5":{"classes":{"0":3},"seconds":2.5,"late":1}},"seen":3,"base":60.0,"limit":60.0}'
    assert decoded(record(old)).hours == {5: Hour({0: 3}, 2.5, 1)}


async def test_a_record_that_cannot_be_read_is_written_anew(learning, store):
    await store.put([Put(kind=KIND, name="execution t", value=BAD)])
    learning.note("execution t", MINUTE, 1.0)
    await learning.sync()
    assert await seen(store, "execution t") == 1


# -- a limit that moves ------------------------------------------------------------------------------------------------


async def test_that_two_limits_are_in_use_moves_nothing(learning):
    for n in range(10):
        learning.note("execution t", MINUTE if n % 2 else 60 * MINUTE, 1.0)
        await learning.sync()
    known, _ = await learning.read("execution t")
    assert (known.moved, known.multiple, known.limit, known.base) == (0, 1, 60, 60)


async def test_only_what_was_seen_moves_a_limit_also_where_two_are_in_use(learning):
    for _ in range(200):
        learning.note("execution t", MINUTE, 40.0)
    await learning.sync()
    for n in range(10):
        learning.note("execution t", MINUTE if n % 2 else 60 * MINUTE, 40.0)
        await learning.sync()
    known, _ = await learning.read("execution t")
    assert known.moved == 1
    assert known.limit == pytest.approx(60 * known.multiple)


async def test_a_record_without_a_multiple_is_compared_by_its_limit(learning, store, world):
    hours = {hour_of(moment(world.wall())): Hour({class_of(1.0): 200})}
    old = Durations(hours=hours, seen=200, base=60.0, limit=30.0, moved=4)
    await store.put([Put(kind=KIND, name="execution t", value=msgspec.json.encode(old))])
    learning.note("execution t", MINUTE, 1.0)
    await learning.sync()
    known, _ = await learning.read("execution t")
    assert (known.moved, known.limit, known.multiple) == (4, 30, 0.5)


# -- a block -----------------------------------------------------------------------------------------------------------


async def test_a_time_limit_of_the_block_itself_is_not_ours(learning):
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with learning.limited("renewal of locks", MINUTE):
                raise TimeoutError
    assert not learning.has_news
    assert not learning._late


async def test_a_block_that_took_too_long_was_late(learning):
    with pytest.raises(TimeoutError):
        async with learning.limited("renewal of locks", timedelta(milliseconds=1)):
            await forever()
    assert learning._late == {"renewal of locks": 1}


# -- the janitor -------------------------------------------------------------------------------------------------------


async def test_the_janitor_goes_on_where_a_record_cannot_be_read(store, world):
    await store.put([Put(kind=KIND, name="execution t", value=BAD), Put(kind="task health", name="t", value=BAD)])
    janitor = Janitor(store, world, name="j")
    world.pass_time(timedelta(hours=3))
    await janitor.tick()
    assert await store.records(KIND) == []


async def test_the_janitor_forgets_healths_that_nobody_has_told_for_an_hour(store, world):
    for name in ("old", "new"):
        health = msgspec.json.encode(Health(good=1.0, bad=5.0, at=moment(world.wall())))
        await store.put([Put(kind=kind, name=name, value=health) for kind in ("health", "task health")])
        janitor = Janitor(store, world, name="j")
        world.pass_time(timedelta(minutes=50) if name == "old" else timedelta(minutes=20))
    janitor._forget_at = world.steady()
    await janitor.tick()
    assert [record.name for record in await store.records("health")] == ["new"]
    assert [record.name for record in await store.records("task health")] == ["new"]
