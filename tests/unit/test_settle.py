from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.model import (
    FINAL,
    Cancelled,
    Done,
    Failed,
    Failure,
    HandedBack,
    JobSpec,
    Lease,
    Lost,
    Options,
    Outcome,
    Reason,
    Retry,
    State,
    Suspended,
    TimedOut,
)
from daybreak.policy.settle import settle

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

TRANSIENT = Failed(Failure(message="refused", kinds=("ConnectionRefusedError", "OSError")))
UNKNOWN = Failed(Failure(message="odd", kinds=("Strange",)))
PERMANENT = Failed(Failure(message="bad", kinds=("ValueError",)))
ALONE = Lost(alone=True)


def lease(attempt: int = 1, *, lost: int = 0, timeouts: int = 0, **options) -> Lease:
    return Lease(
        seq=9, spec=JobSpec(id="j", task="t", options=Options(**options)), fence=4, attempt=attempt, priority=5,
        worker="w", until=NOON + 10 * SECOND, lease_for=10 * SECOND, started_at=NOON, created_at=NOON,
        lost=lost, timeouts=timeouts,
    )  # fmt: skip


def fate(outcome, held: Lease):
    return settle(held, outcome, chance=0.5, by="w")


ONCE = {"retry": Retry(attempts=1)}
OFTEN = {"retry": Retry(attempts=9)}
STRICT = {"retry": Retry(unknown="fail")}


@pytest.mark.parametrize(
    ("outcome", "held", "state", "reason", "attempt", "delay"),
    [
        # outcome                 lease                          state            reason            attempt  delay
        (Done(b"1"),              lease(1),                      State.COMPLETED, None,             1, None),
        (Done(b"1"),              lease(3),                      State.COMPLETED, None,             3, None),
        (Cancelled("ann"),        lease(2),                      State.CANCELLED, None,             2, None),
        (HandedBack(),            lease(1),                      State.QUEUED,    None,             0, None),
        (HandedBack(),            lease(3),                      State.QUEUED,    None,             2, None),
        (HandedBack(),            lease(3, lost=2),              State.QUEUED,    None,             2, None),
        (Suspended("look"),       lease(1),                      State.SUSPENDED, None,             0, None),
        (Suspended("look"),       lease(3),                      State.SUSPENDED, None,             2, None),
        (TRANSIENT,               lease(1),                      State.SCHEDULED, None,             1, SECOND),
        (TRANSIENT,               lease(2),                      State.SCHEDULED, None,             2, 2 * SECOND),
        (TRANSIENT,               lease(3),                      State.FAILED,    Reason.EXHAUSTED, 3, None),
        (TRANSIENT,               lease(1, **ONCE),              State.FAILED,    Reason.EXHAUSTED, 1, None),
        (UNKNOWN,                 lease(1),                      State.SCHEDULED, None,             1, SECOND),
        (UNKNOWN,                 lease(3),                      State.FAILED,    Reason.EXHAUSTED, 3, None),
        (UNKNOWN,                 lease(1, **STRICT),            State.FAILED,    Reason.ERROR,     1, None),
        (PERMANENT,               lease(1),                      State.FAILED,    Reason.ERROR,     1, None),
        (PERMANENT,               lease(3),                      State.FAILED,    Reason.ERROR,     3, None),
        (TimedOut(SECOND),        lease(1),                      State.SCHEDULED, None,             1, SECOND),
        (TimedOut(SECOND),        lease(1, **STRICT),            State.SCHEDULED, None,             1, SECOND),
        (TimedOut(SECOND),        lease(3),                      State.FAILED,    Reason.TIMEOUT,   3, None),
        (Lost(),                  lease(1),                      State.QUEUED,    None,             1, None),
        (Lost(),                  lease(2, lost=1),              State.QUEUED,    None,             2, None),
        (Lost(),                  lease(3, lost=2),              State.QUEUED,    None,             3, None),
        (Lost(),                  lease(9, lost=8),              State.QUEUED,    None,             9, None),
        (Lost(),                  lease(1, deaths=1),            State.QUEUED,    None,             1, None),
        (Lost(),                  lease(1, **ONCE),              State.QUEUED,    None,             1, None),
        (ALONE,                   lease(1),                      State.QUEUED,    None,             1, None),
        (ALONE,                   lease(2, lost=1),              State.QUEUED,    None,             2, None),
        (ALONE,                   lease(3, lost=2, **OFTEN),     State.FAILED,    Reason.LOST,      3, None),
        (ALONE,                   lease(3),                      State.FAILED,    Reason.LOST,      3, None),
        (ALONE,                   lease(4, lost=3),              State.FAILED,    Reason.LOST,      4, None),
        (ALONE,                   lease(1, deaths=1),            State.FAILED,    Reason.LOST,      1, None),
        (ALONE,                   lease(1, **ONCE),              State.FAILED,    Reason.LOST,      1, None),
    ],
)  # fmt: skip
def test_the_fate_of_a_job(outcome, held, state, reason, attempt, delay):
    found = fate(outcome, held)
    assert (found.state, found.reason, found.attempt, found.delay) == (state, reason, attempt, delay)


