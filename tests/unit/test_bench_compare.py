"""The rule by which `make bench-compare` calls a row slower, and what the report says of goals; nothing is timed."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # benchmarks is no installed package

from benchmarks.compare import has_lost, losses
from benchmarks.measure import Measured, Run
from benchmarks.report import as_json, lines, page
from benchmarks.rows import Goal, Row, rows
from benchmarks.stats import Interval, quantile, ratio

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


# -- what the report says of goals -------------------------------------------------------------------------------------


def measured(name="drain", figures=(100.0,), *, side="ours", goals=(), parts=(), facts=None, **about):
    row = Row(name=name, side=side, work="", jobs=1, options={}, goals=goals, **about)
    return Measured(row, list(figures), parts=list(parts), facts=facts or {})


def run_of(*rows):
    return Run({one.row.name: one for one in rows}, {})


@pytest.mark.parametrize(
    ("figure", "verdict"), [(59.0, "**misses**"), (60.0, "reaches"), (119.0, "reaches"), (120.0, "as aimed")]
)
def test_a_rate_must_be_high(figure, verdict):
    goal = Goal(must=60, aim=120, of="figure", unit="/s")

    [line] = lines(run_of(measured(figures=[figure], goals=(goal,))))

    assert line.verdict == verdict


@pytest.mark.parametrize(
    ("figure", "verdict"), [(5.1, "**misses**"), (5.0, "reaches"), (2.6, "reaches"), (2.5, "as aimed")]
)
def test_a_latency_must_be_low(figure, verdict):
    goal = Goal(must=5, aim=2.5, of="figure", unit="ms", at_most=True)

    [line] = lines(run_of(measured(figures=[figure], goals=(goal,))))

    assert line.verdict == verdict


def test_the_worst_comes_first_whatever_it_is_counted_in():
    slow = measured("slow", [50.0], goals=(Goal(must=100, aim=200, of="figure", unit="/s"),))
    late = measured("late", [20.0], goals=(Goal(must=5, aim=2.5, of="figure", unit="ms", at_most=True),))
    fine = measured("fine", [1.0], goals=(Goal(must=5, aim=2.5, of="figure", unit="ms", at_most=True),))

    assert [line.measured.row.name for line in lines(run_of(fine, slow, late))] == ["late", "slow", "fine"]


def test_a_goal_may_be_of_a_part_of_what_a_case_told():
    goal = Goal(must=25, aim=10, of="p99", unit="ms", at_most=True)

    [line] = lines(run_of(measured(figures=[1.0, 1.0], goals=(goal,), parts=[{"p99": 30.0}, {"p99": 50.0}])))

    assert line.reached == Interval(30.0, 40.0, 50.0)
    assert line.verdict == "**misses**"


def test_a_ratio_is_taken_to_the_fastest_peer_that_syncs_to_disk():
    ours = measured(figures=[100.0], goals=(Goal(must=6, aim=12),), against="drain")
    durable = measured("durable", [10.0], side="peer", against="drain", facts={"synchronous": "2"})
    slower = measured("slower", [5.0], side="peer", against="drain", facts={"synchronous": "2"})
    loose = measured("loose", [50.0], side="peer", against="drain", facts={"synchronous": "1"})
    other = measured("other", [90.0], side="peer", against="enqueue", facts={"synchronous": "2"})

    [line] = lines(run_of(ours, slower, durable, loose, other))

    assert line.peer is durable
    assert line.reached == Interval(10.0, 10.0, 10.0)


def test_a_goal_without_its_peer_is_shown_first():
    alone = measured("alone", [100.0], goals=(Goal(must=6, aim=12),), against="drain")
    late = measured("late", [20.0], goals=(Goal(must=5, aim=2.5, of="figure", unit="ms", at_most=True),))

    first, _ = lines(run_of(late, alone))

    assert first.measured is alone
    assert first.verdict == "**no peer**"


def test_every_part_that_a_goal_is_of_is_named_in_the_page():
    goal = Goal(must=25, aim=10, of="p99", unit="ms", at_most=True)
    run = run_of(measured("urgent", [1.0], unit="ms", goals=(goal,), parts=[{"p99": 30.0}]))
    told = as_json(run, name="", form="quick", repeat=1, place=Path(), command="")

    assert "| urgent: p99 | 1 ms |  | 30 ms | at most 25 ms | 10 ms | **misses** |" in page(run, told)


# -- rows and figures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
def test_rows_have_names_of_their_own_and_yardsticks_and_peers_that_are_there(quick):
    every = rows(quick=quick, backlog=1000)
    names = [row.name for row in every]

    assert len(set(names)) == len(names)
    assert {row.yardstick for row in every if row.yardstick} <= set(names)
    peers = {row.against for row in every if row.side == "peer"}
    ours = {row.against for row in every for goal in row.goals if goal.of == "ratio" and not goal.than}
    assert ours <= peers
    assert {goal.than for row in every for goal in row.goals if goal.than} <= set(names)


def test_what_is_held_against_one_another_runs_in_the_same_rounds():
    for quick in (True, False):
        every = {row.name: row for row in rows(quick=quick, backlog=1000)}
        for row in every.values():
            named = [every[goal.than].rounds for goal in row.goals if goal.than]
            if named:
                assert set(named) == {row.rounds}, row.name
            elif row.yardstick or any(goal.of == "ratio" for goal in row.goals):
                assert row.rounds is None, row.name


def test_a_ratio_may_be_of_a_part_that_both_told():
    goal = Goal(must=5, aim=2, at_most=True, unit="x as late", than="quickest", part="p99")
    theirs = measured("quickest", [1.0], side="peer", unit="ms", parts=[{"p99": 2.0}])
    run = run_of(measured("urgent", [3.0], unit="ms", goals=(goal,), parts=[{"p99": 30.0}]), theirs)

    [line] = lines(run)
    assert line.reached == (15, 15, 15)
    assert line.verdict == "**misses**"


def test_quantiles_are_figures_that_were_measured():
    figures = [float(n) for n in range(1, 101)]

    assert quantile(figures, 0.5) == 50
    assert quantile(figures, 0.99) == 99
    assert quantile([7.0], 0.99) == 7
