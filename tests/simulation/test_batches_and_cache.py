"""Batch calls that are bisected, killed and cut off, and equal jobs of which one runs: no promise may be broken, and a
planted mistake is noticed by a rule that is about it."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest
from harness import simulate
from harness.batches_and_cache import BATCHES_AND_CACHE
from harness.stores import fresh
from planted import Planted
from planted_in_batches import BATCHES, ONE_BY_ONE

SEEDS = 10
FIRST_PLANTED = 2  # the first seed in which a planted bug is looked for: more of them show early from here on
MORE_SEEDS = 40  # at most, until every trouble was met

# A run that never met one of these has proven nothing about it.
SOMETIMES = {
    "batch call", "call bisected", "element failed alone", "child died in mid-call", "child died with a whole call",
    "child died before it reported a part", "call hung", "rest of a call handed back", "child froze",
    "waits for a slot", "follower", "result of another", "worker crashed", "zombie woke", "outage", "store hung",
    "lease lost", "event lease_expired", "event retried", "event resumed", "event expired", "cancel requested",
    "suspend requested", "bulk cancel", "reply lost", "unknown exchange", "ended through deaths",
}  # fmt: skip


def test_no_seed_breaks_a_promise_and_every_trouble_is_met():
    seen: Counter[str] = Counter()
    for seed in range(MORE_SEEDS):
        if seed >= SEEDS and not SOMETIMES - set(seen):
            return
        with fresh("memory") as factory:
            report = simulate(seed, factory, story=BATCHES_AND_CACHE)
        seen.update(report.sometimes)
        assert not report.violations, f"seed {seed}\n{report.story()}"
    pytest.fail(f"never met: {sorted(SOMETIMES - set(seen))}")


@pytest.mark.parametrize("seed", [100, 101])
def test_no_seed_breaks_a_promise_on_sqlite(seed):
    with fresh("sqlite") as factory:
        report = simulate(seed, factory, story=BATCHES_AND_CACHE)
    assert not report.violations, f"seed {seed}\n{report.story()}"


@pytest.mark.parametrize("seed", [200, 201])
def test_no_seed_breaks_a_promise_when_leases_are_taken_over_one_by_one(seed):
    with fresh("memory") as factory, mock.patch.object(*ONE_BY_ONE):
        report = simulate(seed, factory, story=BATCHES_AND_CACHE)
    assert not report.violations, f"seed {seed}\n{report.story()}"


def test_a_seed_replays_to_the_byte():
    digests = set()
    for _ in range(2):
        with fresh("memory") as factory:
            digests.add(simulate(3, factory, story=BATCHES_AND_CACHE).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("planted", BATCHES, ids=lambda planted: planted.name)
def test_the_bug_is_noticed(planted: Planted):
    for seed in range(FIRST_PLANTED, FIRST_PLANTED + planted.within):
        with planted.planted():
            report = simulate(seed, planted.store, planted.parts, BATCHES_AND_CACHE)
        found = {violation.invariant for violation in report.violations}
        # A variant that no longer fits the real class falls over at once, and that proves nothing.
        assert "crash" not in found, report.story()
        if found & planted.caught_by:
            return
    pytest.fail(f"{planted.name}: not noticed in {planted.within} seeds")
