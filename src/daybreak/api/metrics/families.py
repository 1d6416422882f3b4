"""Daybreak's own metrics. docs/reference/metrics.md lists them; a test compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from daybreak.api.metrics.figures import Figures
from daybreak.api.metrics.labels import Labels, weigh
from daybreak.core.model import State
from daybreak.core.units import bucket
from daybreak.policy.alerts import LEVELS
from daybreak.policy.sagas import PHASES
from daybreak.policy.trends import at_most
from daybreak.store.protocol import Tally, Total

BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)  # seconds
BREAKER_STATES: Final = {"closed": 0, "open": 1}


class Families:
    """The metrics of one scrape."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        jobs: list[Tally | Total] = [
            *figures.tallies,
            *(total for total in figures.totals if total.what == "submitted"),
        ]
        self.queues = Labels(weigh((one.queue, one.n) for one in jobs))
        self.tasks = Labels(weigh((one.task, one.n) for one in jobs))

    def all(self) -> Iterator[Metric]:
        yield self._jobs()
        yield from self._counters()
        yield from self._histograms()
        yield self._oldest()
        yield from self._resources()
        yield from self._locks()
        yield self._workers()
        yield from self._schedules()
        yield self._sagas()
        yield self._alerts()

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily(
            "daybreak_jobs", "Jobs in the store, by state.", labels=("queue", "priority", "state")
        )
        found: dict[tuple[str, ...], int] = {}
        for tally in self._figures.tallies:
            key = (self.queues[tally.queue], priority_name(tally.priority), tally.state.value)
            found[key] = found.get(key, 0) + tally.n
        return _filled(family, found)

    def _counters(self) -> Iterator[Metric]:
        counts = {name: Counter(self) for name in COUNTERS}
        for total in self._figures.totals:
            for name in counters_of(total.what):
                counts[name].add(total.queue, total.task, total.priority, total.n)
        for name, about in COUNTERS.items():
            labels = ("queue", "task", "priority")
            yield _filled(CounterMetricFamily(name, about, labels=labels), counts[name].found)
        saved: dict[tuple[str, ...], float] = {}
        for total in self._figures.totals:
            if total.what in ("cached", "followed"):
                by_task = (self.queues[total.queue], self.tasks[total.task])
                saved[by_task] = saved.get(by_task, 0.0) + total.took / 1e6
        about = "How long the jobs that did not run, because of the cache, would have run."
        yield _filled(CounterMetricFamily("daybreak_cache_saved_seconds", about, labels=("queue", "task")), saved)
        reasons: dict[tuple[str, ...], int] = {}
        for total in self._figures.totals:
            words = total.what.split()
            if words[0] == "failed" and len(words) > 1:
                key = (self.queues[total.queue], self.tasks[total.task], words[1])
                reasons[key] = reasons.get(key, 0) + total.n
        yield _filled(
            CounterMetricFamily(
                "daybreak_jobs_failed", "Jobs that failed for good.", labels=("queue", "task", "reason")
            ),
            reasons,
        )

    def _histograms(self) -> Iterator[Metric]:
        labels = ("queue", "task", "priority")
        waits = HistogramMetricFamily(
            "daybreak_wait_seconds", "From when a job could start until its first attempt started.", labels=labels
        )
        runs = HistogramMetricFamily("daybreak_run_seconds", "How long attempts ran.", labels=labels)
        found: dict[tuple[str, ...], tuple[dict[int, int], float, dict[int, int], float]] = {}
        for (queue, task, priority), sketch in self._figures.sketches.items():
            key = (self.queues[queue], self.tasks[task], priority_name(priority))
            wait_classes, wait_sum, run_classes, run_sum = found.get(key, ({}, 0.0, {}, 0.0))
            found[key] = (
                add_classes(wait_classes, sketch.waits),
                wait_sum + sketch.waited / 1e6,
                add_classes(run_classes, sketch.runs),
                run_sum + sketch.ran / 1e6,
            )
        for names, (wait_classes, wait_sum, run_classes, run_sum) in sorted(found.items()):
            waits.add_metric(names, buckets(wait_classes), wait_sum)
            runs.add_metric(names, buckets(run_classes), run_sum)
        yield waits
        yield runs

    def _oldest(self) -> Metric:
        family = GaugeMetricFamily(
            "daybreak_oldest_wait_seconds", "How long the oldest queued job has waited.", labels=("queue",)
        )
        found: dict[tuple[str, ...], float] = {}
        for queue, since in self._figures.oldest.items():
            waited = max((self._figures.now - since).total_seconds(), 0.0)
            key = (self.queues[queue],)
            found[key] = max(found.get(key, 0.0), waited)
        return _filled(family, found)

    def _resources(self) -> Iterator[Metric]:
        names = Labels({one.name: one.waiting + one.used + 1 for one in self._figures.resources})
        shown = [one for one in self._figures.resources if names[one.name] == one.name]
        slots = {(one.name,): one.slots for one in shown if one.slots is not None}
        yield _filled(_resource("slots", "Slots of a resource."), slots)
        yield _filled(_resource("slots_used", "Slots that running jobs hold."), {(r.name,): r.used for r in shown})
        yield _filled(_resource("waiting", "Jobs that wait for a resource."), {(r.name,): r.waiting for r in shown})
        breakers = {
            (one.name,): BREAKER_STATES.get(one.breaker, 0) for one in shown if one.breaker_settings is not None
        }
        about = "State of a resource's breaker: 0 closed, 1 open."
        yield _filled(GaugeMetricFamily("daybreak_breaker_state", about, labels=("resource",)), breakers)
        opened = {(one.name,): one.opened for one in shown if one.breaker_settings is not None}
        about = "How often a resource's breaker opened."
        yield _filled(CounterMetricFamily("daybreak_breaker_opened", about, labels=("resource",)), opened)

    def _locks(self) -> Iterator[Metric]:
        held: dict[tuple[str, ...], int] = {}
        waiting: dict[tuple[str, ...], int] = {}
        for waiter in self._figures.locks:
            for lock in waiter.locks:
                target = held if waiter.state is State.RUNNING else waiting
                target[lock,] = target.get((lock,), 0) + 1
        named = Labels(weigh((lock, n) for (lock,), n in [*held.items(), *waiting.items()]))
        about = "Whether a lock is held."
        yield _filled(GaugeMetricFamily("daybreak_lock_held", about, labels=("lock",)), _shown(held, named))
        about = "How many wait for a lock."
        yield _filled(GaugeMetricFamily("daybreak_lock_waiters", about, labels=("lock",)), _shown(waiting, named))

    def _workers(self) -> Metric:
        family = GaugeMetricFamily("daybreak_workers", "Workers, by state.", labels=("state",))
        found: dict[tuple[str, ...], int] = {("live",): 0, ("stopping",): 0, ("gone",): 0}
        for worker in self._figures.workers:
            state = worker.state(self._figures.now)
            if (state,) in found:
                found[state,] += 1
        return _filled(family, found)

    def _schedules(self) -> Iterator[Metric]:
        names = Labels({one.name: one.ticks + 1 for one in self._figures.schedules})
        shown = [one for one in self._figures.schedules if names[one.name] == one.name]
        about = "Ticks of a schedule that were fired."
        fired = {(one.name,): one.ticks for one in shown}
        yield _filled(CounterMetricFamily("daybreak_schedule_ticks", about, labels=("schedule",)), fired)
        about = "Ticks of a schedule that were missed and not caught up."
        skipped = {(one.name,): one.skipped for one in shown}
        yield _filled(CounterMetricFamily("daybreak_schedule_skipped", about, labels=("schedule",)), skipped)
        about = "How late the next tick of a schedule is; 0 if it is not due, or the schedule is paused."
        late = {
            (one.name,): max((self._figures.now - one.next_tick).total_seconds(), 0.0) if one.next_tick else 0.0
            for one in shown
        }
        yield _filled(GaugeMetricFamily("daybreak_schedule_late_seconds", about, labels=("schedule",)), late)

    def _sagas(self) -> Metric:
        """Every state of each name, also where it is 0, so that a rule about stuck sagas sees them recover."""
        names = Labels(weigh((name, n) for (name, _), n in self._figures.sagas.items()))
        found: dict[tuple[str, ...], int] = {}
        for (name, phase), n in self._figures.sagas.items():
            for state in PHASES:
                key = (names[name], state)
                found[key] = found.get(key, 0) + (n if state == phase else 0)
        return _filled(GaugeMetricFamily("daybreak_sagas", "Sagas, by state.", labels=("saga", "state")), found)

    def _alerts(self) -> Metric:
        about = "Level of an alert: 0 ok, 1 warning, 2 critical."
        family = GaugeMetricFamily("daybreak_alert_level", about, labels=("rule", "subject"))
        found = {
            (alert.rule, alert.subject): LEVELS.index(alert.level) for alert in self._figures.alerts.alerts[:200]
        }  # fmt: skip
        return _filled(family, found)


