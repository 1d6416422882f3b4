"""Sketches of waits and runs: close to a recount, merged once by any number of workers, and bounded."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.client.trend_records import PURGED, TOTAL, minute_of, purge_trends, sketch_minute
from daybreak.client.trend_stats import (
    MAX_PENDING,
    TrendStats,
    decode_sketches,
    encode_sketches,
    read_cumulative,
    read_hours,
    read_minutes,
)
from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import JobSpec, Lease, Put, Record, Settlement, State
from daybreak.core.units import Priority, moment, span
from daybreak.policy.trends import (
    MAX_FOLDED,
    MAX_SERIES,
    OTHER,
    Sketch,
    admitted,
    at_most,
    merge_into,
    merged,
    quantile,
    series_key,
    wait_target,
)
from daybreak.services.janitor import Janitor

MOST_SERIES = MAX_SERIES + MAX_FOLDED + len(Priority)


def lease_of(queue="mail", task="send", priority=5):
    then = datetime(2026, 1, 31, 18, tzinfo=UTC)
    return Lease(
        seq=1,
        spec=JobSpec(id="j", task=task, queue=queue),
        fence=1,
        attempt=1,
        priority=priority,
        worker="w",
        until=then,
        lease_for=timedelta(seconds=7),
        started_at=then,
        created_at=then,
    )


def settlement_of(waited=0, ran=0, counts_as="completed"):
    return Settlement(
        seq=1, job="j", fence=1, state=State.COMPLETED, attempt=1, counts_as=counts_as, ran=ran, waited=waited
    )


def recount(values, share):
    """The nearest-rank quantile."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def n_of(sketches):
    together = merged(sketches.values())
    return sum(together.waits.values()), sum(together.runs.values())


# -- sketches ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(min_value=10, max_value=10**12), min_size=1, max_size=300),
    st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]),
    st.integers(min_value=1, max_value=5),
)
def test_a_quantile_of_merged_sketches_is_within_five_per_cent_of_a_recount(micros, share, parts):
    sketches = [Sketch() for _ in range(parts)]
    for n, one in enumerate(micros):
        sketches[n % parts].add_wait(one, 5)
    found = quantile(merged(sketches).waits, share)
    assert found == pytest.approx(recount(micros, share) / 1e6, rel=0.05)


@pytest.mark.parametrize(
    ("priority", "minutes"), [(0, 1), (1, 1), (2, 5), (3, 5), (4, 30), (5, 30), (6, 30), (7, 120), (8, 120)]
)
def test_a_wait_meets_its_target_up_to_the_last_microsecond(priority, minutes):
    target = wait_target(priority)
    assert target == timedelta(minutes=minutes)
    sketch = Sketch()
    sketch.add_wait(span(target), priority)
    sketch.add_wait(span(target) + 1, priority)
    assert sketch.met == 1


def test_background_jobs_have_no_target_and_always_meet_it():
    assert wait_target(9) is wait_target(10) is None
    sketch = Sketch()
    sketch.add_wait(10**15, 10)
    assert sketch.met == 1


def test_the_buckets_of_a_histogram_rise_and_end_with_all():
    sketch = Sketch()
    for micros in (0, 900, 90_000, 2_000_000, 90_000_000):
        sketch.add_run(micros)
    assert at_most(sketch.runs, [0.001, 0.1, 1, 10, math.inf]) == [2, 3, 3, 4, 5]


def test_series_beyond_the_bound_are_counted_together():
    sketches = {}
    for n in range(10_000):
        one = Sketch()
        one.add_run(1000)
        merge_into(sketches, {series_key(f"queue {n % 700}", f"task {n}", n % 11): one})
    assert len(sketches) <= MOST_SERIES
    assert n_of(sketches) == (0, 10_000)
    assert ("queue 0", "task 0", 0) in sketches
    assert any(key[:2] == (OTHER, OTHER) for key in sketches)


def test_a_series_that_is_there_keeps_its_own_key():
    full = {("q", f"task {n}", 5): Sketch() for n in range(MAX_SERIES)}
    assert admitted(full, ("q", "task 7", 5)) == ("q", "task 7", 5)
    assert admitted(full, ("q", "new", 5)) == ("q", OTHER, 5)


