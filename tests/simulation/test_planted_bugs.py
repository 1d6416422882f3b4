"""Test the test: each planted bug must be noticed, by an invariant that is about it, within its number of seeds."""

from __future__ import annotations

import pytest
from harness import simulate
from planted import PLANTED, Planted
from planted_in_kernel import KERNEL
from planted_in_worker import WORKER


@pytest.mark.parametrize("planted", [*PLANTED, *KERNEL, *WORKER], ids=lambda planted: planted.name)
def test_the_bug_is_noticed(planted: Planted):
    for seed in range(planted.within):
        with planted.planted():
            report = simulate(seed, planted.store, planted.parts)
        found = {violation.invariant for violation in report.violations}
        # A variant that no longer fits the real class falls over at once, and that proves nothing.
        assert "crash" not in found, report.story()
        if found & planted.caught_by:
            return
    pytest.fail(f"{planted.name}: not noticed in {planted.within} seeds")
