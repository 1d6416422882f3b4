"""When schedules tick: cron expressions over changes of the clock, intervals, instants, and what is caught up."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybreak.core.errors import BadInput
from daybreak.policy.schedules.cron_times import cron_words, next_cron_tick, parse_cron
from daybreak.policy.schedules.due_ticks import MAX_COUNTED, due_ticks, is_ahead, jitter_of
from daybreak.policy.schedules.timing import (
    Timing,
    count_ticks,
    latest_tick,
    next_tick,
    parse_timing,
    ticks,
    ticks_until,
)
from daybreak.policy.schedules.words import interval_words, preview, timing_words

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
# The days around the changes of the clock in 2026, in UTC: by an hour, the other way round, by half an hour, never.
CHANGES = {
    "Europe/Berlin": (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)),
    "America/New_York": (datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)),
    "Australia/Lord_Howe": (datetime(2026, 10, 3, 15, 30, tzinfo=UTC), datetime(2026, 4, 4, 15, tzinfo=UTC)),
    "America/St_Johns": (datetime(2026, 3, 8, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 4, 30, tzinfo=UTC)),
    "Africa/Cairo": (datetime(2026, 4, 23, 22, tzinfo=UTC), datetime(2026, 10, 29, 21, tzinfo=UTC)),
    "UTC": (datetime(2026, 3, 29, 1, tzinfo=UTC),),
}
ZONES_AND_CHANGES = [(zone, change) for zone, changes in CHANGES.items() for change in changes]


def local_ticks(cron: str, zone: str, after: datetime, n: int) -> list[str]:
    found = itertools.islice(ticks(parse_timing(cron=cron, tz=zone), after), n)
    return [f"{tick.astimezone(ZoneInfo(zone)):%d. %H:%M %z}" for tick in found]


# -- cron against a second implementation ------------------------------------------------------------------------------


def field_matches(field: str, value: int) -> bool:
    if field.startswith("*"):
        return value % int(field[2:] or 1) == 0
    return str(value) in field.split(",")


def shown_ticks(minute: str, hour: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """Every minute in (after, until] at which the clock on the wall of the zone shows a matching time."""
    start = after.replace(second=0, microsecond=0) + MINUTE
    minutes = (start + n * MINUTE for n in range((until - start) // MINUTE + 1))
    shown = ((each, each.astimezone(ZoneInfo(zone))) for each in minutes)
    return [at for at, wall in shown if field_matches(minute, wall.minute) and field_matches(hour, wall.hour)]


def time_of_day_ticks(minute: str, hour: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """Every matching time of day at its first occurrence, or at the first minute that exists after it."""
    found = set()
    day = after.astimezone(ZoneInfo(zone)).date() - DAY
    while day <= until.astimezone(ZoneInfo(zone)).date() + DAY:
        for n in range(24 * 60):
            if field_matches(minute, n % 60) and field_matches(hour, n // 60):
                found.add(first_minute_from(datetime.combine(day, time(n // 60, n % 60)), zone))
        day += DAY
    return sorted(tick for tick in found if after < tick <= until)


def first_minute_from(naive: datetime, zone: str) -> datetime:
    while True:
        instant = naive.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
        if instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == naive:
            return instant
        naive += MINUTE


NUMBERS = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, found)))
HOURS = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, found)))
STEPS = st.sampled_from(["*", "*/2", "*/7", "*/15", "*/20"])
HOUR_STEPS = st.sampled_from(["*", "*/2", "*/3"])


@settings(max_examples=150, deadline=None)
@given(
    where=st.sampled_from(ZONES_AND_CHANGES),
    fields=st.one_of(st.tuples(NUMBERS, HOURS), st.tuples(NUMBERS, HOUR_STEPS), st.tuples(STEPS, HOURS | HOUR_STEPS)),
    offset=st.integers(-30 * 3600, 6 * 3600),
)
def test_the_ticks_around_a_change_of_the_clock_are_those_of_a_plain_count(where, fields, offset):
    (zone, change), (minute, hour) = where, fields
    after = change + timedelta(seconds=offset)
    until = after + timedelta(hours=30)
    is_time_of_day = not minute.startswith("*") and not hour.startswith("*")
    expected = (time_of_day_ticks if is_time_of_day else shown_ticks)(minute, hour, zone, after, until)
    timing = parse_timing(cron=f"{minute} {hour} * * *", tz=zone)
    assert ticks_until(timing, after, until, 10_000) == expected


@settings(max_examples=100, deadline=None)
@given(
    where=st.sampled_from(ZONES_AND_CHANGES),
    cron=st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 */2 * * *", "15,45 1-3 * * *", "*/10 2 * * 0"]),
    offset=st.integers(-48 * 3600, 24 * 3600),
    cut=st.integers(0, 48 * 3600),
)
def test_walking_in_two_parts_gives_the_same_ticks(where, cron, offset, cut):
    """What a scheduler does that stops anywhere, and another that continues there."""
    zone, change = where
    timing = parse_timing(cron=cron, tz=zone)
    after, until = change + timedelta(seconds=offset), change + timedelta(seconds=offset) + 2 * DAY
    between = after + timedelta(seconds=cut)
    whole = ticks_until(timing, after, until, 10_000)
    parts = ticks_until(timing, after, between, 10_000) + ticks_until(timing, between, until, 10_000)
    assert parts == whole
    assert latest_tick(timing, after, until) == (whole[-1] if whole else None)
    assert all(before < tick for before, tick in itertools.pairwise(whole))


def test_a_skipped_time_of_day_ticks_when_the_gap_ends():
    before = datetime(2026, 3, 27, 12, tzinfo=UTC)
    expected = ["28. 02:30 +0100", "29. 03:00 +0200", "30. 02:30 +0200"]
    assert local_ticks("30 2 * * *", "Europe/Berlin", before, 3) == expected
    before = datetime(2026, 10, 2, 18, tzinfo=UTC)  # Lord Howe: 02:00 becomes 02:30
    expected = ["04. 02:30 +1100", "05. 02:15 +1100"]
    assert local_ticks("15 2 * * *", "Australia/Lord_Howe", before, 2) == expected


def test_two_skipped_times_and_the_end_of_the_gap_are_one_tick():
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    expected = ["29. 03:00 +0200", "30. 02:00 +0200", "30. 02:30 +0200", "30. 03:00 +0200", "30. 03:30 +0200"]
    found = local_ticks("0,30 2,3 * * *", "Europe/Berlin", before, 6)
    assert found == [expected[0], "29. 03:30 +0200", *expected[1:]]


def test_a_time_of_day_that_occurs_twice_ticks_once():
    before = datetime(2026, 10, 24, 12, tzinfo=UTC)
    expected = ["25. 02:30 +0200", "26. 02:30 +0100"]
    assert local_ticks("30 2 * * *", "Europe/Berlin", before, 2) == expected
    second_time = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10, the second time
    assert local_ticks("30 2 * * *", "Europe/Berlin", second_time, 1) == ["26. 02:30 +0100"]


def test_an_hour_that_occurs_twice_has_its_quarters_twice_and_a_skipped_one_none():
    found = local_ticks("*/30 * * * *", "Europe/Berlin", datetime(2026, 10, 24, 23, 59, tzinfo=UTC), 5)
    expected = ["25. 02:00 +0200", "25. 02:30 +0200", "25. 02:00 +0100", "25. 02:30 +0100", "25. 03:00 +0100"]
    assert found == expected
    found = local_ticks("*/30 * * * *", "America/New_York", datetime(2026, 3, 8, 6, 29, tzinfo=UTC), 3)
    assert found == ["08. 01:30 -0500", "08. 03:00 -0400", "08. 03:30 -0400"]


def test_half_an_hour_back_leaves_no_tick_out():
    """On Lord Howe, 02:00 becomes 01:30. A walk over local hours would miss the 02:00 after that."""
    found = local_ticks("0 */2 * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, 13, 30, tzinfo=UTC), 2)
    assert found == ["05. 02:00 +1030", "05. 04:00 +1030"]


def test_a_day_that_a_zone_left_out_ticks_at_the_start_of_the_next():
    found = local_ticks("0 9 * * *", "Pacific/Apia", datetime(2011, 12, 28, 20, tzinfo=UTC), 3)
    assert found == ["29. 09:00 -1000", "31. 00:00 +1400", "31. 09:00 +1400"]


def test_ten_years_of_daily_ticks_are_one_per_day_in_every_zone():
    for zone in CHANGES:
        timing = parse_timing(cron="30 2 * * *", tz=zone)
        start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
        days = [tick.astimezone(ZoneInfo(zone)).date() for tick in ticks_until(timing, start, end, 10_000)]
        assert all(after - before == DAY for before, after in itertools.pairwise(days))
        assert 3651 <= len(days) <= 3653


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("30 2 * * *", "at 02:30 every day"),
        ("*/15 * * * *", "every 15th minute of every hour"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday"),
        ("0 18 LW * *", "at 18:00 on the last weekday of every month"),
        ("@hourly", "at the start of every hour"),
        ("@weekly", "at 00:00 on Sunday"),
        ("0 0 31 * *", "at 00:00 on the 31st day of every month"),
        ("0 0 12,22,23 * *", "at 00:00 on the 12th, the 22nd, and the 23rd day of month"),
    ],
)
def test_expressions_are_said_in_words(cron, words):
    assert cron_words(parse_cron(cron)) == words


@pytest.mark.parametrize(
    ("cron", "trouble"),
    [
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * * *", "has 4 fields"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 1 1 moonday", "bad day-of-week"),
        ("@nightly", "no such name; the names are @yearly, .*@daily"),
        ("", "write five fields"),
        (5, "write five fields"),
        ("*/0 * * * *", "bad minute"),
    ],
)
def test_a_bad_expression_says_what_is_wrong(cron, trouble):
    with pytest.raises(BadInput, match=trouble):
        parse_cron(cron)


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        ({}, "needs one of"),
        ({"cron": "* * * * *", "every": "5m"}, "needs one of"),
        ({"every": "0.5s"}, "shortest interval is 1s"),
        ({"every": "1d", "tz": "Asia/Tokyo"}, "tz='Asia/Tokyo' has no effect"),
        ({"every": 5}, "bare number"),
        ({"cron": "* * * * *", "tz": "Europe/Berlni"}, "did you mean 'Europe/Berlin'"),
        ({"cron": "* * * * *", "tz": "../passwd"}, "no such time zone"),
        ({"cron": "* * * * *", "tz": 3}, "name of a time zone"),
        ({"at": NOON.replace(tzinfo=None)}, "no time zone"),
        ({"at": "tomorrow"}, "write '2026-12-24T18:00"),
        ({"at": []}, "has 0 instants"),
    ],
)
def test_a_bad_timing_says_what_is_wrong(options, trouble):
    with pytest.raises(BadInput, match=trouble):
        parse_timing(**options)


# -- intervals and instants --------------------------------------------------------------------------------------------


def test_an_interval_ticks_at_its_multiples_whenever_it_was_created():
    timing = parse_timing(every="15m")
    assert next_tick(timing, NOON) == NOON + 15 * MINUTE
    assert next_tick(timing, NOON + 7 * MINUTE) == NOON + 15 * MINUTE
    assert latest_tick(timing, NOON - DAY, NOON) == NOON
    assert latest_tick(timing, NOON, NOON + MINUTE) is None
    assert count_ticks(timing, NOON - DAY, NOON, 1000) == 96


def test_given_instants_tick_once_each_in_order():
    timing = parse_timing(at=["2026-02-01T12:00+01:00", NOON + 3 * DAY, "2026-02-01T11:00Z"])
    assert list(ticks(timing, NOON)) == [NOON + DAY - HOUR, NOON + 3 * DAY]
    assert next_tick(timing, NOON + 3 * DAY) is None


def test_an_expression_that_is_past_the_last_year_has_no_tick():
    assert next_cron_tick("0 0 1 1 *", ZoneInfo("UTC"), datetime(9999, 6, 1, tzinfo=UTC)) is None
    assert next_tick(Timing(every=DAY), datetime(9999, 12, 31, 12, tzinfo=UTC)) is None


# -- what is fired -----------------------------------------------------------------------------------------------------

LIMIT = 50
HOURLY = parse_timing(cron="0 * * * *")


def due(catch_up, through, now, timing=HOURLY, grace=MINUTE):
    return due_ticks(timing, catch_up=catch_up, grace=grace, through=through, now=now, limit=LIMIT)


@pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
def test_a_tick_on_time_is_fired_whatever_is_caught_up(catch_up):
    found = due(catch_up, NOON, NOON + HOUR + MINUTE)
    assert (found.fire, found.skipped, found.through) == ((NOON + HOUR,), 0, NOON + HOUR)
    assert due(catch_up, NOON, NOON + HOUR - timedelta(microseconds=1)).fire == ()
    assert due(catch_up, found.through, NOON + HOUR + MINUTE).through is None


def test_ticks_that_were_missed_are_caught_up_as_declared():
    now = NOON + 5 * HOUR + 2 * MINUTE
    skipped, latest, every = (due(catch_up, NOON, now) for catch_up in ("skip", "latest", "all"))
    assert (skipped.fire, skipped.skipped, skipped.through) == ((), 5, NOON + 5 * HOUR)
    assert (latest.fire, latest.skipped, latest.through) == ((NOON + 5 * HOUR,), 4, NOON + 5 * HOUR)
    assert (every.fire, every.skipped) == (tuple(NOON + n * HOUR for n in range(1, 6)), 0)


def test_the_latest_is_the_one_on_time_if_there_is_one():
    found = due("latest", NOON, NOON + 5 * HOUR)
    assert (found.fire, found.skipped) == ((NOON + 5 * HOUR,), 4)


def test_a_long_outage_is_caught_up_in_bounded_pieces():
    timing, now = parse_timing(every="1s"), NOON + timedelta(seconds=LIMIT + 5)
    first = due("all", NOON, now, timing)
    assert len(first.fire) == LIMIT
    assert first.more
    rest = due("all", first.through, now, timing)
    assert (len(rest.fire), rest.more) == (5, False)
    year = due("skip", NOON - 365 * DAY, now, parse_timing(cron="* * * * *"))
    assert (year.fire, year.skipped) == ((now.replace(second=0),), MAX_COUNTED)


@settings(max_examples=200, deadline=None)
@given(
    timing=st.sampled_from([
        HOURLY, parse_timing(every="7m"), parse_timing(cron="*/10 * * * *", tz="Europe/Berlin"),
        parse_timing(cron="30 2 * * *", tz="America/New_York"), parse_timing(at=[NOON + HOUR, NOON + DAY]),
    ]),
    catch_up=st.sampled_from(["skip", "latest", "all"]),
    grace=st.sampled_from([timedelta(), MINUTE, HOUR]),
    steps=st.lists(st.integers(-26 * 60, 26 * 60), min_size=1, max_size=12),
)  # fmt: skip
def test_no_tick_is_fired_twice_or_early_and_none_is_forgotten_however_the_clock_steps(timing, catch_up, grace, steps):
    through, now, seen = NOON, NOON, NOON
    fired, skipped = [], 0
    for step in steps:
        now += timedelta(minutes=step)
        while True:
            found = due_ticks(timing, catch_up=catch_up, grace=grace, through=through, now=now, limit=50)
            if found.through is None:
                break
            assert found.fire or found.skipped
            assert all(through < tick <= now for tick in found.fire)
            fired, skipped, through = [*fired, *found.fire], skipped + found.skipped, found.through
        seen = max(seen, now)
    assert fired == sorted(set(fired))
    whole = ticks_until(timing, NOON, seen, 100_000)
    assert set(fired) <= set(whole)
    assert len(fired) + skipped == len(whole)  # steps of up to 12 days of ticks stay below the limit per outage
    if catch_up == "all":
        assert fired == whole


def test_a_clock_that_was_far_ahead_is_noticed():
    assert is_ahead(NOON + 11 * MINUTE, NOON)
    assert not is_ahead(NOON + 9 * MINUTE, NOON)


def test_the_jitter_of_a_tick_is_always_the_same_and_spreads():
    found = [jitter_of("nightly", NOON + n * DAY, HOUR) for n in range(100)]
    assert found == [jitter_of("nightly", NOON + n * DAY, HOUR) for n in range(100)]
    assert all(timedelta() <= each < HOUR for each in found)
    assert len(set(found)) == 100
    assert min(found) < HOUR / 10 < HOUR * 9 / 10 < max(found)
    assert jitter_of("nightly", NOON, timedelta()) == timedelta()


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ("1s", "second"), ("90s", "1 minute 30 seconds"), ("1m", "minute"), ("15m", "15 minutes"), ("1h", "hour"),
        ("36h", "1 day 12 hours"), ("1.5s", "1.5 seconds"),
    ],
)  # fmt: skip
def test_intervals_are_said_in_words(interval, words):
    timing = parse_timing(every=interval)
    assert interval_words(timing.every) == words
    assert timing_words(timing) == f"every {words}"


def test_the_timing_is_said_in_words():
    assert timing_words(parse_timing(cron="30 2 * * *", tz="Europe/Berlin")) == "at 02:30 every day, Europe/Berlin time"
    assert timing_words(parse_timing(at=NOON)) == "on Sat 31 Jan 2026 12:00:00 UTC"
    assert timing_words(parse_timing(at=[NOON, NOON + DAY])) == "on Sat 31 Jan 2026 12:00:00 UTC and 1 more time"


def test_the_preview_says_what_a_change_of_the_clock_does():
    timing = parse_timing(cron="30 2 * * *", tz="Europe/Berlin")
    spring = preview(timing, datetime(2026, 3, 28, 12, tzinfo=UTC), 2)
    assert [(tick.local, tick.note) for tick in spring] == [
        ("Sun 29 Mar 2026 03:00:00 CEST", "the clock goes forward from 02:00 to 03:00"),
        ("Mon 30 Mar 2026 02:30:00 CEST", ""),
    ]
    [autumn] = preview(timing, datetime(2026, 10, 24, 12, tzinfo=UTC), 1)
    assert (autumn.local, autumn.note) == (
        "Sun 25 Oct 2026 02:30:00 CEST", "02:30 occurs twice, the first time counts"
    )  # fmt: skip
    hourly = preview(parse_timing(cron="0 * * * *", tz="Europe/Berlin"), datetime(2026, 10, 24, 23, 30, tzinfo=UTC), 3)
    assert [tick.note for tick in hourly] == [
        "02:00 occurs twice, this is the first time", "02:00 occurs twice, this is the second time", ""
    ]  # fmt: skip
