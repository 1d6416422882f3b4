"""Time limits follow what is seen: continuous, monotone, bounded; and are longer after they were too short."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.errors import BadInput
from daybreak.core.model import Options
from daybreak.core.units import MAX_DURATION
from daybreak.policy.durations import (
    NO_DURATIONS,
    Durations,
    Hour,
    add_hours,
    class_of,
    classes_of,
    hour_of,
    hour_with,
    is_sound,
    longest_in,
    longest_of,
    quantile,
    smooth_quantile,
    with_hour,
)
from daybreak.policy.timeouts import (
    BASES,
    BOUNDS,
    FULL_TRUST_SAMPLES,
    LONGEST_MARGIN,
    MIN_SAMPLES,
    LimitRules,
    adapted,
    base_of,
    check_rules,
    describe_limit,
    escalated,
    escalation_level,
    level_by_rules,
    limit_for,
    multiplier,
)

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NEEDED = st.floats(0, 1e6)
SEEN = st.integers(0, 10**6)
SECONDS = st.floats(1e-6, 1e6)


def seen(*seconds: float, late: int = 0, now: datetime = NOON) -> Durations:
    fresh = Hour()
    for n, one in enumerate(seconds):
        fresh = add_hours(fresh, hour_with(one, late=n < late))
    return with_hour(NO_DURATIONS, fresh, now)


# -- the multiplier ----------------------------------------------------------------------------------------------------


@given(NEEDED, SEEN)
def test_case_23_it_is_bounded(needed, count):
    assert BOUNDS[0] <= multiplier(needed, count) <= BOUNDS[1]


@given(NEEDED, NEEDED, SEEN)
def test_case_23_what_takes_longer_never_gets_less(one, other, count):
    shorter, longer = sorted((one, other))
    assert multiplier(shorter, count) <= multiplier(longer, count)


@given(st.floats(0, 10), st.floats(0, 1e-3), SEEN)
def test_case_23_a_small_change_makes_a_small_change(needed, step, count):
    assert abs(multiplier(needed + step, count) - multiplier(needed, count)) <= 2 * step + 1e-12


@given(st.floats(0, 10), st.integers(0, 200))
def test_one_more_duration_makes_a_small_change(needed, count):
    assert (
        abs(multiplier(needed, count + 1) - multiplier(needed, count))
        <= (BOUNDS[1] - 1) / (FULL_TRUST_SAMPLES - MIN_SAMPLES) + 1e-12
    )


@given(NEEDED)
def test_with_few_durations_the_base_holds(needed):
    assert all(multiplier(needed, count) == 1.0 for count in range(MIN_SAMPLES + 1))


# -- limits ------------------------------------------------------------------------------------------------------------


def test_case_23_without_data_the_base_holds():
    assert adapted(MINUTE, NO_DURATIONS) == MINUTE
    assert adapted(MINUTE, seen(*[1.0] * MIN_SAMPLES)) == MINUTE


def test_quick_work_gets_half_the_base_and_slow_work_three_times_it():
    assert adapted(MINUTE, seen(*[0.1] * 200)) == MINUTE / 2
    assert adapted(MINUTE, seen(*[500.0] * 200)) == MINUTE * 3


def test_in_between_it_is_twice_what_nearly_all_took():
    limit = adapted(MINUTE, seen(*[40.0] * 200))
    assert 80 <= limit.total_seconds() <= 88


def test_limits_that_were_too_short_grow_and_never_shrink_for_it():
    base, durations, limit = MINUTE, NO_DURATIONS, MINUTE
    for _ in range(300):
        limit = adapted(base, durations)
        durations = with_hour(durations, hour_with(limit.total_seconds(), late=True), NOON)
        assert adapted(base, durations) >= limit
    assert limit == 3 * base


def test_one_in_two_hundred_that_was_late_moves_nothing():
    quick = seen(*[20.0] * 199)
    limit = adapted(MINUTE, with_hour(quick, hour_with(10_000.0, late=True), NOON))
    assert limit.total_seconds() == pytest.approx(adapted(MINUTE, quick).total_seconds())


def test_one_more_that_was_late_moves_the_limit_a_little():
    limits = [adapted(MINUTE, seen(*[500.0] * n, *[1.0] * (1000 - n), late=n)) for n in range(30)]
    steps = [later - sooner for sooner, later in itertools.pairwise(limits)]
    assert (limits[5], limits[-1]) == (MINUTE / 2, 3 * MINUTE)
    assert min(steps) >= timedelta()
    assert max(steps) <= MINUTE / 3


def test_one_in_a_thousand_that_took_long_and_ended_well_would_do_so_again():
    durations = seen(*[1.0] * 999, 50.0)
    assert adapted(MINUTE, durations).total_seconds() == pytest.approx(50 * LONGEST_MARGIN)
    assert adapted(MINUTE, with_hour(durations, hour_with(10_000.0), NOON)) == 3 * MINUTE


def test_a_few_long_ones_among_many_are_within_the_limit():
    assert adapted(MINUTE, seen(*[1.0] * 995, *[50.0] * 5)) > timedelta(seconds=50)


@given(st.lists(SECONDS, min_size=1, max_size=20), st.timedeltas(timedelta(seconds=1), timedelta(days=1)))
def test_the_limit_is_never_below_the_longest_that_came_to_its_end(durations, base):
    longest = timedelta(seconds=max(durations))
    many = adapted(base, seen(*durations, *[min(durations)] * FULL_TRUST_SAMPLES))
    assert many >= min(longest, 3 * base)
    few = adapted(base, seen(*durations, *[min(durations)] * MIN_SAMPLES))
    assert few >= min(longest, base)


def test_one_more_long_one_moves_the_limit_a_little():
    limits = [adapted(MINUTE, seen(*[1.0] * (1000 - n), *[50.0] * n)) for n in range(1, 30)]
    steps = [later - sooner for sooner, later in itertools.pairwise(limits)]
    assert min(steps) >= timedelta()
    assert max(steps) <= MINUTE / 4


def test_what_is_forgotten_after_a_day_no_longer_holds_the_limit_up():
    durations = seen(*[1.0] * 200, 50.0)
    later = NOON + timedelta(hours=25)
    for _ in range(200):
        durations = with_hour(durations, hour_with(1.0), later)
    assert adapted(MINUTE, durations) == MINUTE / 2


@given(st.lists(SECONDS, min_size=1, max_size=60), st.timedeltas(timedelta(seconds=1), timedelta(days=400)))
def test_limits_stay_within_their_bounds(durations, base):
    limit = adapted(base, seen(*durations))
    assert base / 2 <= limit <= min(3 * base, MAX_DURATION)


def test_of_a_task_that_is_not_adaptive_the_base_holds():
    slow = seen(*[500.0] * 200)
    assert limit_for(Options(timeout=MINUTE), 0, slow) == MINUTE
    assert limit_for(Options(timeout=MINUTE, adaptive=True), 0, slow) == 3 * MINUTE
    assert limit_for(Options(), 0, slow) is None


# -- escalation --------------------------------------------------------------------------------------------------------


def test_there_is_no_limit_where_none_is_set():
    assert limit_for(Options(), 3) is None


def test_each_attempt_that_was_too_late_gets_half_as_much_again_five_times_over():
    options = Options(timeout=MINUTE, adaptive=True)
    limits = [limit_for(options, late) / MINUTE for late in range(8)]
    assert limits == pytest.approx([1.5 ** min(late, 5) for late in range(8)])


@given(st.timedeltas(timedelta(microseconds=1), MAX_DURATION), st.lists(SECONDS, max_size=200), st.integers(0, 10**6))
def test_a_written_limit_is_never_shortened_nor_lengthened(timeout, durations, timeouts):
    options = Options(timeout=timeout, escalate=3.0)
    assert limit_for(options, timeouts, seen(*durations)) == timeout


def test_a_limit_says_where_it_comes_from():
    written, follows = Options(timeout=4 * SECOND), Options(timeout=4 * SECOND, adaptive=True)
    assert describe_limit(written, 4 * SECOND) == "4 s (written)"
    assert describe_limit(follows, 2.3 * SECOND) == "2.3 s (adaptive, base 4 s)"
    assert describe_limit(follows, 5000 * SECOND) == "5000 s (adaptive, base 4 s)"
    assert describe_limit(written, 4 * SECOND, lambda span: f"<{span.seconds}>") == "<4> (written)"


def test_escalation_can_begin_later_and_by_another_factor():
    options = Options(timeout=MINUTE, adaptive=True, escalate=2.0, escalate_after=3)
    assert [limit_for(options, late) / MINUTE for late in range(6)] == [1, 1, 1, 2, 4, 8]
    assert [escalation_level(late, 3) for late in (0, 2, 3, 7, 9)] == [0, 0, 1, 5, 5]


def test_a_limit_has_an_end():
    assert limit_for(Options(timeout=MAX_DURATION, adaptive=True), 5) == MAX_DURATION
    assert escalated(timedelta(days=1000), 100, 5) == MAX_DURATION
    assert escalated(MINUTE, 100, 1) == 100 * MINUTE


def test_every_kind_has_a_base_and_no_other_kind_is_known():
    assert {kind: base.total_seconds() for kind, base in BASES.items()} == {
        "wait": 300, "acquisition": 30, "renewal": 10, "connection": 5, "operation": 60,
    }  # fmt: skip
    with pytest.raises(BadInput, match="'lunch'; the kinds are wait, acquisition"):
        base_of("lunch")


# -- the sketch --------------------------------------------------------------------------------------------------------


@given(SECONDS)
def test_a_class_is_a_tenth_wide(seconds):
    upper = longest_in(class_of(seconds))
    assert seconds <= upper * (1 + 1e-9)
    assert upper <= seconds * 1.1 * (1 + 1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_right_within_a_tenth(durations, share):
    exact = sorted(durations)[max(0, -(-int(share * len(durations) * 1000) // 1000) - 1)]
    found = quantile(classes_of(seen(*durations)), share)
    assert found >= exact * (1 - 1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_a_smooth_quantile_lies_among_those_around_it(durations, share):
    classes = classes_of(seen(*durations))
    found, reach = smooth_quantile(classes, share, at_most=1e9), min(share, 1 - share) / 2
    lower, upper = quantile(classes, share - reach - 1e-9), quantile(classes, share + reach + 1e-9)
    assert lower * (1 - 1e-9) <= found <= upper * (1 + 1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=50), st.data())
def test_a_smooth_quantile_never_falls_when_one_takes_longer(durations, data):
    which, longer = data.draw(st.integers(0, len(durations) - 1)), data.draw(st.floats(1, 1000))
    other = [seconds * longer if n == which else seconds for n, seconds in enumerate(durations)]
    found = [smooth_quantile(classes_of(seen(*these)), 0.99, at_most=1e9) for these in (durations, other)]
    assert found[0] <= found[1] * (1 + 1e-9)


def test_of_a_smooth_quantile_each_counts_up_to_a_bound():
    assert smooth_quantile({class_of(500.0): 30}, 0.99, at_most=7.0) == pytest.approx(7)
    assert smooth_quantile({}, 0.99, at_most=7.0) == 0


def test_the_longest_is_of_those_that_came_to_their_end():
    assert longest_of(seen(1.0, 7.0, 3.0)) == 7.0
    assert longest_of(seen(9.0, 7.0, 3.0, late=1)) == 7.0
    assert longest_of(seen(9.0, late=1)) == 0
    assert longest_of(NO_DURATIONS) == 0


def test_of_hours_that_do_not_say_their_longest_the_classes_do():
    old = Hour({class_of(1.0): 5, class_of(50.0): 2})
    assert 50 <= longest_of(Durations(hours={1: old})) <= 55
    assert 50 <= add_hours(old, hour_with(2.0)).longest <= 55
    assert add_hours(old, hour_with(60.0)).longest == 60
    assert longest_of(Durations(hours={1: Hour({class_of(50.0): 2}, 100.0, 1)})) == 0  # any of them may have been late


@pytest.mark.parametrize(
    "nonsense",
    [
        Durations(seen=-1),
        Durations(seconds=1e300),
        Durations(limit=-1.0),
        Durations(hours={1: Hour({10_000: 1})}),
        Durations(hours={1: Hour({1: -5})}),
        Durations(hours={1: Hour(longest=1e300)}),
    ],
)
def test_numbers_that_nobody_can_have_seen_are_not_sound(nonsense):
    assert not is_sound(nonsense)


@given(st.lists(st.floats(0, MAX_DURATION.total_seconds()), max_size=20))
def test_whatever_was_seen_is_sound(durations):
    assert is_sound(seen(*durations))
    assert hour_of(NOON) in seen(*durations).hours


@given(st.lists(SECONDS, max_size=50), st.lists(SECONDS, max_size=50))
def test_two_sketches_are_one_by_adding_them(one, other):
    apart = seen(*one)
    for seconds in other:
        apart = with_hour(apart, hour_with(seconds), NOON)
    together = seen(*one, *other)
    assert classes_of(apart) == classes_of(together)
    assert (apart.seen, apart.late) == (together.seen, together.late)
    assert apart.seconds == pytest.approx(together.seconds)
    assert longest_of(apart) == longest_of(together)


def test_what_is_older_than_a_day_is_forgotten_and_counts_in_all():
    durations = seen(*[1.0] * 50)
    later = with_hour(durations, hour_with(9.0), NOON + timedelta(hours=24))
    assert sum(classes_of(later).values()) == 51
    later = with_hour(later, hour_with(9.0), NOON + timedelta(hours=25))
    assert sum(classes_of(later).values()) == 2
    assert later.seen == 52


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=36_500)), st.floats(1, 10), st.integers(0, 10**6))
def test_limits_never_shrink(timeout, escalate, timeouts):
    options = Options(timeout=timeout, adaptive=True, escalate=escalate)
    assert timeout <= limit_for(options, timeouts) <= limit_for(options, timeouts + 1)


# -- rules of a limit --------------------------------------------------------------------------------------------------


@given(NEEDED, SEEN, st.floats(0.01, 1), st.floats(1, 100), st.floats(0.01, 1))
def test_a_limit_stays_within_the_bounds_that_it_was_given(needed, count, lowest, highest, pace):
    assert lowest <= multiplier(needed, count, LimitRules(lowest=lowest, highest=highest, pace=pace)) <= highest


def test_twice_the_pace_needs_half_as_many_durations():
    samples = {pace: full_trust_at(pace) - MIN_SAMPLES for pace in (0.05, 0.1, 0.2, 0.4)}
    assert samples == {0.05: 160, 0.1: 80, 0.2: 40, 0.4: 20}


def full_trust_at(pace):
    return next(n for n in range(1000) if multiplier(9.0, n, LimitRules(pace=pace)) == BOUNDS[1])


def test_a_limit_that_is_not_adaptive_is_the_base():
    assert adapted(MINUTE, seen(*[0.1] * 200), LimitRules(adaptive=False)) == MINUTE


def test_a_limit_is_raised_as_often_as_its_rules_allow():
    assert [level_by_rules(9, LimitRules(max_escalations=most)) for most in (0, 2, 5, 50)] == [0, 2, 5, 7]


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"lowest": 0.0}, "bounds="),
        ({"lowest": 1.5}, "bounds="),
        ({"highest": 0.9}, "bounds="),
        ({"highest": 101.0}, "bounds="),
        ({"lowest": float("nan")}, "bounds="),
        ({"pace": 0.0}, "pace="),
        ({"pace": 1.1}, "pace="),
        ({"window": timedelta(minutes=59)}, "window="),
        ({"window": timedelta(hours=25)}, "window="),
        ({"escalate": 0.5}, "escalate"),
        ({"escalate_after": 0}, "escalate_after"),
        ({"max_escalations": -1}, "max_escalations="),
        ({"max_escalations": 51}, "max_escalations="),
    ],
)
def test_rules_out_of_range_are_refused(rules, named):
    with pytest.raises(BadInput, match=named):
        check_rules(LimitRules(**rules))
