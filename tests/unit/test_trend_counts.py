"""Counts of any period are differences of exact totals, whatever happens to clocks, workers and bounds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.api.trends import MOST_GROUPS, trends_of
from daybreak.client.trend_counts import read_count_hours, read_count_minutes, read_latest, take_snapshot
from daybreak.client.trend_records import LATEST_COUNTS
from daybreak.client.trend_stats import TrendStats
from daybreak.core.errors import BadInput, OutcomeUnknown
from daybreak.core.model import Done, Failed, Failure, Put, TimedOut
from daybreak.core.units import Priority, moment
from daybreak.policy.settle import settle
from daybreak.policy.trend_counts import Counts, Snapshot, Sums, added, differences, widened
from daybreak.policy.trends import MAX_FOLDED, MAX_SERIES
from daybreak.services.janitor import Janitor
from daybreak.services.trend_sampler import SPREAD, TrendSampler
from daybreak.store.protocol import Claim, Exchange, Total

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MAIL = ("mail", "send", 5)


def now_of(world):
    return moment(world.wall())


async def work(store, world, stats=None, *, limit=1, queue="default", outcome=None, ran_for=timedelta(seconds=2)):
    """Claim and settle jobs as a worker does."""
    leases = (await store.exchange(Exchange(claim=Claim(worker="w", queues=(queue,), limit=limit)))).leases
    world.pass_time(ran_for)
    done = outcome or Done(ran=ran_for.total_seconds())
    settlements = [settle(lease, done, chance=0.5, by="w", success=1.0) for lease in leases]
    await store.exchange(Exchange(settle=settlements))
    if stats is not None:
        for lease, settlement in zip(leases, settlements, strict=True):
            stats.note(lease, settlement)
    return len(leases)


# -- arithmetic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("submitted", {"submitted": 3}),
        ("completed", {"completed": 3, "ran_for": 7}),
        ("completed again", {"completed": 3, "ran_for": 7, "retries": 3}),
        ("failed error", {"failed": 3}),
        ("failed exhausted again late", {"failed": 3, "retries": 3, "retries_failed": 3, "timeouts": 3}),
        ("failed expired", {"expired": 3}),
        ("failed shed", {"shed": 3}),
        ("retrying jittered", {}),
        ("retrying jittered again hung", {"retries": 3, "retries_failed": 3, "timeouts": 3}),
        ("cancelled again", {"cancelled": 3, "retries": 3}),
        ("lost", {"lost": 3}),
        ("waited", {"waited": 3, "waited_for": 7}),
        *((what, {}) for what in ("last", "attempts", "batches", "spared", "shortened")),
    ],
)
def test_each_total_counts_where_it_belongs(what, fields):
    sums = Sums()
    sums.add_total(MAIL, what, 3, 7)
    assert sums.series() == ({MAIL: Counts(**fields)} if fields else {})


@given(st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=12), st.randoms())
def test_differences_add_up_to_the_totals_in_whatever_order_snapshots_come(grown, shuffler):
    totals, snapshots, reached = 0, [], 7
    for more in grown:
        before, totals = reached + totals, totals + more
        snapshots.append(Snapshot(0, {MAIL: Counts(completed=reached + totals)}, {MAIL: Counts(completed=before)}))
        reached, totals = reached + totals, 0
    first, *rest = snapshots
    shuffler.shuffle(rest)
    found = differences(dict(enumerate([first, *rest])))
    counts = [series[MAIL].completed for series in found.values()]
    assert min(counts) >= 0
    assert sum(counts) == reached - 7


def test_an_hour_begins_where_its_first_minute_began():
    one = Snapshot(1, {MAIL: Counts(completed=5)}, {MAIL: Counts(completed=2)})
    two = Snapshot(2, {MAIL: Counts(completed=9, waiting=1)}, {MAIL: Counts(completed=5)})
    assert widened(None, one) == one
    assert widened(one, two) == Snapshot(2, {MAIL: Counts(completed=9, waiting=1)}, {MAIL: Counts(completed=2)})


# -- snapshots ---------------------------------------------------------------------------------------------------------


async def test_the_counts_of_all_minutes_and_of_all_hours_add_up_to_the_totals(client, store, world):
    sampler, stats, began = TrendSampler(store, world), TrendStats(store, world), now_of(world)
    await sampler.tick()
    for n in range(150):
        for _ in range(world.chance.randrange(4)):
            await client.submit(f"task {n % 3}", priority=n % 11, retry=1)
        await work(store, world, stats, limit=world.chance.randrange(4))
        world.pass_time(await sampler.tick())
    for found in (
        await read_count_minutes(store, began, now_of(world)),
        await read_count_hours(store, began, now_of(world)),
    ):
        periods = differences(found).values()
        together = added(counts for series in periods for counts in series.values())
        totals = await store.totals()
        assert together.submitted == sum(t.n for t in totals if t.what == "submitted")
        assert together.completed == sum(t.n for t in totals if t.what == "completed") > 0
        assert together.waited_for == sum(t.took for t in totals if t.what == "waited")
    await stats.merge()
    trends = await trends_of(client, "3h")
    assert trends.figures.completed == sum(point.completed for point in trends.points) == together.completed


async def test_a_snapshot_is_written_once_a_minute_and_only_if_something_changed(client, store, world):
    assert await take_snapshot(store, now_of(world))  # the first one, of an empty store
    await client.submit("t")
    world.pass_time(MINUTE)
    assert await take_snapshot(store, now_of(world))
    await client.submit("t")
    assert not await take_snapshot(store, now_of(world))
    world.pass_time(MINUTE)
    assert await take_snapshot(store, now_of(world))
    world.pass_time(MINUTE)
    assert not await take_snapshot(store, now_of(world))


async def test_the_sampler_comes_soon_after_the_start_of_each_minute(store, world):
    sampler = TrendSampler(store, world)
    world.pass_time(timedelta(seconds=17))
    for _ in range(5):
        delay = await sampler.tick()
        world.pass_time(delay)
        assert world.wall() % 60_000_000 <= SPREAD / timedelta(microseconds=1)


class Pausing:
    """A store that lets others run before each operation, so that they come in between."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        async def operation(*args):
            await asyncio.sleep(0)
            return await getattr(self._store, name)(*args)

        return operation


