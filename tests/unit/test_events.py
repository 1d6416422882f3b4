from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from daybreak.core import events
from daybreak.core.events import KINDS, Event, Folded, ends_job, fold
from daybreak.core.model import Failure, JobSpec, Reason, Settlement, State

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def event(n: int, kind: str, **changed) -> Event:
    return Event(n=n, kind=kind, job="j", at=NOON, **changed)


LIFE = [
    event(1, "submitted", state=State.QUEUED, priority=7),
    event(2, "started", state=State.RUNNING, attempt=1, fence=1),
    event(3, "lease_expired", fence=2),
    event(4, "failed", state=State.FAILED, reason=Reason.LOST, attempt=1),
    event(5, "retried", state=State.QUEUED, attempt=0),
    event(6, "reprioritised", priority=0),
    event(7, "started", state=State.RUNNING, attempt=1, fence=3),
    event(8, "completed", state=State.COMPLETED, attempt=1),
]


@pytest.mark.parametrize(
    ("n", "state", "reason", "priority", "attempt", "fence"),
    [
        (1, State.QUEUED, None, 7, 0, 0),
        (2, State.RUNNING, None, 7, 1, 1),
        (3, State.RUNNING, None, 7, 1, 2),
        (4, State.FAILED, Reason.LOST, 7, 1, 2),
        (5, State.QUEUED, None, 7, 0, 2),
        (6, State.QUEUED, None, 0, 0, 2),
        (7, State.RUNNING, None, 0, 1, 3),
        (8, State.COMPLETED, None, 0, 1, 3),
    ],
)
def test_events_fold_to_the_state_they_tell_of(n, state, reason, priority, attempt, fence):
    assert fold(LIFE[:n]) == Folded(state=state, reason=reason, priority=priority, attempt=attempt, fence=fence, n=n)


@pytest.mark.parametrize("cut", range(len(LIFE) + 1))
def test_a_fold_can_go_on_where_another_ended(cut):
    assert fold(LIFE[cut:], fold(LIFE[:cut])) == fold(LIFE)


@pytest.mark.parametrize("missing", range(len(LIFE) - 1))
def test_a_gap_is_noticed(missing):
    with pytest.raises(ValueError, match="the numbers have a gap"):
        fold(LIFE[:missing] + LIFE[missing + 1 :])


def test_a_repeated_event_is_noticed():
    with pytest.raises(ValueError, match="event 2 of job j follows 2"):
        fold([*LIFE[:2], LIFE[1]])


def test_progress_takes_no_number_and_changes_no_state():
    progress = event(2, "progress", progress=0.5)
    assert fold([*LIFE[:2], progress, progress, *LIFE[2:]]) == fold(LIFE)


def test_events_come_back_from_their_json_lines():
    lines = b"\n".join(events.encode(e) for e in LIFE)
    assert events.decode_lines(lines) == LIFE


def long_life(rounds: int) -> list[Event]:
    """A job that is retried by a person again and again; every event is kept."""
    told = [event(1, "submitted", state=State.QUEUED, priority=7)]
    for fence in range(1, rounds + 1):
        n = len(told)
        told += [
            event(n + 1, "started", state=State.RUNNING, attempt=1, fence=fence),
            event(n + 2, "failed", state=State.FAILED, reason=Reason.ERROR, attempt=1),
            event(n + 3, "retried", state=State.QUEUED, attempt=0),
        ]
    return told


def test_a_long_history_stays_bounded_and_folds_to_the_same_state_at_every_step():
    whole, short = long_life(500), []
    for n, told in enumerate(whole, 1):
        short = events.shorten_history([*short, told])
        assert len(short) <= events.FOLD_FROM + 2
        if n % 7 == 0 or n % events.KEPT_UNFOLDED < 3:
            assert fold(short) == fold(whole[:n])
    assert [e.kind for e in short[:2]] == ["submitted", "folded"]
    assert short[2:] == whole[-len(short[2:]) :], "the latest events are kept as they were"


def test_a_short_history_is_left_as_it_is():
    assert events.shorten_history(LIFE) == LIFE


def settlement(state: State, **said) -> Settlement:
    return Settlement(seq=1, job="j", fence=1, state=state, attempt=1, **said)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (settlement(State.COMPLETED), "completed"),
        (settlement(State.FAILED, reason=Reason.ERROR), "failed"),
        (settlement(State.CANCELLED), "cancelled"),
        (settlement(State.SUSPENDED), "suspended"),
        (settlement(State.SCHEDULED, delay=timedelta(1), failure=Failure(message="x")), "retrying"),
        (settlement(State.QUEUED, failure=Failure(message="x")), "retrying"),
        (settlement(State.QUEUED), "released"),
    ],
)
def test_a_settlement_is_told_by_its_kind(told, kind):
    found = events.settled(told, 3, NOON, None)
    assert (found.kind, found.n, found.state, found.attempt) == (kind, 3, told.state, 1)
    assert found.kind in KINDS


def test_a_long_error_is_told_in_short():
    told = events.settled(settlement(State.FAILED, failure=Failure(message="x" * 9000)), 2, NOON, None)
    assert len(told.error) == 300


def test_the_first_event_says_what_was_asked_and_by_whom():
    told = events.submitted(JobSpec(id="j", task="t", queue="q", by="ann"), State.QUEUED, NOON, None)
    assert (told.n, told.task, told.queue, told.by, told.priority) == (1, "t", "q", "ann", 5)


def test_an_end_is_known_by_its_state_and_not_by_its_kind():
    assert [e.n for e in LIFE if ends_job(e)] == [4, 8]
    assert ends_job(event(2, "expired", state=State.FAILED, reason=Reason.EXPIRED))
    assert ends_job(event(2, "moved", state=State.CANCELLED))
    assert not ends_job(event(9, "folded", state=State.COMPLETED))  # stands for many events, none of which is told now
    assert not ends_job(event(9, "removed"))
    assert not ends_job(event(2, "moved", state=State.QUEUED))