COUNTERS: Final = {
    "daybreak_jobs_submitted": "Jobs that were accepted.",
    "daybreak_jobs_completed": "Jobs that completed.",
    "daybreak_jobs_cached": "Jobs that completed without running, because their result was known.",
    "daybreak_jobs_followed": "Jobs that completed without running, with the result of one that was on its way.",
    "daybreak_jobs_detached": "Attempts that left their worker to go on elsewhere.",
    "daybreak_jobs_cancelled": "Jobs that were cancelled.",
    "daybreak_attempts": "Attempts that ended.",
    "daybreak_retries": "Attempts after a job's first that ended.",
    "daybreak_retries_completed": "Attempts after a job's first that completed their job.",
    "daybreak_timeouts": "Attempts that ran into a time limit, and jobs that waited longer than they may.",
    "daybreak_jobs_lost": "Attempts whose worker died or was not heard of.",
    "daybreak_batch_calls": "Calls of batch tasks whose jobs were settled.",
    "daybreak_batch_elements": "Jobs of these calls.",
}
_NO_ATTEMPT: Final = frozenset({
    "submitted", "shortened", "spared", "waited", "batches", "last", "attempts", "cancelled", "failed expired",
    "failed shed", "calls", "elements", "cached", "followed", "detached",
})  # fmt: skip


