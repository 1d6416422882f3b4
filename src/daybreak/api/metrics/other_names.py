"""The same figures under the metric names of pyWATS, Integr8sCode and Atlantis enhanced locking, so that dashboards
written for those go on. `daybreak serve --metric-names` chooses; docs/reference/metrics.md maps every name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric

from daybreak.api.metrics.families import add_classes, buckets, counters_of, priority_name
from daybreak.api.metrics.figures import Figures
from daybreak.core.model import State

WAITING: Final = frozenset({State.QUEUED, State.BLOCKED, State.SCHEDULED})


def pywats(figures: Figures) -> Iterator[Metric]:
    """Names of the pyWATS document and of its code."""
    yield _counter("queue_items_added", "Total items added", _total(figures, "daybreak_jobs_submitted"))
    yield _counter("queue_items_completed", "Total items completed", _total(figures, "daybreak_jobs_completed"))
    yield _gauge("queue_depth", "Current queue depth", _waiting(figures))
    depth = GaugeMetricFamily("pywats_queue_depth", "Current queue depth by queue", labels=("queue_name",))
    by_queue: dict[str, int] = {}
    for tally in figures.tallies:
        if tally.state in WAITING:
            by_queue[tally.queue] = by_queue.get(tally.queue, 0) + tally.n
    for queue, n in sorted(by_queue.items(), key=lambda one: -one[1])[:200]:
        depth.add_metric((queue,), n)
    yield depth


def integr8scode(figures: Figures) -> Iterator[Metric]:
    """The five instruments of the Integr8sCode document, as an OpenTelemetry exporter spells them for Prometheus."""
    yield _gauge("queue_depth", "Pending executions", _waiting(figures))
    running = sum(tally.n for tally in figures.tallies if tally.state is State.RUNNING)
    yield _gauge("queue_active", "Active executions", running)
    yield _counter("queue_enqueue", "Total executions enqueued", _total(figures, "daybreak_jobs_submitted"))
    started = _total(figures, "daybreak_attempts") + running
    yield _counter("queue_schedule", "Total executions scheduled from queue", started)
    yield _waits(figures, "queue_wait_time", "Time from enqueue to schedule, by priority")


def atlantis(figures: Figures) -> Iterator[Metric]:
    """Names of the Atlantis enhanced locking document."""
    size = GaugeMetricFamily("atlantis_queue_size", "Waiting requests", labels=("queue_type",))
    size.add_metric(("priority",), _waiting(figures))
    yield size
    yield _total_waits(figures, "atlantis_queue_wait_time", "Wait for a lock or a slot, in seconds")
    operations = _total(figures, "daybreak_attempts")
    yield _counter("atlantis_timeouts", "Operations that ran into a time limit", _total(figures, "daybreak_timeouts"))
    yield _counter("atlantis_operations", "Operations that ended", operations)
    completed = _total(figures, "daybreak_retries_completed")
    yield _counter("atlantis_retry_success", "Retries that succeeded", completed)
    yield _counter("atlantis_retry", "Retries that ended", _total(figures, "daybreak_retries"))


NAMES: Final[dict[str, Callable[[Figures], Iterator[Metric]]]] = {
    "pywats": pywats,
    "integr8scode": integr8scode,
    "atlantis": atlantis,
}


def _waiting(figures: Figures) -> int:
    return sum(tally.n for tally in figures.tallies if tally.state in WAITING)


def _total(figures: Figures, counter: str) -> int:
    return sum(total.n for total in figures.totals if counter in counters_of(total.what))


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _total_waits(figures: Figures, name: str, about: str) -> Metric:
    """How long jobs waited, as count and sum by priority. Locks are included: no worker measures those."""
    family = SummaryMetricFamily(name, about, labels=("priority",))
    found: dict[str, tuple[int, int]] = {}
    for total in figures.totals:
        if total.what == "waited":
            priority = priority_name(total.priority)
            n, took = found.get(priority, (0, 0))
            found[priority] = (n + total.n, took + total.took)
    for priority, (n, took) in sorted(found.items()):
        family.add_metric((priority,), n, took / 1e6)
    return family


def _waits(figures: Figures, name: str, about: str) -> Metric:
    """How long jobs waited, as a histogram by priority."""
    family = HistogramMetricFamily(name, about, labels=("priority",))
    found: dict[str, tuple[dict[int, int], float]] = {}
    for (_, _, level), sketch in figures.sketches.items():
        priority = priority_name(level)
        classes, seconds = found.get(priority, ({}, 0.0))
        found[priority] = (add_classes(classes, sketch.waits), seconds + sketch.waited / 1e6)
    for priority, (classes, seconds) in sorted(found.items()):
        family.add_metric((priority,), buckets(classes), seconds)
    return family
