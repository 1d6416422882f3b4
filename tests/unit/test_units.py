from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.errors import BadInput
from daybreak.core.units import MAX_DURATION, Priority, bucket, clean, duration, instant, micros, moment, priority, span


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("emergency", 0), ("CRITICAL", 1), ("High", 2), ("normal", 5), ("nOrMaL", 5), ("low", 7), ("background", 10),
        (Priority.HIGH, 2), (0, 0), (3, 3), (10, 10),
    ],
)  # fmt: skip
def test_a_priority_is_a_member_a_name_in_any_case_or_an_integer(written, meant):
    found = priority(written)
    assert found == meant
    assert type(found) is int


@pytest.mark.parametrize(
    "written", [True, False, 5.0, None, "NORMAL ", " normal", "", "5", "urgent", -1, 11, b"normal", [5], Priority]
)
def test_anything_else_is_no_priority_and_never_normal(written):
    with pytest.raises(BadInput, match=r"is not a priority: use a name .*NORMAL 5.*lower runs first"):
        priority(written)


def test_every_priority_is_counted_under_one_name():
    names = [bucket(n).name for n in range(11)]
    assert names == [
        "EMERGENCY", "CRITICAL", "HIGH", "HIGH", "NORMAL", "NORMAL", "NORMAL", "LOW", "LOW", "BACKGROUND", "BACKGROUND",
    ]  # fmt: skip


def test_a_named_priority_is_counted_under_its_own_name():
    assert all(bucket(named.value) is named for named in Priority)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("250ms", timedelta(milliseconds=250)),
        ("1m30ms", timedelta(minutes=1, milliseconds=30)),
        ("1.5h", timedelta(minutes=90)),
        ("0.25s", timedelta(milliseconds=250)),
        ("0s", timedelta()),
        (" 5M ", timedelta(minutes=5)),
        (timedelta(hours=1), timedelta(hours=1)),
        (MAX_DURATION, MAX_DURATION),
    ],
)
def test_a_duration_is_a_timedelta_or_numbers_with_units(written, meant):
    assert duration(written) == meant


@pytest.mark.parametrize(
    ("written", "right"),
    [(90, "'90s'"), (0, "'0s'"), (1.5, "'1.5s'"), (1_234_567, "'1234567s'"), (86_400_000, "'86400000s'")],
)
def test_a_bare_number_is_refused_with_the_right_spelling(written, right):
    with pytest.raises(BadInput) as refused:
        duration(written, "timeout")
    assert str(refused.value).startswith("timeout: a bare number has no unit; write ")
    assert right in str(refused.value)
    assert duration(right.strip("'")) == timedelta(seconds=written)


@pytest.mark.parametrize(
    "written", ["", " ", "s", "90", "5 minutes", "30m1h", "1.s", "-5s", "1h-5m", "1e3s", None, True, []]
)
def test_what_is_no_duration_is_refused_by_name(written):
    with pytest.raises(BadInput, match=r"wait: .* is not a duration; write '90s', '10m', '1h30m'"):
        duration(written, "wait")


@pytest.mark.parametrize("written", [timedelta(seconds=-1), timedelta.max, "36501d", "9" * 400 + "d", "99999999999d"])
def test_a_duration_lies_between_nothing_and_a_century(written):
    with pytest.raises(BadInput, match="out of range"):
        duration(written)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_units_add_up(days, hours, minutes, seconds, millis):
    written = f"{days}d{hours}h{minutes}m{seconds}s{millis}ms"
    assert duration(written) == timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=millis)


def test_a_naive_datetime_is_refused_and_told_how_to_cure_it():
    with pytest.raises(BadInput, match=r"run_at: 2026-01-31T18:00:00 has no time zone; add one"):
        instant(datetime(2026, 1, 31, 18, 0), "run_at")  # noqa: DTZ001 - the point


@pytest.mark.parametrize("written", ["2026-01-31", 0, None, timedelta()])
def test_what_is_no_datetime_is_refused(written):
    with pytest.raises(BadInput, match="is not a datetime"):
        instant(written)


def test_an_instant_is_kept_in_utc():
    east = datetime(2026, 1, 31, 18, 0, tzinfo=timezone(timedelta(hours=2)))
    assert instant(east) == east
    assert instant(east).tzinfo is UTC


def test_an_instant_before_the_first_year_in_utc_is_refused():
    with pytest.raises(BadInput, match="out of range"):
        instant(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))


@given(st.datetimes(timezones=st.just(UTC)))
def test_micros_and_moment_are_exact_inverses(value):
    assert moment(micros(value)) == value


@given(st.integers(micros(datetime(1, 1, 1, tzinfo=UTC)), micros(datetime(9999, 12, 31, tzinfo=UTC))))
def test_moment_and_micros_are_exact_inverses(value):
    assert micros(moment(value)) == value


@given(st.timedeltas())
def test_a_span_is_whole_microseconds(value):
    assert timedelta(microseconds=span(value)) == value


@given(st.text())
def test_cleaned_text_can_be_encoded_and_good_text_is_left_alone(text):
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    assert cleaned == text or any(0xD800 <= ord(c) <= 0xDFFF for c in text)
