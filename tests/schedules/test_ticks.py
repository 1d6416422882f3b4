"""Each tick of a schedule becomes one job, on every store, whatever is killed and however the clock jumps."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from ticking import (
    START,
    LosesAnswers,
    assert_once,
    declaration,
    declare,
    every,
    fired,
    open_store,
    text,
    tick,
    tick_and_die,
    tick_together,
    tick_until_done,
)

from daybreak.client.client import Client
from daybreak.client.schedule_changes import (
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule_now,
    save_schedule,
)
from daybreak.client.schedule_migration import move_schedules
from daybreak.client.schedule_record import MAX_ARGS, read_schedules
from daybreak.core.errors import BadInput, OutcomeUnknown, Refused, ScheduleNotFound, TooLarge
from daybreak.core.model import JobSpec, Put, State
from daybreak.services import runner
from daybreak.services.schedule_ticker import IDLE_INTERVAL, POLL_INTERVAL, REWIND_AFTER, ScheduleTicker
from daybreak.store.protocol import SCHEDULE_KIND, Claim, Exchange, Query
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import HandClock

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def clock():
    return HandClock(START)


@pytest.fixture
async def memory():
    async with open_store("memory", None) as store:
        yield store


# -- once, whatever is killed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [True, False], ids=["with keys", "by the record alone"])
async def test_a_thousand_ticks_become_a_thousand_jobs_while_three_tickers_are_killed(store, clock, keys):
    await declare(store, clock, "s", every="1m", catch_up="all", overlap="allow")
    chance = random.Random(7)
    while clock.now < START + 1000 * MINUTE:
        clock.advance(min(MINUTE * chance.choice([0.3, 1, 5, 30, 120]), START + 1000 * MINUTE - clock.now))
        cuts = [chance.choice([1, 2, 3, 4, 5, 6, None]) for _ in range(3)]
        await tick_together(*(tick_and_die(store, clock, cut, keys=keys) for cut in cuts))
    await tick_until_done(store, clock)
    assert_once(await fired(store, "s"), every(MINUTE, 1000))


async def test_a_ticker_that_is_killed_at_each_call_in_turn_leaves_nothing_half(store, clock):
    await declare(store, clock, "s", every="1m", overlap="allow")
    expected = 0
    for cut in [*range(1, 9), *range(1, 9)]:
        clock.advance(MINUTE)
        expected += 1
        await tick_and_die(store, clock, cut)
        await tick_and_die(store, clock, None)
        assert_once(await fired(store, "s"), every(MINUTE, expected))
    [stored] = await read_schedules(store)
    assert (stored.schedule.ticks, stored.schedule.through) == (expected, clock.now)


async def test_ticks_whose_answer_is_lost_are_not_fired_again(store, clock):
    await declare(store, clock, "s", every="1m", catch_up="all", overlap="allow")
    ticker = ScheduleTicker(LosesAnswers(store, keys=False), clock)
    for _ in range(30):
        clock.advance(MINUTE)
        try:
            await ticker.tick()
        except OutcomeUnknown:
            continue
    await tick_until_done(store, clock)
    assert_once(await fired(store, "s"), every(MINUTE, 30))


async def test_a_store_that_lost_its_last_writes_runs_no_tick_twice(store, clock):
    """As Redis may after a power cut: the record is older than the jobs."""
    await declare(store, clock, "s", every="1m", catch_up="all", overlap="allow")
    [before] = await store.records(SCHEDULE_KIND)
    clock.advance(10 * MINUTE)
    await tick_until_done(store, clock)
    await store.put([Put(kind=SCHEDULE_KIND, name="s", value=before.value)])
    clock.advance(MINUTE)
    await tick_until_done(store, clock)
    assert_once(await fired(store, "s"), every(MINUTE, 11))


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY], ids=["an hour on", "an hour back", "a day on", "a day back"])
@pytest.mark.parametrize("returns", [True, False])
async def test_a_jump_of_the_clock_doubles_no_tick_and_stops_no_schedule(memory, clock, jump, returns):
    await declare(memory, clock, "s", every="10m", catch_up="all", overlap="allow")
    seen = clock.now
    steps = [MINUTE] * 30 + [jump] + [MINUTE] * 90 + ([-jump] if returns else []) + [MINUTE] * 90
    ticker = ScheduleTicker(memory, clock)
    for step in steps:
        if step == MINUTE:
            clock.advance(step)
        else:
            clock.jump(step)
        await ticker.tick()
        seen = max(seen, clock.now)
    found = await fired(memory, "s")
    first_to_last = every(10 * MINUTE, (seen - START) // (10 * MINUTE))
    earlier = [tick for tick in found if tick <= text(START)]  # of a clock that was set back to before the start
    assert_once([tick for tick in found if tick > text(START)], first_to_last)
    assert len(set(earlier)) == len(earlier)
    assert (await ticker.tick()) <= POLL_INTERVAL


async def test_a_clock_that_was_years_ahead_for_a_moment_does_not_stop_a_schedule(memory, clock):
    await declare(memory, clock, "s", every="10m", overlap="allow")
    clock.jump(4 * 365 * DAY)
    await tick(memory, clock)
    clock.jump(-4 * 365 * DAY)
    ticker = ScheduleTicker(memory, clock)
    while clock.now < START + HOUR:
        await ticker.tick()
        clock.advance(REWIND_AFTER)
    await ticker.tick()
    assert [one for one in await fired(memory, "s") if one < "2027"] == every(10 * MINUTE, 6)


async def test_clocks_of_machines_that_differ_fire_each_tick_once_and_no_job_starts_early(memory):
    slow, fast = HandClock(START), HandClock(START + 5 * MINUTE)
    await declare(memory, slow, "s", every="1m", overlap="allow", catch_up="all")
    for _ in range(30):
        for clock in (slow, fast):
            clock.advance(MINUTE)
            await tick(memory, clock)
    assert_once(await fired(memory, "s"), every(MINUTE, 35))
    for job in (await memory.find(Query(limit=100))).jobs:
        assert text(job.spec.run_at) == job.spec.meta["tick"]


ZONES = {
    "Europe/Berlin": [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)],
    "America/New_York": [datetime(2026, 3, 8, 6, tzinfo=UTC), datetime(2026, 11, 1, 5, tzinfo=UTC)],
    "Australia/Lord_Howe": [datetime(2026, 4, 4, 14, tzinfo=UTC), datetime(2026, 10, 3, 14, tzinfo=UTC)],
}


@pytest.mark.parametrize(("zone", "change"), [(zone, change) for zone, days in ZONES.items() for change in days])
async def test_both_changes_of_the_clock_fire_each_daily_tick_once_and_each_half_hour(memory, zone, change):
    clock = HandClock(change - 2 * DAY)
    await declare(memory, clock, "daily", cron="15 2 * * *", tz=zone, overlap="allow")
    await declare(memory, clock, "half", cron="*/30 * * * *", tz=zone, overlap="allow")
    while clock.now < change + 2 * DAY:
        clock.advance(10 * MINUTE)
        await tick_together(tick_and_die(memory, clock, 4), tick_and_die(memory, clock, None))
        await tick(memory, clock)
    days = [datetime.fromisoformat(one).astimezone(ZoneInfo(zone)).date() for one in await fired(memory, "daily")]
    assert days == sorted(set(days))
    assert days[-1] - days[0] == (len(days) - 1) * DAY
    assert_once(await fired(memory, "half"), every(30 * MINUTE, 192, change - 2 * DAY))


async def test_ten_years_in_five_zones_with_three_tickers_that_are_killed(memory):
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    clock, chance = HandClock(start), random.Random(3)
    zones = [*ZONES, "Asia/Kathmandu", "Africa/Cairo"]
    for zone in zones:
        await declare(memory, clock, zone, cron="30 2 * * *", tz=zone, overlap="allow", catch_up="all")
    while clock.now < end:
        clock.advance(DAY * chance.choice([0.2, 0.5, 1, 3, 20]))
        if chance.random() < 0.1:
            clock.jump(chance.choice([-1, 1]) * 5 * MINUTE)
        cuts = [chance.choice([*range(1, 8), None]) for _ in range(3)]
        await tick_together(*(tick_and_die(memory, clock, cut, keys=False) for cut in cuts))
    await tick_until_done(memory, clock)
    for zone in zones:
        ticks = await fired(memory, zone)
        days = [datetime.fromisoformat(one).astimezone(ZoneInfo(zone)).date() for one in ticks]
        assert days == sorted(set(days))
        assert days[-1] - days[0] == (len(days) - 1) * DAY
        assert len(days) >= 3650


# -- what is caught up, what overlaps ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "n"), [("skip", 0), ("latest", 1), ("all", 5)])
async def test_missed_ticks_are_caught_up_as_declared(store, clock, catch_up, n, caplog):
    await declare(store, clock, "s", cron="0 * * * *", catch_up=catch_up, overlap="allow")
    clock.advance(5 * HOUR + 10 * MINUTE)
    await tick_until_done(store, clock)
    assert await fired(store, "s") == every(HOUR, 5)[5 - n :]
    [stored] = await read_schedules(store)
    assert (stored.schedule.ticks, stored.schedule.skipped) == (n, 5 - n)
    assert ("skipped" in caplog.text) == (n < 5)
    clock.advance(50 * MINUTE)
    await tick_until_done(store, clock)
    assert await fired(store, "s") == every(HOUR, 6)[5 - n :]


async def test_a_long_outage_is_caught_up_in_pieces_that_leave_room_for_others(memory, clock):
    await declare(memory, clock, "a", every="1s", catch_up="all", overlap="allow")
    await declare(memory, clock, "b", every="1s", catch_up="all", overlap="allow")
    clock.advance(2500 * SECOND)
    assert (await tick(memory, clock)) <= timedelta(milliseconds=1)
    assert [len(await fired(memory, name)) for name in ("a", "b")] == [1000, 1000]
    await tick_until_done(memory, clock)
    assert_once(await fired(memory, "a"), every(SECOND, 2500))


async def start_next(store):
    """Claim the next job, and end it: the function completes it."""
    from daybreak.core.model import Done
    from daybreak.policy.settle import settle

    leases = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases

    async def complete():
        await store.exchange(Exchange(settle=[settle(lease, Done(b"null"), chance=0.5, by="w") for lease in leases]))

    return leases, complete


async def test_a_tick_is_skipped_while_the_job_of_the_last_one_has_not_ended(store, clock):
    await declare(store, clock, "s", every="1m", overlap="skip")
    clock.advance(MINUTE)
    await tick(store, clock)
    _, complete = await start_next(store)
    clock.advance(MINUTE)
    await tick(store, clock)
    assert await fired(store, "s") == every(MINUTE, 1)
    await complete()
    clock.advance(MINUTE)
    await tick(store, clock)
    assert await fired(store, "s") == [every(MINUTE, 3)[0], every(MINUTE, 3)[2]]


async def test_queued_ticks_run_one_after_the_other(store, clock):
    await declare(store, clock, "s", every="1m", overlap="queue")
    ran = []
    for _ in range(3):
        clock.advance(MINUTE)
        await tick(store, clock)
    for _ in range(3):
        [lease], complete = await start_next(store)
        assert (await start_next(store))[0] == []
        ran.append(lease.spec.meta["tick"])
        await complete()
    assert ran == every(MINUTE, 3)


async def test_ticks_that_may_overlap_run_at_once(store, clock):
    await declare(store, clock, "s", every="1m", overlap="allow")
    for _ in range(3):
        clock.advance(MINUTE)
        await tick(store, clock)
    assert [len((await start_next(store))[0]) for _ in range(4)] == [1, 1, 1, 0]


async def test_jitter_delays_the_jobs_and_not_the_ticks(memory, clock):
    await declare(memory, clock, "s", every="10m", overlap="allow", jitter="5m")
    for _ in range(20):
        clock.advance(10 * MINUTE)
        await tick(memory, clock)
    jobs = (await memory.find(Query(limit=100))).jobs
    delays = [job.spec.run_at - datetime.fromisoformat(job.spec.meta["tick"]) for job in jobs]
    assert len(set(delays)) == 20
    assert all(timedelta() <= delay < 5 * MINUTE for delay in delays)


# -- pause, change, remove ---------------------------------------------------------------------------------------------


async def test_ticks_of_a_pause_are_not_caught_up(store, clock):
    client = Client(store, by="anna", world=clock)
    await declare(store, clock, "s", every="1m", overlap="allow", catch_up="all")
    paused = await pause_schedule(client, "s")
    assert (paused.paused_by, paused.paused_at) == ("anna", clock.now)
    clock.advance(10 * MINUTE)
    await tick_until_done(store, clock)
    assert await fired(store, "s") == []
    await resume_schedule(client, "s")
    await tick_until_done(store, clock)
    clock.advance(MINUTE)
    await tick_until_done(store, clock)
    assert await fired(store, "s") == every(MINUTE, 1, START + 10 * MINUTE)


async def test_a_change_of_the_arguments_keeps_the_ticks_and_a_change_of_the_timing_begins_anew(store, clock):
    client = Client(store, by="anna", world=clock)
    await declare(store, clock, "s", every="1m", overlap="allow", catch_up="all")
    clock.advance(3 * MINUTE)
    changed = declaration(every="1m", overlap="allow", catch_up="all", args=b'{"n":2}')
    assert await save_schedule(client, "s", changed) == "changed"
    assert await save_schedule(client, "s", changed) == "same"
    await tick_until_done(store, clock)
    assert len(await fired(store, "s")) == 3
    assert {job.spec.args for job in (await store.find(Query())).jobs} == {b'{"n":2}'}
    clock.advance(2 * MINUTE)
    await save_schedule(client, "s", declaration(every="30s", overlap="allow", catch_up="all"))
    await tick_until_done(store, clock)
    assert len(await fired(store, "s")) == 3


async def test_a_schedule_can_be_run_now_and_respects_its_overlap(store, clock):
    client = Client(store, by="anna", world=clock)
    await declare(store, clock, "s", every="1h", args=b'{"n":1}')
    job, is_new = await run_schedule_now(client, "s")
    again, is_new_again = await run_schedule_now(client, "s")
    assert (again, is_new, is_new_again) == (job, True, False)
    found = await client.get(job)
    assert (found.spec.by, found.spec.args, found.state) == ("anna", b'{"n":1}', State.QUEUED)


async def test_a_removed_schedule_fires_no_more_and_its_jobs_stay(store, clock):
    client = Client(store, world=clock)
    await declare(store, clock, "s", every="1m", overlap="queue")
    clock.advance(MINUTE)
    await tick(store, clock)
    await remove_schedule(client, "s")
    clock.advance(MINUTE)
    assert await tick(store, clock) == IDLE_INTERVAL
    assert await fired(store, "s") == every(MINUTE, 1)
    with pytest.raises(ScheduleNotFound, match="no schedule named 's'"):
        await pause_schedule(client, "s")


async def test_a_schedule_that_cannot_work_is_refused(memory, clock, monkeypatch):
    client = Client(memory, world=clock)
    for bad, error in [
        (("x" * 151, declaration(every="1m")), BadInput),
        (("s", declaration(every="1m", args=b'"' + b"x" * MAX_ARGS + b'"')), TooLarge),
        (("s", declaration(every="1m", queue="")), BadInput),
    ]:
        with pytest.raises(error):
            await save_schedule(client, *bad)
    monkeypatch.setattr("daybreak.client.schedule_changes.MAX_SCHEDULES", 2)
    for name in ("a", "b", "a"):
        await save_schedule(client, name, declaration(every="1m"))
    with pytest.raises(Refused, match="takes no more"):
        await save_schedule(client, "c", declaration(every="1m"))


async def test_a_record_that_cannot_be_read_is_reported_once_and_stops_no_other(memory, clock, caplog):
    await memory.put([Put(kind=SCHEDULE_KIND, name="newer", value=b'{"declaration":{"moon":true}}')])
    await declare(memory, clock, "zone", cron="* * * * *", tz="Europe/Berlin", overlap="allow")
    [zone] = await memory.records(SCHEDULE_KIND, "zone")
    await memory.put([replace(Put(kind=SCHEDULE_KIND, name="zone", value=zone.value.replace(b"Berlin", b"Utopia")))])
    await declare(memory, clock, "s", every="1m", overlap="allow")
    ticker = ScheduleTicker(memory, clock)
    for _ in range(3):
        clock.advance(MINUTE)
        await ticker.tick()
    assert await fired(memory, "s") == every(MINUTE, 3)
    assert caplog.text.count("schedule newer cannot be run") == 1
    assert caplog.text.count("schedule zone cannot be run by this process: tz='Europe/Utopia'") == 1


# -- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [*range(1, 12), None])
async def test_a_moved_schedule_fires_each_tick_in_one_of_the_two_stores_also_if_the_mover_is_killed(clock, cut):
    from ticking import CuttableStore, Killed

    source, target = await MemoryStore().open(), await MemoryStore().open()
    await declare(source, clock, "s", every="1m", overlap="allow", catch_up="all")

    async def both():
        clock.advance(MINUTE)
        await tick_until_done(source, clock)
        await tick_until_done(target, clock)

    async def no_contents(digests):
        assert not digests

    await both()
    try:
        cuttable = [CuttableStore(one, cut_at=cut) for one in (source, target)]
        await move_schedules(*cuttable, queue=None, copy_contents=no_contents)
    except Killed:
        await both()
    moved = await move_schedules(source, target, queue=None, copy_contents=no_contents)
    assert moved in [(1, {}), (0, {})]
    await both()
    assert await source.records(SCHEDULE_KIND) == []
    total = await fired(source, "s") + await fired(target, "s")
    assert_once(sorted(total), every(MINUTE, (clock.now - START) // MINUTE))
    assert text(clock.now) in await fired(target, "s")


async def test_a_schedule_that_the_target_has_otherwise_stays_and_goes_on(clock):
    source, target = await MemoryStore().open(), await MemoryStore().open()
    await declare(source, clock, "s", every="1m", overlap="allow")
    await declare(target, clock, "s", every="2m", overlap="allow")

    async def no_contents(digests):
        assert not digests

    moved = await move_schedules(source, target, queue=None, copy_contents=no_contents)
    assert moved == (0, {"s": "the target has another schedule of this name"})
    clock.advance(MINUTE)
    await tick(source, clock)
    assert await fired(source, "s") == every(MINUTE, 1)


# -- the service -------------------------------------------------------------------------------------------------------


async def test_a_new_schedule_wakes_a_sleeping_ticker(store):
    """In real time: without the wake-up, the ticker would sleep for a minute."""
    import asyncio

    from daybreak.system.ports import RealWorld

    world = RealWorld()
    service = asyncio.create_task(runner.run([ScheduleTicker(store, world)], world))
    client = Client(store, world=world)
    try:
        async with asyncio.timeout(50):
            await asyncio.sleep(0)
            await save_schedule(client, "s", declaration(every="1s", overlap="allow"))
            while not await fired(store, "s"):  # noqa: ASYNC110 - another connection writes
                await asyncio.sleep(0.05)
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)


async def test_without_schedules_a_ticker_asks_once_a_minute(memory, clock):
    assert await tick(memory, clock) == IDLE_INTERVAL


async def test_a_ticker_sleeps_until_the_next_tick_but_notices_a_clock_that_jumps(memory, clock):
    await declare(memory, clock, "s", cron="0 0 * * *")
    assert await tick(memory, clock) == POLL_INTERVAL
    clock.advance(12 * HOUR - 3 * SECOND)
    assert await tick(memory, clock) == 3 * SECOND


def test_the_job_of_a_tick_is_marked():
    from daybreak.client.schedule_record import job_of_tick

    spec = job_of_tick("nightly", declaration(every="1m"), START, "id")
    assert isinstance(spec, JobSpec)
    assert (spec.key, spec.by, spec.unique) == (
        "schedule/nightly/2026-01-31T12:00:00Z", "schedule nightly", "schedule/nightly"
    )  # fmt: skip
    assert spec.tags == ("schedule:nightly",)
    assert spec.meta == {"schedule": "nightly", "tick": "2026-01-31T12:00:00Z"}
