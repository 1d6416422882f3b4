"""Many clients of one server that was away: they come back spread over seconds. In virtual time, with fixed seeds."""

from __future__ import annotations

import math
import random

import pytest

from daybreak.stores.backoff import Backoff

CLIENTS = 200
PATIENCE = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def back_at(chance: random.Random, outage: float, patience: float = PATIENCE) -> float:
    """When a client connects again to a server that is away from 0 to `outage`. Its first call begins at 0, as those of
    all others do, and each further call at the end of the one before. A call asks again and again, as `Client` does."""
    clock = Clock()
    backoff = Backoff(chance, clock)
    backoff.lost()
    gives_up_at = patience
    while True:
        pause = backoff.pause(gives_up_at - clock.now)
        if pause is not None:
            clock.now += pause
            if clock.now >= outage:
                return clock.now
            backoff.failed(0.001)
        clock.now += chance.uniform(0.05, 0.5)
        if clock.now >= gives_up_at:
            clock.now = gives_up_at
            gives_up_at += patience


def busiest_second(times: list[float]) -> int:
    return max(sum(1 for other in times if begin <= other < begin + 1) for begin in times)


@pytest.mark.parametrize("outage", [10.0, 12.0, 16.0, 19.0, 30.0, 37.0, 120.0])
@pytest.mark.parametrize("patience", [PATIENCE, 3 * PATIENCE, math.inf], ids=["callers", "patient", "background"])
def test_no_second_sees_more_than_a_quarter_come_back(outage, patience):
    """Though all calls began in the moment in which the server went away, and all end together."""
    chance = random.Random(7)
    times = [back_at(chance, outage, patience) for _ in range(CLIENTS)]
    assert busiest_second(times) <= CLIENTS / 4
    assert max(times) <= outage + 9


@pytest.mark.parametrize("outage", [1.0, 3.0, 5.0, 7.0])
def test_a_call_outlasts_an_outage_that_ends_before_its_patience(outage):
    chance = random.Random(7)
    assert all(back_at(chance, outage) < PATIENCE for _ in range(CLIENTS))


def test_an_extra_try_leaves_the_schedule_as_it_is():
    """Otherwise the extra tries of callers in step would bring the regular ones into step, too."""
    clock = Clock()
    backoff = Backoff(random.Random(7), clock)
    backoff.lost()
    clock.now = 100.0
    backoff.failed(0)
    due_at = clock.now + backoff.pause()
    clock.now += backoff.pause(2.0)
    backoff.failed(0)
    assert clock.now + backoff.pause() == pytest.approx(due_at)


def test_after_a_short_outage_a_lone_client_waits_no_longer_than_a_few_times_that():
    chance = random.Random(7)
    assert all(back_at(chance, 0.5, math.inf) <= 0.5 + 3 * 0.5 * 1.5 for _ in range(CLIENTS))


def test_the_first_try_after_a_loss_is_spread_and_soon():
    pauses = []
    for seed in range(50):
        backoff = Backoff(random.Random(seed), Clock())
        backoff.lost()
        pauses.append(backoff.pause())
    assert 0 <= min(pauses) < max(pauses) <= 0.25
    assert len(set(pauses)) == 50


def test_who_never_had_a_connection_and_who_has_one_again_wait_for_nothing():
    backoff = Backoff(random.Random(7), Clock())
    assert backoff.pause() == 0
    backoff.lost()
    backoff.failed(0)
    assert backoff.pause() > 0
    backoff.connected()
    assert backoff.pause() == 0


def test_a_server_that_was_silent_is_asked_again_at_once():
    """It was stopped or cut off, and goes on without a restart; each try has taken seconds already."""
    clock = Clock()
    backoff = Backoff(random.Random(7), clock)
    backoff.lost()
    clock.now = 5.0
    backoff.failed(4.5)
    assert backoff.pause() == 0


def test_a_caller_gets_a_try_before_its_patience_ends():
    clock = Clock()
    backoff = Backoff(random.Random(7), clock)
    backoff.lost()
    clock.now = 100.0
    backoff.failed(0)
    assert 1.0 <= backoff.pause(2.0) < 2.0
    assert backoff.pause(0.5) is None, "there was a try just now"
    clock.now += 2
    assert 0 < backoff.pause(0.5) < 0.5
