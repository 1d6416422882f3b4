from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.model import QueueSettings
from daybreak.core.rank import passed_over_for, rank_of, urgency, virtual_time
from daybreak.core.units import span

FIFO = QueueSettings()
MINUTE = timedelta(minutes=1)

priorities = st.integers(0, 10)
arrivals = st.integers(0, 10 * span(timedelta(hours=1)))
patiences = st.timedeltas(timedelta(microseconds=1), timedelta(hours=1))
jobs = st.tuples(priorities, arrivals)


def aging(patience):
    return QueueSettings(discipline="aging", patience=patience)


@given(jobs, jobs)
def test_fifo_goes_by_priority_then_by_the_stores_sequence_whatever_the_time(first, second):
    one, two = rank_of(FIFO, *first, 1), rank_of(FIFO, *second, 2)
    assert (one < two) == (first[0] <= second[0])


@given(jobs, jobs, patiences)
def test_aging_passes_a_job_over_exactly_within_the_stated_bound(first, second, patience):
    (p, arrived), (q, later) = sorted((first, second), key=lambda job: job[1])
    settings = aging(patience)
    overtaken = rank_of(settings, q, later, 2) < rank_of(settings, p, arrived, 1)
    assert overtaken == (later - arrived < span(passed_over_for(patience, p, q)))


@given(st.lists(jobs, min_size=1, max_size=30), patiences)
def test_aging_starves_nobody(waiting, patience):
    settings = aging(patience)
    ranked = sorted((rank_of(settings, p, at, n), p, at) for n, (p, at) in enumerate(waiting))
    for index, (_, p, at) in enumerate(ranked):
        for _, q, earlier in ranked[:index]:
            assert earlier - at <= span(passed_over_for(patience, p, q))


@given(priorities, arrivals, patiences)
def test_equal_jobs_keep_the_order_of_their_arrival(priority, arrived, patience):
    settings = aging(patience)
    assert rank_of(settings, priority, arrived, 1) < rank_of(settings, priority, arrived, 2)
    assert rank_of(settings, priority, arrived, 2) < rank_of(settings, priority, arrived + 1, 1)


def test_the_bound_is_the_difference_in_priority_times_patience():
    assert passed_over_for(MINUTE, 7, 5) == 2 * MINUTE
    assert passed_over_for(MINUTE, 5) == 5 * MINUTE
    assert passed_over_for(MINUTE, 5, 7) == timedelta()


@given(priorities, arrivals, patiences)
def test_between_queues_an_aging_head_starts_at_its_priority(priority, arrived, patience):
    settings = aging(patience)
    assert urgency(settings, priority, rank_of(settings, priority, arrived, 1).order, arrived) == priority


@given(priorities, arrivals, patiences, st.integers(0, 20))
def test_between_queues_an_aging_head_gains_one_priority_per_patience(priority, arrived, patience, waited):
    settings = aging(patience)
    order = rank_of(settings, priority, arrived, 1).order
    assert urgency(settings, priority, order, arrived + waited * span(patience)) == max(0, priority - waited)


@given(priorities, st.integers(), st.integers())
def test_between_queues_a_fifo_head_is_as_urgent_as_its_priority(priority, order, steady):
    assert urgency(FIFO, priority, order, steady) == priority


@given(st.lists(st.integers(1, 16), min_size=2, max_size=6), st.integers(1, 300))
def test_queues_take_turns_by_weight_at_every_instant(weights, rounds):
    served = [0] * len(weights)
    for _ in range(rounds):
        chosen = min(range(len(weights)), key=lambda i: (virtual_time(served[i], weights[i]), i))
        served[chosen] += 1
        for had, weight in zip(served, weights, strict=True):
            for other, its in zip(served, weights, strict=True):
                assert had * its <= (other + 1) * weight, "no queue is more than one job ahead of its share"


def test_weights_give_exact_shares():
    served = {"a": 0, "b": 0, "c": 0}
    weights = {"a": 3, "b": 2, "c": 1}
    for _ in range(600):
        served[min(weights, key=lambda name: (virtual_time(served[name], weights[name]), name))] += 1
    assert served == {"a": 300, "b": 200, "c": 100}
