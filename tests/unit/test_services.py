"""Services tick by a clock that only the test moves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from daybreak.client.duration_stats import DurationStats
from daybreak.core.errors import QueueFull, StoreUnavailable
from daybreak.core.model import Reason, Settlement, State
from daybreak.core.units import span
from daybreak.services import runner
from daybreak.services.janitor import Janitor
from daybreak.services.queue_watch import QueueWatch
from daybreak.services.reaper import MAX_LEASES, Reaper, reap_interval
from daybreak.services.scheduler import Scheduler
from daybreak.store.protocol import Beat, Claim, Exchange, Purge
from daybreak.stores.memory import MemoryStore

SECOND = timedelta(seconds=1)
LEASE = 10 * SECOND


async def claim(store, limit=1, lease_for=LEASE):
    asked = Claim(worker="w", limit=limit, lease_for=lease_for)
    return (await store.exchange(Exchange(claim=asked))).leases


async def tick_for(service, world, span: timedelta) -> None:
    end = world.steady() + span / timedelta(microseconds=1)
    while world.steady() < end:
        world.pass_time(max(await service.tick(), timedelta(milliseconds=1)))


# -- reaper ------------------------------------------------------------------------------------------------------------


async def test_the_job_of_a_dead_worker_runs_again_within_two_leases(client, store, world):
    job = await client.submit("t")
    await claim(store)
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, 2 * LEASE)
    found = await client.get(job)
    assert (found.state, found.attempt, found.lost) == (State.QUEUED, 1, 1)


async def test_events_of_a_takeover_name_the_reaper(client, store, world):
    job = await client.submit("t")
    await claim(store)
    await tick_for(Reaper(store, world, name="r"), world, 2 * LEASE)
    events = await client.history(job)
    assert [(e.kind, e.by) for e in events[-2:]] == [("lease_expired", "r"), ("retrying", "r")]


async def test_a_live_lease_is_left_alone(client, store, world):
    job = await client.submit("t")
    await claim(store)
    await tick_for(Reaper(store, world, name="r"), world, LEASE - SECOND)
    assert (await client.get(job)).state is State.RUNNING


@pytest.mark.parametrize(
    ("alone", "state", "reason"),
    [(None, State.QUEUED, None), (False, State.QUEUED, None), (True, State.FAILED, Reason.LOST)],
)
async def test_a_job_fails_because_of_deaths_only_if_it_died_alone(client, store, world, alone, state, reason):
    job = await client.submit("t", retry=10)
    reaper = Reaper(store, world, name="r")
    for _ in range(2):
        await claim(store)
        await tick_for(reaper, world, 2 * LEASE)
    [third] = await claim(store)
    await store.extend([Beat(seq=third.seq, fence=third.fence, lease_for=LEASE, alone=alone)])
    await tick_for(reaper, world, 2 * LEASE)
    found = await client.get(job)
    assert (found.state, found.reason, found.attempt, found.lost) == (state, reason, 3, 3)


async def test_a_new_reaper_first_watches_for_a_whole_lease(client, store, world):
    await client.submit("t")
    await claim(store)
    world.pass_time(10 * LEASE)
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, LEASE)
    assert (await client.count())[State.RUNNING] == 1
    await tick_for(reaper, world, 2 * SECOND)
    assert (await client.count())[State.QUEUED] == 1


class Outage(MemoryStore):
    def __init__(self, world) -> None:
        super().__init__(world)
        self.down = False
        self.slow = timedelta()

    async def reap(self, reap, **at):
        if self.down:
            raise StoreUnavailable("no answer")
        self._world.pass_time(self.slow)
        return await super().reap(reap, **at)


@pytest.fixture
def store(world):
    return Outage(world)


async def test_after_an_outage_every_holder_gets_one_lease_to_report(client, store, world):
    await client.submit("t")
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, 2 * LEASE)
    await claim(store)
    store.down = True
    for _ in range(60):
        with pytest.raises(StoreUnavailable):
            await reaper.tick()
        world.pass_time(SECOND)
    store.down = False
    await tick_for(reaper, world, LEASE)
    assert (await client.count())[State.RUNNING] == 1, "the holder could not have reported meanwhile"
    await tick_for(reaper, world, 2 * SECOND)
    assert (await client.count())[State.QUEUED] == 1


async def test_a_store_that_hangs_is_an_outage_too(client, store, world):
    await client.submit("t")
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, 2 * LEASE)
    [lease] = await claim(store)
    store.slow = LEASE - 2 * SECOND  # one call that hangs, during which no holder can report either
    await reaper.tick()
    store.slow = timedelta()
    await tick_for(reaper, world, LEASE - 2 * SECOND)
    assert (await client.get(lease.job)).state is State.RUNNING


async def test_a_reaper_that_is_suspended_while_it_asks_takes_nothing_over(client, store, world):
    """It had watched for long enough when it began to ask, but not by the time at which the store hears of it."""
    await client.submit("t")
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, 2 * LEASE)
    await claim(store)
    store.slow = 10 * LEASE
    await reaper.tick()
    store.slow = timedelta()
    assert (await client.count())[State.RUNNING] == 1
    await tick_for(reaper, world, LEASE - SECOND)
    assert (await client.count())[State.RUNNING] == 1, "the holder gets one lease to report"
    await tick_for(reaper, world, 4 * SECOND)
    assert (await client.count())[State.QUEUED] == 1


@pytest.mark.parametrize("lease_for", [SECOND, 7 * SECOND, timedelta(minutes=1)])
async def test_a_gap_of_more_than_half_a_lease_restarts_the_watch(client, store, world, lease_for):
    await client.submit("t")
    reaper = reaper_of(store, world, lease_for)
    await tick_for(reaper, world, 2 * lease_for)
    await claim(store, lease_for=lease_for)
    await reaper.tick()  # the last contact is now
    store.down = True
    back = world.steady() + 0.6 * span(
        lease_for
    )  # a holder that is back later could not report before its lease expires
    while world.steady() < back:
        with pytest.raises(StoreUnavailable):
            await reaper.tick()
        world.pass_time(lease_for / 50)
    store.down = False
    await tick_for(reaper, world, 0.9 * lease_for)
    assert (await client.count())[State.RUNNING] == 1


@pytest.mark.parametrize("lease_for", [SECOND, 7 * SECOND, timedelta(minutes=1)])
async def test_a_store_that_is_merely_slow_is_not_out_of_reach(client, store, world, lease_for):
    await client.submit("t")
    await claim(store, lease_for=lease_for)
    store.slow = 0.7 * reap_interval(lease_for)
    await tick_for(reaper_of(store, world, lease_for), world, 2 * lease_for)
    assert (await client.count())[State.QUEUED] == 1


async def test_a_long_reap_interval_is_not_taken_for_an_outage(client, store, world):
    await client.submit("t")
    await claim(store)
    await tick_for(Reaper(store, world, name="r", every=timedelta(minutes=1)), world, timedelta(minutes=3))
    assert (await client.count())[State.QUEUED] == 1


async def test_a_reaper_with_more_to_do_goes_on_at_once(client, store, world):
    await client.submit_many(client.spec("t") for _ in range(MAX_LEASES + 1))
    await claim(store, limit=MAX_LEASES + 1)
    reaper = Reaper(store, world, name="r")
    await tick_for(reaper, world, LEASE)
    world.pass_time(SECOND)
    assert await reaper.tick() == timedelta()
    assert await reaper.tick() == 2 * SECOND
    assert (await client.count())[State.QUEUED] == MAX_LEASES + 1


# -- recovery ----------------------------------------------------------------------------------------------------------


def reaper_of(store, world, lease_for=7 * SECOND) -> Reaper:
    [reaper] = [
        each
        for each in runner.default_services(store, world, name="r", lease_for=lease_for)
        if isinstance(each, Reaper)
    ]
    return reaper


async def taken_over_in(reaper, client, world) -> timedelta:
    began = world.steady()
    while (await client.count())[State.RUNNING]:
        delay = await reaper.tick()
        if (await client.count())[State.RUNNING]:
            world.pass_time(delay)
    return timedelta(microseconds=world.steady() - began)


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("lease_for", [SECOND, 7 * SECOND, timedelta(minutes=1)])
async def test_a_dead_workers_job_is_free_within_one_lease_and_one_reap_interval(
    client, store, world, lease_for, share
):
    await client.submit("t")
    reaper = reaper_of(store, world, lease_for)
    await tick_for(reaper, world, 2 * lease_for)
    left = await reaper.tick() * (1 - share)  # of the interval in which the worker dies
    world.pass_time(reap_interval(lease_for) - left)
    await claim(store, lease_for=lease_for)
    world.pass_time(left)
    assert await taken_over_in(reaper, client, world) + left <= lease_for + reap_interval(lease_for)
    assert reap_interval(lease_for) <= 2.4 * SECOND


async def test_a_lone_worker_started_again_frees_its_jobs_after_one_lease_of_watching(client, store, world):
    await client.submit("t")
    await claim(store, lease_for=7 * SECOND)  # killed
    world.pass_time(timedelta(hours=1))  # started again much later: no lease expires before it was watched
    found = await taken_over_in(reaper_of(store, world), client, world)
    assert 7 * SECOND <= found <= 9.4 * SECOND


class Dies(Reaper):
    def _settlement_of(self, lease) -> Settlement:
        raise KeyboardInterrupt


async def test_a_reaper_killed_before_it_settled_costs_one_more_lease_and_no_more(client, store, world):
    job = await client.submit("t")
    await claim(store, lease_for=7 * SECOND)
    with pytest.raises(KeyboardInterrupt):
        await tick_for(Dies(store, world, name="d", every=2 * SECOND, lease_for=7 * SECOND), world, 10 * SECOND)
    assert (await client.get(job)).worker == "d"
    assert await taken_over_in(reaper_of(store, world), client, world) <= 9.4 * SECOND
    found = await client.get(job)
    assert (found.attempt, found.lost) == (1, 1)


# -- scheduler ---------------------------------------------------------------------------------------------------------


async def test_the_scheduler_sleeps_until_the_next_job_falls_due(client, store, world):
    scheduler = Scheduler(store)
    assert await scheduler.tick() == 6 * SECOND
    job = await client.submit("t", delay="300ms")
    assert await scheduler.tick() == timedelta(milliseconds=300)
    world.pass_time(timedelta(milliseconds=300))
    assert await scheduler.tick() == 6 * SECOND
    assert (await client.get(job)).state is State.QUEUED


@pytest.mark.parametrize("wait", [{"delay": "1s"}, {"expires_in": "1s"}], ids=["due", "expired"])
@pytest.mark.parametrize("later", ["1h", None])
async def test_a_job_submitted_while_the_scheduler_sleeps_waits_for_one_interval_at_most(
    client, store, world, wait, later
):
    if later:
        await client.submit("t", delay=later)
    scheduler = Scheduler(store)
    sleeps_for = await scheduler.tick()
    job = await client.submit("t", **wait)
    before = (await client.get(job)).state
    assert sleeps_for <= 6 * SECOND
    world.pass_time(sleeps_for)
    await scheduler.tick()
    assert (await client.get(job)).state is not before


async def test_a_job_that_waited_too_long_expires(client, store, world):
    job = await client.submit("t", expires_in="1m")
    await tick_for(Scheduler(store), world, timedelta(minutes=1))
    assert (await client.get(job)).state is State.QUEUED
    await tick_for(Scheduler(store), world, 6 * SECOND)
    found = await client.get(job)
    assert (found.state, found.reason) == (State.FAILED, Reason.EXPIRED)


async def test_a_scheduler_with_more_to_do_goes_on_at_once(client, store, world):
    await client.submit_many(client.spec("t", delay="1s") for _ in range(501))
    world.pass_time(SECOND)
    scheduler = Scheduler(store)
    assert await scheduler.tick() == timedelta()
    assert await scheduler.tick() == 6 * SECOND
    assert (await client.count())[State.QUEUED] == 501


# -- janitor -----------------------------------------------------------------------------------------------------------


async def test_the_janitor_removes_jobs_after_their_keep_time(client, store, world):
    job = await client.submit("t", keep="1h")
    await client.cancel(job)
    janitor = Janitor(store, world, name="j")
    await janitor.tick()
    assert (await client.count())[State.CANCELLED] == 1
    world.pass_time(timedelta(hours=1))
    assert await janitor.tick() == timedelta(minutes=1)
    assert (await client.count())[State.CANCELLED] == 0


async def test_a_janitor_with_more_to_do_goes_on_at_once(client, store, world):
    await client.submit_many(client.spec("t", keep="1h") for _ in range(5))
    await client.amend_all("cancel")
    world.pass_time(timedelta(hours=1))
    janitor = Janitor(store, world, name="j", purge=Purge(limit=4))
    assert await janitor.tick() == timedelta()
    assert await janitor.tick() == timedelta(minutes=1)


async def test_the_janitor_finishes_a_reordering_that_was_interrupted(client, store, world):
    old = await client.submit("t", priority="low")
    world.pass_time(timedelta(hours=1))
    await client.submit("t", priority="high")
    real, client.rerank_queue = client.rerank_queue, _interrupted
    with pytest.raises(KeyboardInterrupt):
        await client.set_queue("default", discipline="aging", patience="1m")
    client.rerank_queue = real
    assert not (await client.queue("default")).ranked
    await Janitor(store, world, name="j").tick()
    assert (await client.queue("default")).ranked
    assert [lease.job for lease in await claim(store)] == [old]


async def _interrupted(name: str):
    raise KeyboardInterrupt


# -- services ----------------------------------------------------------------------------------------------------------


class Counting:
    def __init__(self, error: Exception | None = None, until: int = 20) -> None:
        self.ticks, self.error, self.until = 0, error, until
        self.enough = asyncio.Event()

    async def tick(self) -> timedelta:
        self.ticks += 1
        if self.ticks >= self.until:
            self.enough.set()
        if self.error is not None:
            raise self.error
        return SECOND


async def run_until_enough(world, *services: Counting) -> None:
    running = asyncio.ensure_future(runner.run(services, world))
    everyone = asyncio.gather(*(service.enough.wait() for service in services))
    async with asyncio.timeout(10):
        await asyncio.wait([running, everyone], return_when=asyncio.FIRST_COMPLETED)
    stopped = running.done()
    running.cancel()
    everyone.cancel()
    await asyncio.gather(running, everyone, return_exceptions=True)
    assert not stopped, "a service gave up"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(StoreUnavailable("no answer"), id="a store error"),
        pytest.param(RuntimeError("a bug"), id="any other error"),
    ],
)
async def test_a_service_that_fails_is_retried_and_does_not_stop_the_others(world, caplog, error):
    good, bad = Counting(), Counting(error)
    await run_until_enough(world, good, bad)
    assert "counting: " in caplog.text


async def test_the_pauses_of_a_failing_service_grow_and_are_bounded(world):
    await run_until_enough(world, Counting(StoreUnavailable("no answer")))
    assert world.slept[0] <= timedelta(milliseconds=150)
    assert runner.MAX_PAUSE / 2 < max(world.slept) <= 1.5 * runner.MAX_PAUSE


def test_every_worker_runs_all_services(store, world):
    names = [type(service).__name__ for service in runner.default_services(store, world, name="w")]
    assert names == ["Reaper", "Scheduler", "ScheduleTicker", "SagaDriver", "Janitor", "TrendSampler", "QueueWatch"]


class CountingStore:
    """A store that counts the calls of its methods."""

    def __init__(self, store) -> None:
        self._store, self.times = store, 0

    def __getattr__(self, name):
        self.times += 1
        return getattr(self._store, name)


async def test_the_services_of_an_idle_worker_call_the_store_less_than_three_times_in_four_seconds(store, world):
    counting = CountingStore(store)
    for service in runner.default_services(counting, world, name="w"):
        await tick_for(service, world, timedelta(hours=1))
    assert counting.times / 3600 < 0.75


async def test_the_janitor_removes_durations_unused_for_two_days(store, world):
    learning = DurationStats(store, world)
    for name, later in (("old", timedelta(hours=47)), ("new", timedelta())):
        learning.note(f"connection {name}", SECOND, 1.0)
        await learning.sync()
        world.pass_time(later)
    janitor = Janitor(store, world, name="j")
    world.pass_time(timedelta(hours=3))
    await janitor.tick()
    assert [record.name for record in await store.records("durations")] == ["connection new"]


# -- queue watch -------------------------------------------------------------------------------------------------------


async def told_of_queues(store):
    events = (await store.events()).events
    return [(event.kind, event.queue, event.by) for event in events if event.kind.startswith("queue_")]


async def test_an_empty_queue_is_told_once_by_one_of_many_workers(client, store, world):
    watches = [QueueWatch(store, world, name=name) for name in ("w1", "w2")]
    first = await client.submit("t")
    await client.submit("t", queue="other")
    for watch in watches:
        await watch.tick()
    assert await told_of_queues(store) == []
    await client.cancel(first)
    for watch in [*watches, *watches, QueueWatch(store, world, name="started later")]:
        await watch.tick()
    assert await told_of_queues(store) == [("queue_empty", "default", "w1")]


async def test_a_queue_that_was_filled_again_is_told_again(client, store, world):
    """Also if its jobs came and went between two ticks, and if they are old ones that were retried."""
    watch = QueueWatch(store, world, name="w1")
    job = await client.submit("t")
    await client.cancel(job)
    await watch.tick()
    await client.retry(job)
    await watch.tick()
    await client.cancel(job)
    await watch.tick()
    await client.cancel(await client.submit("t"))
    await watch.tick()
    await watch.tick()
    assert await told_of_queues(store) == [("queue_empty", "default", "w1")] * 3


async def test_a_full_queue_is_told_again_after_it_had_room(client, store, world):
    watch = QueueWatch(store, world, name="w1")
    await client.set_queue("default", capacity=5)
    jobs = [await client.submit("t") for _ in range(5)]

    async def is_refused() -> None:
        with pytest.raises(QueueFull):
            await client.submit("t")
        await watch.tick()

    await is_refused()
    await is_refused()
    assert [kind for kind, *_ in await told_of_queues(store)] == ["queue_full"]
    await client.cancel(jobs[0])  # one free place of five is room
    await watch.tick()
    await client.submit("t")
    await is_refused()
    assert [kind for kind, *_ in await told_of_queues(store)] == ["queue_full"] * 2


async def test_an_idle_store_is_asked_for_its_totals_only(client, store, world, monkeypatch):
    watch = QueueWatch(store, world, name="w1")
    await client.cancel(await client.submit("t"))
    await watch.tick()
    for other in ("count", "records", "put"):
        monkeypatch.delattr(MemoryStore, other)
    await watch.tick()