def test_sketches_survive_being_written_and_read():
    sketch = Sketch()
    sketch.add_wait(1_000, 3)
    sketch.add_run(10**12)
    sketches = {("q", "täsk", 2): sketch}
    assert decode_sketches(Record(kind="k", name="n", value=encode_sketches(sketches), revision=1)) == sketches


# -- collecting and merging --------------------------------------------------------------------------------------------


async def test_p95_of_the_roll_ups_is_within_six_per_cent_of_a_recount(store, world):
    waits, runs = [], []
    workers = [TrendStats(store, world) for _ in range(3)]
    since = moment(world.wall())
    for n in range(5000):
        waited, ran = int(world.chance.lognormvariate(13, 2)), int(world.chance.lognormvariate(11, 1.5))
        waits.append(waited)
        runs.append(ran)
        workers[n % 3].note(lease_of(priority=n % 11), settlement_of(waited, ran))
        world.pass_time(timedelta(seconds=1))
        if n % 5 == 0:
            await workers[n % 3].merge()
    for worker in workers:
        await worker.merge()
    until = moment(world.wall())
    for found in (await read_minutes(store, since, until), await read_hours(store, since, until)):
        together = merged(sketch for sketches in found.values() for sketch in sketches.values())
        assert quantile(together.waits, 0.95) == pytest.approx(recount(waits, 0.95) / 1e6, rel=0.06)
        assert quantile(together.runs, 0.95) == pytest.approx(recount(runs, 0.95) / 1e6, rel=0.06)
        assert (together.waited, together.ran) == (sum(waits), sum(runs))
    assert n_of(await read_cumulative(store)) == (5000, 5000)


