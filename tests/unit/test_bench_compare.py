"""The rule by which `make bench-compare` calls a row slower; nothing is timed here."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # benchmarks is no installed package

from benchmarks.compare import has_lost, losses
from benchmarks.stats import Interval, ratio

RECORDED = Interval(low=0.9, median=1.0, high=1.1)


def test_an_equal_run_is_no_loss():
    assert losses({"submit": RECORDED}, {"submit": RECORDED}) == []


def test_a_loss_beyond_noise_is_named_with_both_figures():
    [loss] = losses({"submit": RECORDED}, {"submit": Interval(0.5, 0.6, 0.7)})

    assert loss.row == "submit"
    assert "0.6" in loss.why
    assert "40% slower" in loss.why


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(Interval(0.5, 0.6, 0.95), id="the intervals touch"),
        pytest.param(Interval(0.5, 0.6, 0.9), id="the intervals meet in one point"),
        pytest.param(Interval(2.0, 3.0, 4.0), id="faster"),
    ],
)
def test_within_noise_passes(now):
    assert losses({"submit": RECORDED}, {"submit": now}) == []


def test_steady_rows_may_lose_a_tenth():
    was = Interval(0.999, 1.0, 1.001)

    assert not has_lost(was, Interval(0.91, 0.92, 0.93))
    assert has_lost(was, Interval(0.87, 0.88, 0.89))


def test_a_row_without_a_figure_has_lost():
    [loss] = losses({"submit": RECORDED, "claim": RECORDED}, {"submit": RECORDED})

    assert loss.row == "claim"
    assert "without a figure" in loss.why


def test_a_row_that_was_never_recorded_cannot_lose():
    assert losses({}, {"new": Interval(0.1, 0.2, 0.3)}) == []


def test_rows_without_a_figure_come_first_and_then_the_worst():
    recorded = dict.fromkeys(["a little", "gone", "much"], RECORDED)
    now = {"a little": Interval(0.8, 0.85, 0.89), "much": Interval(0.1, 0.2, 0.3)}

    assert [loss.row for loss in losses(recorded, now)] == ["gone", "much", "a little"]


def test_a_slow_disk_is_no_loss_since_each_round_is_held_against_itself():
    quiet, disturbed = [1000.0, 1000.0, 1000.0], [1000.0, 400.0, 500.0]
    was = ratio(quiet, [2000.0, 2000.0, 2000.0])
    now = ratio(disturbed, [2000.0, 800.0, 1000.0])

    assert not has_lost(was, now)
    assert now == Interval(0.5, 0.5, 0.5)
