"""Who holds the write lock for too long, as the processes that wait for it judge it."""

from __future__ import annotations

from daybreak.stores.sqlite.write_lock import HolderWatch, Verdict

NOBODY = Verdict([], [])


def test_a_holder_that_stays_stopped_is_stuck():
    watch = HolderWatch(3)
    assert [watch.check({7: True}) for _ in range(2)] == [NOBODY] * 2
    assert watch.check({7: True}) == Verdict([7], [])


def test_a_holder_that_continued_in_between_is_not_stuck():
    """After the machine slept, a process that waits may continue before the holder does."""
    watch = HolderWatch(3)
    for _ in range(5):
        assert watch.check({7: True}) == NOBODY
        assert watch.check({7: True}) == NOBODY
        assert watch.check({7: False}).stuck == []


def test_holders_are_counted_one_by_one():
    watch = HolderWatch(3)
    assert watch.check({7: True}) == NOBODY
    assert watch.check({7: True}) == NOBODY
    assert watch.check({8: True}) == NOBODY
    assert watch.check({7: True, 8: True}) == NOBODY
    assert watch.check({7: True, 8: True}) == Verdict([8], [])


def test_a_holder_that_runs_is_named_once():
    watch = HolderWatch(2)
    assert watch.check({7: False}) == NOBODY
    assert watch.check({7: False}) == Verdict([], [7])
    assert watch.check({7: False}) == NOBODY
