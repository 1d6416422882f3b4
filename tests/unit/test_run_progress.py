"""What people see of a run while they wait for it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from daybreak.core.model import State
from daybreak.policy.runs import MAX_LOOKS, Look, accuracy_of, add_look, alike, is_look_due
from daybreak.runs import progress_bar
from daybreak.runs.progress_bar import eta_text, note_of, run_progress
from daybreak.runs.run_info import Eta, RunInfo

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
MINUTE = timedelta(minutes=1)


def info(state: str = "running", note: str = "", **jobs: int) -> RunInfo:
    counts = dict.fromkeys(State, 0) | {State(name): n for name, n in jobs.items()}
    return RunInfo(
        name="night", label="night", task="simulate", version=1, epoch=1, state=state, total=10, jobs=counts, failed={},
        orphaned=0, created_at=NOW, started_at=NOW, finished_at=None, by="ann", queue="default", priority=5,
        options={}, columns=("vin",), fixed={}, code="", note=note,
    )  # fmt: skip


def test_the_note_names_failures_and_the_range_of_the_end():
    eta = Eta(low=NOW, mid=NOW + 5 * MINUTE, high=NOW + 10 * MINUTE)
    text = note_of(info(failed=2, running=3, queued=5), eta)
    assert text == f"2 failed, 3 running, ends {eta_text(eta)}"
    assert note_of(info("finished", completed=10), eta) == ""
    assert note_of(info("paused", "no licence", suspended=3), eta) == "paused: no licence"


def test_a_range_that_is_not_today_has_its_day():
    days = Eta(low=NOW + timedelta(days=2), mid=NOW + timedelta(days=2), high=NOW + timedelta(days=3))
    low, high = days.low.astimezone(), days.high.astimezone()
    assert eta_text(days) == f"{low:%a %H:%M} to {high:%a %H:%M}"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_anything_else_nothing(monkeypatch):
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(progress_bar.sys, "stderr", stream)
        with run_progress("night [of] sims", shown=True) as bar:
            assert bar.wants_eta(100.0) is shown
            assert bar.wants_eta(101.0) is False
            bar.show(info(completed=4, queued=6))
        assert ("night [of] sims" in stream.getvalue()) is shown
        assert ("4/10" in stream.getvalue()) is shown


def test_failures_are_alike_if_one_kind_occurs_often_enough():
    assert alike(["A", "B", "A", "A"], 3) == "A"
    assert alike(["A", "B", "A", "B"], 3) == ""
    assert alike([], 1) == ""


def test_predictions_are_spread_over_the_whole_run_and_bounded():
    looks: tuple[Look, ...] = ()
    at = NOW
    for _ in range(5000):
        if is_look_due(looks, at):
            looks = add_look(looks, Look(at, at, at + MINUTE))
        assert len(looks) <= MAX_LOOKS
        at += timedelta(seconds=2)
    assert looks[0].at == NOW
    gaps = [(after.at - before.at) for before, after in pairwise(looks)]
    assert len(looks) >= MAX_LOOKS // 3
    assert max(gaps) <= (at - NOW) / 4


@pytest.mark.parametrize(("minutes", "held"), [(0, 1), (1, 2), (2, 1), (5, 0)])
def test_a_prediction_held_if_the_end_is_in_its_range(minutes, held):
    looks = [Look(NOW, NOW, NOW + MINUTE), Look(NOW, NOW + MINUTE, NOW + 2 * MINUTE)]
    found = accuracy_of(looks, NOW + minutes * MINUTE)
    assert (found.looks, found.held) == (2, held)