def counters_of(what: str) -> list[str]:
    """The counters to which a total adds."""
    words = what.split()
    found = []
    if what == "calls":
        found.append("daybreak_batch_calls")
    if what == "elements":
        found.append("daybreak_batch_elements")
    if what == "submitted":
        found.append("daybreak_jobs_submitted")
    if words[0] in ("completed", "cached", "followed"):
        found.append("daybreak_jobs_completed")
    if what in ("cached", "followed", "detached"):
        found.append(f"daybreak_jobs_{what}")
    if words[0] == "cancelled":
        found.append("daybreak_jobs_cancelled")
    if words[0] == "lost":
        found.append("daybreak_jobs_lost")
    if what not in _NO_ATTEMPT:
        found.append("daybreak_attempts")
        if "again" in words:
            found.append("daybreak_retries")
            if words[0] == "completed":
                found.append("daybreak_retries_completed")
    if {"late", "hung", "expired"} & set(words):
        found.append("daybreak_timeouts")
    return found


class Counter:
    """One counter by queue, task and priority."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self.found: dict[tuple[str, ...], int] = {}

    def add(self, queue: str, task: str, priority: int, n: int) -> None:
        key = (self._families.queues[queue], self._families.tasks[task], priority_name(priority))
        self.found[key] = self.found.get(key, 0) + n


def priority_name(priority: int) -> str:
    """The bucket of a priority, in lower case."""
    return bucket(priority).name.lower()


def add_classes(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    for at, n in other.items():
        one[at] = one.get(at, 0) + n
    return one


def buckets(classes: dict[int, int]) -> list[tuple[str, float]]:
    """Cumulative buckets, as Prometheus wants them."""
    counted = zip(BOUNDS, at_most(classes, BOUNDS), strict=True)
    return [*((repr(bound), float(n)) for bound, n in counted), ("+Inf", float(sum(classes.values())))]


def _resource(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"daybreak_resource_{name}", about, labels=("resource",))


def _shown(found: dict[tuple[str, ...], int], named: Labels) -> dict[tuple[str, ...], int]:
    return {key: n for key, n in found.items() if named[key[0]] == key[0]}


def _filled(family: GaugeMetricFamily | CounterMetricFamily, found: Mapping[Any, float | int]) -> Metric:
    for key, value in sorted(found.items()):
        family.add_metric(key, float(value))
    return family
