"""How long jobs are kept after they ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from daybreak.core.model import Options, State
from daybreak.policy.retain import keep_for


@pytest.mark.parametrize(("state", "days"), [(State.COMPLETED, 7), (State.CANCELLED, 7), (State.FAILED, 90)])
def test_failed_jobs_are_kept_longer(state, days):
    assert keep_for(Options(), state) == timedelta(days=days)


def test_none_keeps_for_ever():
    assert keep_for(Options(keep_failed=None), State.FAILED) is None