OUTCOMES = [
    Done(), TRANSIENT, UNKNOWN, PERMANENT, TimedOut(SECOND), Lost(), ALONE, Cancelled(), Suspended(), HandedBack(),
]  # fmt: skip


def test_every_kind_of_outcome_stands_in_these_tests():
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))


outcomes = st.sampled_from(OUTCOMES)
leases = st.builds(
    lease,
    st.integers(1, 10),
    lost=st.integers(0, 5),
    timeouts=st.integers(0, 5),
    retry=st.builds(Retry, attempts=st.integers(1, 10), unknown=st.sampled_from(["retry", "fail"])),
    deaths=st.integers(1, 5),
)


@given(outcomes, leases, st.floats(0, 1, exclude_max=True))
def test_every_outcome_of_every_lease_has_one_consistent_fate(outcome, held, chance):
    found = settle(held, outcome, chance=chance, by="w")
    assert (found.seq, found.job, found.fence) == (held.seq, held.job, held.fence)
    assert (found.reason is not None) == (found.state is State.FAILED), "a reason belongs to the failed state alone"
    assert (found.delay is not None) == (found.state is State.SCHEDULED)
    assert (found.keep_for is not None) == (found.state in FINAL)
    assert found.state not in (State.RUNNING, State.BLOCKED)
    assert found.attempt in (held.attempt, held.attempt - 1)
    assert found.attempt == held.attempt or isinstance(outcome, HandedBack | Suspended), "only those two are uncharged"
    assert found.lost == held.lost + isinstance(outcome, Lost)
    assert found.timeouts == held.timeouts + isinstance(outcome, TimedOut)
    spared = isinstance(outcome, Lost) and not outcome.alone
    assert not (spared and found.state in FINAL), "only a death alone ends a job"
    used_up = found.attempt - held.lost >= held.spec.options.retry.attempts and found.attempt == held.attempt
    assert spared or found.state in FINAL or not used_up


@given(outcomes, leases, st.floats(0, 1, exclude_max=True))
def test_the_same_arguments_give_the_same_fate(outcome, held, chance):
    assert settle(held, outcome, chance=chance, by="w") == settle(held, outcome, chance=chance, by="w")


def test_a_hung_job_counts_as_timed_out_only_if_it_was_in_a_batch_call():
    hung, in_call = TimedOut(SECOND, story="no sign of life for 1 s"), msgspec.structs.replace(lease(), group=7)
    assert fate(hung, lease()).timeouts == 0
    assert fate(hung, in_call).timeouts == 1  # it runs alone next time
    assert fate(TimedOut(SECOND), in_call).timeouts == 1


def test_deaths_use_up_no_attempts_meant_for_errors():
    survivor = lease(6, lost=3, retry=Retry(attempts=4))
    assert fate(TRANSIENT, survivor).state is State.SCHEDULED
    assert fate(TimedOut(SECOND), survivor).state is State.SCHEDULED
    once_more = lease(7, lost=3, retry=Retry(attempts=4))
    assert fate(TRANSIENT, once_more).reason is Reason.EXHAUSTED
    assert fate(TimedOut(SECOND), once_more).reason is Reason.TIMEOUT


def test_deaths_do_not_lengthen_the_wait_before_the_next_try():
    doubling = Retry(strategy="exponential", attempts=9)
    assert fate(TRANSIENT, lease(5, lost=3, retry=doubling)).delay == fate(TRANSIENT, lease(2, retry=doubling)).delay


