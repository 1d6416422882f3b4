"""How a resource did lately: the older the less, and once it fails it must do well before it is trusted again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.model import NO_HEALTH
from daybreak.policy.health import HALF_LIFE, is_calm, next_health, success
from daybreak.policy.retry import TYPICAL_SUCCESS

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


def test_nothing_known_is_as_usual():
    assert success(NO_HEALTH, NOON) == TYPICAL_SUCCESS
    assert is_calm(NO_HEALTH)


def test_outcomes_weigh_half_after_a_while():
    told = next_health(NO_HEALTH, [True] * 8 + [False] * 4, NOON)
    later = next_health(told, [], NOON + HALF_LIFE)
    assert (later.good, later.bad) == (4.0, 2.0)


def test_a_clock_that_goes_back_forgets_nothing():
    told = next_health(NO_HEALTH, [False] * 8, NOON)
    assert next_health(told, [], NOON - timedelta(hours=1)).bad == 8.0


def test_few_failures_say_nothing():
    assert not next_health(NO_HEALTH, [False] * 9, NOON).spare_for
    assert next_health(NO_HEALTH, [False] * 10, NOON).spare_for


def test_it_fails_below_eight_of_ten_and_works_from_nine_of_ten():
    assert not next_health(NO_HEALTH, [True] * 40 + [False] * 10, NOON).spare_for
    fails = next_health(NO_HEALTH, [True] * 36 + [False] * 14, NOON)
    assert fails.spare_for
    still = next_health(fails, [True] * 24, NOON)
    assert still.good > 4 * still.bad
    assert still.spare_for
    assert not next_health(still, [True] * 70, NOON).spare_for


def test_it_is_trusted_again_when_nobody_has_used_it_for_long():
    fails = next_health(NO_HEALTH, [False] * 100, NOON)
    assert next_health(fails, [True], NOON + timedelta(seconds=30)).spare_for
    assert not next_health(fails, [True], NOON + timedelta(seconds=40)).spare_for
    assert is_calm(next_health(fails, [True], NOON + timedelta(minutes=2)))


def test_however_often_it_failed_it_is_soon_trusted_again():
    fails = next_health(NO_HEALTH, [False] * 100_000, NOON)
    assert fails.bad == 100
    assert not next_health(fails, [True] * 950, NOON).spare_for


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 600))
def test_success_is_a_share_and_falls_with_every_failure(outcomes, seconds):
    now = NOON + timedelta(seconds=seconds)
    health = next_health(NO_HEALTH, outcomes, NOON)
    share = success(health, now)
    assert 0 < share < 1
    assert success(next_health(health, [False], now), now) <= share
    assert success(next_health(health, [True], now), now) >= share
