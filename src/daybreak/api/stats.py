"""Statistics of queues, time limits and retries. All of them are read from the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.client.duration_stats import KIND as DURATIONS
from daybreak.client.duration_stats import decoded
from daybreak.core.model import UNFINISHED, Gate, Record, State
from daybreak.core.units import Priority, moment
from daybreak.policy.durations import Durations, classes_of, quantile
from daybreak.policy.timeouts import KINDS
from daybreak.store.protocol import MAXIMA, Tally, Total

ZERO: Final = timedelta()
MAX_SCANNED: Final = 10_000  # running jobs that are read to count those with a time limit


class QueueStats(Struct, frozen=True, kw_only=True):
    """The totals of one queue, or of all queues. `timeouts` are jobs that expired while they waited, `errors` all other
    failed jobs except shed ones, `processed` is `completed` plus `errors`. A job that a person retries counts again.
    `average_wait` starts when a job could have started. `waiting`, `running` and `by_priority` (of waiting jobs) are
    counts at this instant. Of the completed jobs, `cached` had a known result and `followed` that of a job on its way;
    they did not run, which `saved` so much run time, and `average_run` leaves them out."""

    queue: str | None
    submitted: int = 0
    processed: int = 0
    completed: int = 0
    timeouts: int = 0
    errors: int = 0
    shed: int = 0
    cancelled: int = 0
    shortened: int = 0
    waiting: int = 0
    running: int = 0
    average_wait: timedelta = ZERO
    average_run: timedelta = ZERO
    by_priority: dict[int, int] = {}
    batches: int = 0
    last_at: datetime | None = None
    last_ran: timedelta = ZERO
    cached: int = 0
    followed: int = 0
    saved: timedelta = ZERO


class TimeoutStats(Struct, frozen=True, kw_only=True):
    """`by_kind`: execution, hang, wait (in a queue), and the kinds of `limit_time`. `adjustments` counts how often a
    limit was adapted to measured durations, `escalations` how often a longer limit was in force. `average` is the
    average duration of operations with a limit, `active` the number of running jobs with a limit."""

    total: int = 0
    by_kind: dict[str, int] = {}
    adjustments: int = 0
    escalations: int = 0
    average: timedelta = ZERO
    active: int = 0


class RetryStats(Struct, frozen=True, kw_only=True):
    """Retries are the attempts after a job's first. `spared` retries had to wait because their resource was failing;
    `adapted` retries used the delay of an adaptive strategy; `breaker_trips` counts how often a breaker opened."""

    total: int = 0
    successful: int = 0
    failed: int = 0
    breaker_trips: int = 0
    spared: int = 0
    adapted: int = 0
    by_strategy: dict[str, int] = {}
    average_run: timedelta = ZERO
    most_attempts: int = 0


class AdaptiveStats(Struct, frozen=True, kw_only=True):
    """The durations of one operation over the last day, and the limit that follows from them."""

    subject: str
    seen: int
    late: int
    median: timedelta
    p99: timedelta
    base: timedelta
    limit: timedelta
    adjustments: int


class BatchCallStats(Struct, frozen=True, kw_only=True):
    """The calls of a batch task: how many there were, for how many jobs in total, for how many on average, and how long
    they ran. A call counts when its jobs are settled, those of one job included."""

    task: str
    calls: int
    elements: int
    average_size: float
    average_run: timedelta


class Stats(Struct, frozen=True, kw_only=True):
    queue: QueueStats
    timeouts: TimeoutStats
    retries: RetryStats
    adaptive: list[AdaptiveStats] = []
    batch_calls: list[BatchCallStats] = []


async def stats_of(client: Client, queue: str | None = None) -> Stats:
    """The statistics of one queue, or of all queues. Breakers and time limits of plain code belong to no queue and are
    always included."""
    store = client.store
    totals = await store.totals(queue)
    counted = _Totals(totals)
    tallies = [tally for tally in await store.count() if queue in (None, tally.queue)]
    adaptive = [_read(record) for record in await store.records(DURATIONS)]
    gates = [msgspec.json.decode(record.value, type=Gate) for record in await store.records("gate")]
    return Stats(
        queue=_of_queue(queue, counted, tallies),
        timeouts=_of_timeouts(counted, adaptive, await _active(client, queue)),
        retries=_of_retries(counted, gates),
        adaptive=[_adaptive(subject, durations) for subject, durations in adaptive if durations.hours],
        batch_calls=_of_batch_calls(totals),
    )


async def by_queue(client: Client) -> list[QueueStats]:
    """The statistics of each queue, by name."""
    totals, tallies = await client.store.totals(), await client.store.count()
    names = sorted({total.queue for total in totals} | {tally.queue for tally in tallies})
    return [
        _of_queue(name, _Totals(t for t in totals if t.queue == name), [t for t in tallies if t.queue == name])
        for name in names
    ]


class _Totals:
    """Totals over all tasks and priorities, selected by the words of their labels (see `policy.outcome_label`)."""

    def __init__(self, totals: Iterable[Total]) -> None:
        self._cells: dict[str, tuple[int, int]] = {}
        for total in totals:
            before, more = self._cells.get(total.what, (0, 0)), (total.n, total.took)
            if total.what in MAXIMA:
                self._cells[total.what] = max(before, more)
            else:
                self._cells[total.what] = (before[0] + more[0], before[1] + more[1])

    def __getitem__(self, what: str) -> tuple[int, int]:
        return self._cells.get(what, (0, 0))

    def n(self, *words: str, without: tuple[str, ...] = ()) -> int:
        return self.both(*words, without=without)[0]

    def both(self, *words: str, without: tuple[str, ...] = ()) -> tuple[int, int]:
        """The count and the total duration of all labels that contain all of `words` and none of `without`."""
        matching = [cell for label, cell in self._cells.items() if _matches(label, words, without)]
        return sum(n for n, _ in matching), sum(took for _, took in matching)

    def strategies(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for what, (n, _) in self._cells.items():
            first, *rest = what.split()
            if first == "retrying":
                found[rest[0]] = found.get(rest[0], 0) + n
        return dict(sorted(found.items()))


def _matches(label: str, words: tuple[str, ...], without: tuple[str, ...]) -> bool:
    parts = label.split()
    return all(word in parts for word in words) and not any(word in parts for word in without)


def _of_queue(queue: str | None, counted: _Totals, tallies: list[Tally]) -> QueueStats:
    completed, took = counted.both("completed")
    failed, expired, shed = counted.n("failed"), counted.n("failed", "expired"), counted.n("failed", "shed")
    waited, waited_for = counted["waited"]
    last_at, last_ran = counted["last"]
    cached, saved_by_cached = counted["cached"]
    followed, saved_by_followed = counted["followed"]
    waiting = [tally for tally in tallies if tally.state in UNFINISHED - {State.RUNNING}]
    by_priority = {named.value: 0 for named in Priority}
    for tally in waiting:
        by_priority[tally.priority] = by_priority.get(tally.priority, 0) + tally.n
    return QueueStats(
        queue=queue,
        submitted=counted["submitted"][0],
        processed=completed + cached + followed + failed - expired - shed,
        completed=completed + cached + followed,
        timeouts=expired,
        errors=failed - expired - shed,
        shed=shed,
        cancelled=counted.n("cancelled"),
        shortened=counted["shortened"][0],
        waiting=sum(tally.n for tally in waiting),
        running=sum(tally.n for tally in tallies if tally.state is State.RUNNING),
        average_wait=_mean(waited_for, waited),
        average_run=_mean(took, completed),
        by_priority=dict(sorted(by_priority.items())),
        batches=counted["batches"][0],
        last_at=moment(last_at) if last_at else None,
        last_ran=timedelta(microseconds=last_ran),
        cached=cached,
        followed=followed,
        saved=timedelta(microseconds=saved_by_cached + saved_by_followed),
    )


def _of_timeouts(counted: _Totals, adaptive: list[tuple[str, Durations]], active: int) -> TimeoutStats:
    by_kind = {
        "execution": counted.n("late"),
        "hang": counted.n("hung"),
        **{kind: sum(known.late for subject, known in adaptive if subject.split()[0] == kind) for kind in KINDS},
    }
    by_kind["wait"] += counted.n("failed", "expired")
    seen = sum(known.seen for _, known in adaptive)
    seconds = sum(known.seconds for _, known in adaptive)
    return TimeoutStats(
        total=sum(by_kind.values()),
        by_kind=by_kind,
        adjustments=sum(known.moved for _, known in adaptive),
        escalations=counted.n("escalated") + sum(known.escalated for _, known in adaptive),
        average=timedelta(seconds=seconds / seen) if seen else ZERO,
        active=active,
    )


def _of_retries(counted: _Totals, gates: list[Gate]) -> RetryStats:
    total, took = counted.both("again")
    strategies = counted.strategies()
    return RetryStats(
        total=total,
        successful=counted.n("completed", "again"),
        failed=counted.n("again", without=("completed", "cancelled")),
        breaker_trips=sum(gate.opened for gate in gates),
        spared=counted["spared"][0],
        adapted=strategies.get("adaptive", 0),
        by_strategy=strategies,
        average_run=_mean(took, total),
        most_attempts=counted["attempts"][0] or int(counted["waited"][0] > 0),
    )


def _of_batch_calls(totals: Iterable[Total]) -> list[BatchCallStats]:
    by_task: dict[str, list[Total]] = {}
    for total in totals:
        if total.what in {"calls", "elements"}:
            by_task.setdefault(total.task, []).append(total)
    found = []
    for task, of_task in sorted(by_task.items()):
        counted = _Totals(of_task)
        (calls, took), (elements, _) = counted["calls"], counted["elements"]
        found.append(
            BatchCallStats(
                task=task,
                calls=calls,
                elements=elements,
                average_size=round(elements / calls, 2) if calls else 0.0,
                average_run=_mean(took, calls),
            )
        )
    return found


async def _active(client: Client, queue: str | None) -> int:
    active = scanned = 0
    async for job in client.find_all(state=State.RUNNING, queue=queue):
        active += job.spec.options.timeout is not None or job.spec.options.hang is not None
        scanned += 1
        if scanned == MAX_SCANNED:
            break
    return active


def _read(record: Record) -> tuple[str, Durations]:
    return record.name, decoded(record)


def _adaptive(subject: str, durations: Durations) -> AdaptiveStats:
    classes = classes_of(durations)
    return AdaptiveStats(
        subject=subject,
        seen=sum(classes.values()),
        late=sum(hour.late for hour in durations.hours.values()),
        median=timedelta(seconds=quantile(classes, 0.5)),
        p99=timedelta(seconds=quantile(classes, 0.99)),
        base=timedelta(seconds=durations.base),
        limit=timedelta(seconds=durations.limit),
        adjustments=durations.moved,
    )


def _mean(took: int, n: int) -> timedelta:
    return timedelta(microseconds=took // n) if n else ZERO