def test_a_job_that_died_alone_ends_after_its_deaths_whatever_attempts_it_has_left():
    assert fate(Lost(alone=True), lease(3, lost=2, retry=Retry(attempts=9))).reason is Reason.LOST
    assert fate(Lost(alone=True), lease(2, lost=1, retry=Retry(attempts=9))).state is State.QUEUED


@pytest.mark.parametrize("alone", [False, True])
def test_a_lease_that_had_not_begun_is_handed_back_uncharged(alone):
    ahead = msgspec.structs.replace(lease(3, lost=2), begun=False)
    found = fate(Lost(alone=alone), ahead)
    assert (found.state, found.attempt, found.lost, found.failure) == (State.QUEUED, 2, 2, None)
    assert found.counts_as == ""


def test_what_is_handed_back_for_later_is_scheduled_uncharged():
    found = fate(HandedBack(delay=SECOND), lease(2))
    assert (found.state, found.delay, found.attempt) == (State.SCHEDULED, SECOND, 1)


def test_a_job_that_always_fails_ends_after_its_attempts():
    attempt, seen = 0, []
    while not seen or seen[-1].state not in FINAL:
        attempt += 1
        seen.append(fate(TRANSIENT, lease(attempt, retry=Retry(attempts=5))))
    assert [found.state for found in seen] == [State.SCHEDULED] * 4 + [State.FAILED]


def test_the_result_and_the_checkpoint_are_carried():
    assert fate(Done(b"42"), lease()).result == b"42"
    assert fate(HandedBack(b"at 7"), lease()).checkpoint == b"at 7"
    assert fate(Suspended("why", b"at 7"), lease()).checkpoint == b"at 7"
    assert fate(Suspended("why"), lease()).note == "why"


def test_only_who_knows_that_a_job_never_began_says_so():
    assert fate(HandedBack(unused=True), lease()).unused
    assert fate(HandedBack(unused=True, delay=SECOND), lease()).unused
    assert not fate(HandedBack(), lease()).unused
    assert not fate(Lost(), msgspec.structs.replace(lease(), begun=False)).unused, "it may have begun unseen"


def test_a_failure_remembers_its_attempt():
    assert fate(TRANSIENT, lease(2)).failure.attempt == 2
    assert fate(TimedOut(1.5 * SECOND), lease(2)).failure.attempt == 2
    assert "longer than its limit of 1.5 s" in fate(TimedOut(1.5 * SECOND), lease()).failure.message


def test_the_server_may_ask_for_a_longer_wait():
    asked = Failed(msgspec.structs.replace(TRANSIENT.failure, retry_after=timedelta(minutes=5)))
    assert fate(asked, lease()).delay == timedelta(minutes=5)


def test_a_lost_job_says_so_and_what_is_known():
    assert fate(Lost(), lease()).failure.message == "its worker died, or sent no heartbeat for a whole lease"
    assert fate(Lost("child 3 was killed by signal 9"), lease()).failure.message == "child 3 was killed by signal 9"


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (lease(3, lost=2), "killed by signal 9; the job crashed 3 times, the last time while it ran alone"),
        (lease(1, deaths=1), "killed by signal 9; the job crashed once while it ran alone"),
        (lease(3), "killed by signal 9; the job crashed once while it ran alone, on its last attempt"),
        (
            lease(4, lost=1),
            "killed by signal 9; the job crashed 2 times, the last time while it ran alone, on its last attempt",
        ),
    ],
)
def test_a_job_that_ended_through_deaths_tells_of_them(held, told):
    assert fate(Lost("killed by signal 9", alone=True), held).failure.message == told


def test_a_job_that_kills_its_worker_ends_once_it_dies_alone():
    attempt, lost, seen = 0, 0, []
    while not seen or seen[-1] not in FINAL:
        attempt += 1
        found = fate(Lost(alone=lost >= 5), lease(attempt, lost=lost))  # five deaths in company spare it
        lost = found.lost
        seen.append(found.state)
    assert seen == [State.QUEUED] * 5 + [State.FAILED]


def test_a_cancel_is_told_of_whoever_asked():
    assert fate(Cancelled("ann"), lease()).by == "ann"
    assert fate(Cancelled(), lease()).by == "w"


def test_failed_jobs_are_kept_as_dead_letters():
    assert fate(Done(), lease()).keep_for == timedelta(days=7)
    assert fate(PERMANENT, lease()).keep_for == timedelta(days=90)
