"""A call that raises is bisected: exactly the bad items fail, and few calls find them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.policy.bisection import Bisection


def run(count: int, bad: set[int], *, transient: bool = False) -> tuple[list[range], list[int], list[int]]:
    """The calls that were made, the items that completed, and those that failed alone."""
    bisection, calls, good, failed = Bisection(count), [], [], []
    while not bisection.is_outage and (part := bisection.next_part()) is not None:
        calls.append(part)
        if not bad.intersection(part):
            bisection.succeeded()
            good += part
        elif not bisection.failed(part, is_transient=transient):
            failed += part
    return calls, good, failed


@given(st.integers(0, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(n - 1, 0)), max_size=n))))
def test_exactly_the_bad_items_fail_with_few_calls(case):
    count, bad = case
    bad = {item for item in bad if item < count}
    calls, good, failed = run(count, bad)
    assert sorted(failed) == sorted(bad)
    assert sorted(good) == [item for item in range(count) if item not in bad]
    assert len(calls) <= min(1, count) + len(bad) * 2 * math.ceil(math.log2(max(count, 1)))
    assert len(calls) <= max(2 * count - 1, 0)


def test_one_bad_item_of_sixteen_costs_eight_more_calls():
    calls, _, failed = run(16, {5})
    assert failed == [5]
    assert len(calls) == 1 + 2 * math.log2(16)


def test_items_are_known_in_order():
    calls, good, failed = run(8, {2, 6})
    decided = [item for part in calls for item in part if len(part) == 1 or not {2, 6}.intersection(part)]
    assert decided == list(range(8)) == sorted(good + failed)


def test_two_items_that_fail_alone_at_first_with_transient_errors_are_an_outage():
    bisection, calls = Bisection(16), 0
    while not bisection.is_outage:
        part = bisection.next_part()
        calls += 1
        bisection.failed(part, is_transient=True)
    assert calls == 1 + math.log2(16) + 1  # down to the first item, and the second
    assert bisection.rest() == list(range(2, 16))
    assert bisection.next_part() is None


@pytest.mark.parametrize("transient", [False, True])
def test_it_is_no_outage_once_a_call_succeeded(transient):
    _, good, failed = run(8, {4, 5, 6, 7}, transient=transient)
    assert good == [0, 1, 2, 3]
    assert failed == [4, 5, 6, 7]