async def test_of_many_workers_one_writes_a_minute_and_nothing_counts_twice(client, store, world):
    samplers, began = [TrendSampler(Pausing(store), world) for _ in range(5)], now_of(world)
    await samplers[0].tick()
    world.pass_time(MINUTE)
    for _ in range(20):
        await client.submit("t")
        await work(store, world)
        await asyncio.gather(*(sampler.tick() for sampler in samplers))
        world.pass_time(MINUTE)
    found = await read_count_minutes(store, began - HOUR, now_of(world))
    counts = [series.get(("default", "t", 5), Counts()).completed for series in differences(found).values()]
    assert sum(counts) == 20


async def test_what_happened_before_trends_were_kept_belongs_to_no_period(client, store, world):
    for _ in range(5):
        await client.submit("t")
    await work(store, world, limit=3)
    await take_snapshot(store, now_of(world))
    await work(store, world, limit=1)
    trends = await trends_of(client, "1h")
    assert (trends.figures.submitted, trends.figures.completed, trends.figures.waiting) == (0, 1, 1)


async def test_jobs_that_wait_for_the_first_worker_count(client, store, world):
    for _ in range(5):
        await client.submit("t")
    await take_snapshot(store, now_of(world))
    assert (await trends_of(client, "1h")).figures.submitted == 5


async def test_before_any_worker_ran_nothing_is_known(client):
    await client.submit("t")
    trends = await trends_of(client, "1h")
    assert (trends.figures.submitted, trends.figures.waiting) == (0, 1)


async def test_after_a_month_of_rest_only_what_is_new_counts(client, store, world):
    sampler, janitor = TrendSampler(store, world), Janitor(store, world, name="j")
    for n in range(2):
        await client.submit("t")
        await work(store, world)
        world.pass_time(await sampler.tick() if n else MINUTE)
    for _ in range(50):
        world.pass_time(DAY)
        await janitor.tick()
        await sampler.tick()
    assert (await trends_of(client, "30d")).figures.completed == 0
    await client.submit("t")
    await work(store, world)
    assert (await trends_of(client, "7d")).figures.completed == 1
    world.pass_time(await sampler.tick())
    assert (await trends_of(client, "7d")).figures.completed == 1


async def test_a_clock_that_jumps_loses_nothing_and_counts_nothing_twice(client, store, world):
    await take_snapshot(store, now_of(world))
    began = now_of(world)
    for jump in (MINUTE, 2 * HOUR, -2 * HOUR, MINUTE, MINUTE, 90 * MINUTE, -30 * MINUTE, HOUR):
        await client.submit("t")
        await work(store, world)
        world.pass_time(jump)
        await take_snapshot(store, now_of(world))
    world.pass_time(3 * HOUR)
    for read in (read_count_minutes, read_count_hours):
        found = differences(await read(store, began - HOUR, now_of(world)))
        counts = [series.get(("default", "t", 5), Counts()).completed for series in found.values()]
        assert min(counts) >= 0
        assert sum(counts) == 8


class Lossy:
    """A store whose next put is written or not, and answers in neither case."""

    def __init__(self, store):
        self._store, self.is_lossy, self.is_written = store, False, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, puts):
        if not self.is_lossy:
            return await self._store.put(puts)
        if self.is_written:
            await self._store.put(puts)
        raise OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_sampler_that_is_killed_at_its_write_changes_no_sum(client, store, world, is_written):
    lossy = Lossy(store)
    await take_snapshot(lossy, now_of(world))
    for n in range(6):
        await client.submit("t")
        await work(store, world)
        world.pass_time(MINUTE)
        lossy.is_lossy, lossy.is_written = n == 3, is_written
        try:
            await take_snapshot(lossy, now_of(world))
        except OutcomeUnknown:
            continue
    assert (await trends_of(client, "1h")).figures.completed == 6