class Pausing:
    """A store that lets others run before each operation, so that they come in between."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        async def operation(*args):
            await asyncio.sleep(0)
            return await getattr(self._store, name)(*args)

        return operation


async def test_workers_that_merge_at_the_same_time_lose_nothing_and_count_nothing_twice(store, world):
    workers = [TrendStats(Pausing(store), world) for _ in range(5)]
    for _ in range(4):
        for worker in workers:
            for _ in range(7):
                worker.note(lease_of(), settlement_of(1000, 1000))
        await asyncio.gather(*(worker.merge() for worker in workers))
    for worker in workers:
        while worker.has_news:
            await worker.merge()
    assert n_of(await read_cumulative(store)) == (140, 140)
    [minute] = (await read_minutes(store, moment(world.wall()) - timedelta(hours=1), moment(world.wall()))).values()
    assert n_of(minute) == (140, 140)


async def test_a_sample_counts_in_the_minute_in_which_it_was_settled(store, world):
    stats, began = TrendStats(store, world), moment(world.wall())
    stats.note(lease_of(), settlement_of(5, 5))
    world.pass_time(timedelta(seconds=90))
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    found = await read_minutes(store, began, moment(world.wall()))
    assert list(found) == [began, began + timedelta(minutes=1)]
    assert list(await read_hours(store, began, moment(world.wall()))) == [began]


async def test_a_worker_that_is_killed_loses_only_what_it_had_not_merged(store, world):
    stats = TrendStats(store, world)
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    stats.note(lease_of(), settlement_of(5, 5))
    del stats
    assert n_of(await read_cumulative(store)) == (1, 1)


async def test_later_attempts_count_as_runs_and_uncharged_ones_not_at_all(store, world):
    stats = TrendStats(store, world)
    stats.note(lease_of(), settlement_of(None, 5))
    stats.note(lease_of(), settlement_of(None, 5, counts_as=""))
    await stats.merge()
    assert n_of(await read_cumulative(store)) == (0, 1)


async def test_a_job_that_goes_on_elsewhere_counts_its_wait_when_it_is_detached_and_never_again(store, world):
    stats = TrendStats(store, world)
    detached = msgspec.structs.replace(lease_of(), detached=True)
    stats.note_detached(detached)
    stats.note_detached(msgspec.structs.replace(detached, attempt=2))  # only first attempts wait
    stats.note(detached, settlement_of(5, 5))  # its deadline has passed, and this worker has settled it
    await stats.merge()
    assert n_of(await read_cumulative(store)) == (1, 1)


async def test_a_process_collects_no_more_series_than_the_bound(store, world):
    stats = TrendStats(store, world)
    for n in range(10_000):
        stats.note(lease_of(f"q{n}", f"t{n}", n % 11), settlement_of(5, 5))
    await stats.merge()
    found = await read_cumulative(store)
    assert len(found) <= MOST_SERIES
    assert n_of(found) == (10_000, 10_000)


class Failing:
    """A store whose next puts raise."""

    def __init__(self, store, error):
        self._store, self.error, self.is_written = store, error, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, puts):
        if self.error is not None:
            if self.is_written:
                await self._store.put(puts)
            raise self.error
        return await self._store.put(puts)


async def test_what_could_not_be_written_is_merged_the_next_time(store, world, caplog):
    failing = Failing(store, StoreUnavailable("no answer"))
    stats = TrendStats(failing, world)
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    assert "could not merge trend samples" in caplog.text
    stats.note(lease_of(), settlement_of(5, 5))
    failing.error = None
    await stats.merge()
    assert n_of(await read_cumulative(store)) == (2, 2)


@pytest.mark.parametrize("is_written", [True, False])
async def test_what_may_have_been_written_is_never_written_again(store, world, is_written):
    failing = Failing(store, OutcomeUnknown("the answer was lost"))
    failing.is_written = is_written
    stats = TrendStats(failing, world)
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    failing.error = None
    await stats.merge()
    assert n_of(await read_cumulative(store)) == (int(is_written),) * 2


async def test_memory_is_bounded_while_the_store_is_unreachable(store, world):
    stats = TrendStats(Failing(store, StoreUnavailable("no answer")), world)
    for _ in range(200):
        stats.note(lease_of(), settlement_of(5, 5))
        await stats.merge()
        world.pass_time(timedelta(minutes=1))
    assert len(stats._pending) <= MAX_PENDING


@pytest.mark.parametrize("bad", [b"\xff", b'{"a": 1}', b""])
async def test_a_record_that_cannot_be_read_counts_as_empty_and_is_overwritten(store, world, bad):
    kind, name = TOTAL
    await store.put([Put(kind=kind, name=name, value=bad)])
    assert await read_cumulative(store) == {}
    stats = TrendStats(store, world)
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    assert n_of(await read_cumulative(store)) == (1, 1)


async def test_a_clock_that_goes_back_merges_into_the_earlier_minute(store, world):
    stats = TrendStats(store, world)
    began = moment(world.wall())
    for step in (timedelta(), timedelta(minutes=5), timedelta(minutes=-5)):
        world.pass_time(step)
        stats.note(lease_of(), settlement_of(5, 5))
        await stats.merge()
    found = await read_minutes(store, began, began + timedelta(hours=1))
    assert [n_of(sketches)[0] for sketches in found.values()] == [2, 1]


# -- deleting ----------------------------------------------------------------------------------------------------------


async def test_minutes_are_deleted_after_two_days_and_hours_after_thirty(store, world):
    stats, began = TrendStats(store, world), moment(world.wall())
    janitor = Janitor(store, world, name="j")
    await janitor.tick()
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    seen = []
    for hours in range(24 * 33):
        world.pass_time(timedelta(hours=1))
        await janitor.tick()
        minutes = bool(await read_minutes(store, began, began))
        hours_kept = bool(await read_hours(store, began, began))
        if [minutes, hours_kept] not in [state for _, state in seen]:
            seen.append((hours + 1, [minutes, hours_kept]))
    assert seen[0] == (1, [True, True])
    (minutes_gone, state), (hours_gone, last) = seen[1:]
    assert (state, last) == ([False, True], [False, False])
    assert 48 < minutes_gone <= 50
    assert 30 * 24 < hours_gone <= 31 * 24 + 2
    assert n_of(await read_cumulative(store)) == (1, 1)


async def test_deleting_goes_on_after_a_clock_was_ahead_for_a_while(store, world):
    now = moment(world.wall())
    await purge_trends(store, now)
    await purge_trends(store, now + timedelta(days=400))
    stats = TrendStats(store, world)
    stats.note(lease_of(), settlement_of(5, 5))
    await stats.merge()
    place = sketch_minute(minute_of(world.wall()))
    await purge_trends(store, now)
    assert await store.records(*place)
    await purge_trends(store, now + timedelta(hours=50))
    assert not await store.records(*place)


async def test_the_mark_of_the_janitor_that_cannot_be_read_starts_anew(store, world):
    kind, name = PURGED
    await store.put([Put(kind=kind, name=name, value=b"?")])
    await purge_trends(store, moment(world.wall()))
    [record] = await store.records(*PURGED)
    assert record.value != b"?"
