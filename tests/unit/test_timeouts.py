from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.model import Options, State
from daybreak.policy.retain import keep_for
from daybreak.policy.timeouts import LEVELS, limit_for


def test_no_timeout_is_no_limit():
    assert limit_for(Options(), 0) is None
    assert limit_for(Options(), 99) is None


def test_each_timed_out_attempt_gives_the_next_half_as_much_again_at_most_five_times():
    limits = [limit_for(Options(timeout=timedelta(seconds=32)), n).total_seconds() for n in range(8)]
    assert limits == [32, 48, 72, 108, 162, 243, 243, 243]
    assert LEVELS == 5


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=36_500)), st.floats(1, 10), st.integers(0, 10**6))
def test_limits_never_shrink(timeout, escalate, timeouts):
    options = Options(timeout=timeout, escalate=escalate)
    assert timeout <= limit_for(options, timeouts) <= limit_for(options, timeouts + 1)


@pytest.mark.parametrize(("state", "days"), [(State.COMPLETED, 7), (State.CANCELLED, 7), (State.FAILED, 90)])
def test_failed_jobs_are_kept_longer(state, days):
    assert keep_for(Options(), state) == timedelta(days=days)


def test_none_keeps_for_ever():
    assert keep_for(Options(keep_failed=None), State.FAILED) is None
