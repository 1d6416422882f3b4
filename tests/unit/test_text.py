"""Words for people: nothing that is printed can steer a terminal, and amounts read well."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.api.views.job import plain_value
from daybreak.cli.output import Column, as_json, table_lines
from daybreak.core import text
from daybreak.core.units import Priority, bytes_text

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("plain", "plain"),
        ("Grüße, 世界", "Grüße, 世界"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u2028", r"\u2028"),
        ("\x7f", r"\x7f"),
        ("\ud800", r"\ud800"),
        ("1\u00a0000", "1\u00a0000"),
        ("[bold]not markup[/bold] :smile:", "[bold]not markup[/bold] :smile:"),
    ],
)
def test_what_could_steer_a_terminal_is_spelt_out(given, told):
    assert text.safe(given) == told


def test_lines_are_kept_where_they_are_wanted():
    assert text.safe("a\n\tb\x1b", lines=True) == "a\n    b\\x1b"


@given(st.text())
def test_safe_text_is_safe_whatever_it_was(given):
    assert not any(c < " " or 0x7F <= ord(c) < 0xA0 for c in text.safe(given))


@given(st.text())
def test_json_is_safe_and_says_the_same(given):
    written = as_json({"value": given})
    assert not any((c < " " and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in written)
    written.encode()
    assert json.loads(written)["value"] == given


def test_json_stays_json_with_what_it_cannot_say():
    assert json.loads(as_json({"x": [math.nan, math.inf, 1.5]})) == {"x": ["nan", "inf", 1.5]}


def test_what_cannot_be_read_is_told_and_harms_nothing():
    assert isinstance(plain_value(b"\xff\xfe"), str)
    assert plain_value(b'{"to": "ann"}') == {"to": "ann"}


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (timedelta(), "0 ms"),
        (timedelta(milliseconds=12), "12 ms"),
        (timedelta(seconds=1.24), "1.2 s"),
        (timedelta(seconds=42.9), "42 s"),
        (timedelta(seconds=60), "1 min"),
        (timedelta(minutes=3, seconds=4), "3 min 4 s"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
        (timedelta(days=400), "400 d"),
        (timedelta(seconds=-5), "0 ms"),
    ],
)
def test_durations(span, told):
    assert text.lasted(span) == told


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        (timedelta(), "now"),
        (timedelta(seconds=119), "1 min ago"),
        (timedelta(hours=50), "2 d ago"),
        (timedelta(minutes=-5), "in 5 min"),
    ],
)
def test_how_long_ago(passed, told):
    assert text.ago(NOON - passed, NOON) == told


def test_instants_are_local_and_say_their_zone(monkeypatch):
    assert text.local(NOON) == "2026-01-31 12:00:00 UTC"
    assert text.local(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31")
    assert text.local(None) == ""


@pytest.mark.parametrize(
    ("level", "told"), [(0, "emergency"), (3, "high 3"), (5, "normal"), (4, "normal 4"), (10, "background")]
)
def test_priorities_have_names(level, told):
    assert text.priority_name(level) == told
    assert told.split()[0].upper() in Priority.__members__


def test_counts_and_sizes():
    assert text.counted(1, "job") == "1 job"
    assert text.counted(1204, "job") == "1,204 jobs"
    assert [bytes_text(size) for size in (0, 1, 12)] == ["0 bytes", "1 byte", "12 bytes"]
    assert bytes_text(3 * 1024**3) == "3.0 GiB"
    assert text.percent(0.4) == "40 %"
    assert text.any_of(["a", "b", "c"]) == "a, b or c"


# -- tables ------------------------------------------------------------------------------------------------------------

ID = "01a1e293-ba6c-7a1c-8063-f5022d90ca6d"
COLUMNS = [Column("ID"), Column("QUEUE", drop=1), Column("N", right=True), Column("ERROR", gives=True)]
ROWS = [[ID, "mail", "7", "x" * 60], [ID, "mail", "11", ""]]


def lines(width: int | None) -> list[str]:
    return [line.plain for line in table_lines(COLUMNS, ROWS, width)]


def test_a_table_that_nobody_looks_at_is_as_wide_as_it_must_be():
    assert lines(None) == [f"{'ID':36}  QUEUE   N  ERROR", f"{ID}  mail    7  {'x' * 60}", f"{ID}  mail   11"]


def test_on_a_terminal_what_can_give_way_is_shortened():
    assert lines(100)[1] == f"{ID}  mail    7  {'x' * 50}…"
    assert max(map(len, lines(100))) <= 100


def test_where_little_would_be_left_it_goes_below_and_ids_stay_whole():
    assert lines(60) == [f"{'ID':36}  QUEUE   N", f"{ID}  mail    7", "    " + "x" * 55 + "…", f"{ID}  mail   11"]
    assert lines(42)[1] == f"{ID}   7"
    assert all(ID in line for line in (lines(10)[1], lines(10)[3]))


def test_columns_without_a_word_are_left_out():
    told = table_lines([Column("A"), Column("B")], [["x", ""], ["y", ""]], None)
    assert [line.plain for line in told] == ["A", "x", "y"]


def test_wide_characters_keep_their_columns():
    told = table_lines([Column("A"), Column("B")], [["世界", "1"], ["ab", "2"]], None)
    assert [line.plain for line in told] == ["A     B", "世界  1", "ab    2"]