async def test_series_beyond_the_bound_are_counted_together_and_stay_so(client, world):
    class Many:
        """Totals of 10,000 series, of which each counts on, and every minute one more comes first."""

        def __init__(self, store):
            self._store, self.n = store, 0

        def __getattr__(self, name):
            return getattr(self._store, name)

        async def totals(self):
            first = [Total(f"a{n}", "a", 1, 5, "submitted", self.n) for n in range(self.n)]
            return first + [Total(f"q{n % 50}", f"t{n}", 1, n % 11, "submitted", self.n) for n in range(10_000)]

    store, began = Many(client.store), now_of(world)
    await take_snapshot(store, now_of(world))
    for _ in range(3):
        store.n += 1
        world.pass_time(MINUTE)
        await take_snapshot(store, now_of(world))
    found = differences(await read_count_minutes(store, began, now_of(world)))
    assert all(len(series) <= MAX_SERIES + MAX_FOLDED + len(Priority) for series in found.values())
    sums = [sum(counts.submitted for counts in series.values()) for series in found.values()]
    assert sums == [10_000 + 1, 10_000 + 3, 10_000 + 5]


async def test_a_snapshot_that_cannot_be_read_is_taken_as_missing(client, store, world):
    kind, name = LATEST_COUNTS
    await store.put([Put(kind=kind, name=name, value=b"?")])
    await client.submit("t")
    await take_snapshot(store, now_of(world))
    latest, _ = await read_latest(store)
    assert latest.after[("default", "t", 5)].submitted == 1


# -- trends ------------------------------------------------------------------------------------------------------------


async def test_trends_show_counts_quantiles_depth_and_targets(client, store, world):
    sampler, stats = TrendSampler(store, world), TrendStats(store, world)
    await sampler.tick()
    for n in range(4):
        await client.submit("send", queue="mail", priority="high")
        await client.submit("scan", queue="disk", priority="background", retry=2)
        world.pass_time(timedelta(minutes=8) if n == 3 else timedelta(seconds=10))
        await work(store, world, stats, queue="mail")
    await work(store, world, stats, queue="disk", outcome=Failed(Failure(message="x", verdict="permanent"), 2.0))
    await work(store, world, stats, queue="disk", outcome=TimedOut(timedelta(seconds=2)))
    await stats.merge()
    world.pass_time(await sampler.tick())
    trends = await trends_of(client, "1h", by="priority")
    assert [(group.name, group.target) for group in trends.groups] == [
        ("high", timedelta(minutes=5)), ("background", None)
    ]  # fmt: skip
    high, background = (group.figures for group in trends.groups)
    assert (high.submitted, high.completed, high.waiting, high.target_met) == (4, 4, 0, 0.75)
    assert high.wait_p50.total_seconds() == pytest.approx(10, rel=0.05)
    assert high.wait_p99.total_seconds() == pytest.approx(480, rel=0.05)
    assert high.average_wait == timedelta(seconds=127, milliseconds=500)
    assert (background.failed, background.timeouts, background.waiting, background.target_met) == (1, 1, 3, None)
    assert trends.figures.target_met == 0.75
    assert trends.resolution == "minute"
    assert [point.waiting for point in trends.points][-1] == 3
    by_queue = await trends_of(client, "1h")
    assert [group.name for group in by_queue.groups] == ["disk", "mail"]
    only = await trends_of(client, "1h", by="task", queue="mail")
    assert ([group.name for group in only.groups], only.figures.submitted) == (["send"], 4)


async def test_the_resolution_fits_the_time(client):
    for age, resolution, points in (("1h", "minute", 61), ("3h", "minute", 181), ("4h", "hour", 5), ("7d", "day", 8)):
        trends = await trends_of(client, age)
        assert (trends.resolution, len(trends.points)) == (resolution, points)


async def test_a_long_time_in_hours_has_at_most_721_points(client):
    assert len((await trends_of(client, "30d", resolution="hour")).points) == 721


@pytest.mark.parametrize(
    ("since", "more", "message"),
    [
        ("31d", {}, "30 days at most"),
        ("0s", {}, "30 days at most"),
        (timedelta(hours=13), {"resolution": "minute"}, "12 hours at most"),
        ("1h", {"resolution": "week"}, "minute, hour, day"),
        ("1h", {"by": "owner"}, "queue, priority, task"),
        (datetime(2030, 1, 1, tzinfo=UTC), {}, "30 days at most"),
        (3, {}, "no unit"),
    ],
)
async def test_what_cannot_be_asked_says_why(client, since, more, message):
    with pytest.raises(BadInput, match=message):
        await trends_of(client, since, **more)


async def test_an_instant_is_as_good_as_an_age(client, world):
    trends = await trends_of(client, now_of(world) - 3 * HOUR - timedelta(milliseconds=20))
    assert trends.resolution == "minute"


async def test_a_wide_answer_is_bounded(client, store, world):
    await take_snapshot(store, now_of(world))
    for n in range(150):
        await client.submit(f"task {n:03}")
    await client.submit("task 149")
    trends = await trends_of(client, "30m", by="task")
    assert len(trends.groups) == MOST_GROUPS
    assert trends.groups[-1].name == "*"
    assert "task 149" in {group.name for group in trends.groups}
    assert sum(group.figures.submitted for group in trends.groups) == 151 == trends.figures.submitted
