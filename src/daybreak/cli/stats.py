"""`daybreak stats`: prints counts of jobs, retries and timeouts."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, get_args

import click

from daybreak.api.stats import AdaptiveStats, BatchCallStats, QueueStats, RetryStats, TimeoutStats, by_queue, stats_of
from daybreak.api.trends import SIZES, By, trends_of
from daybreak.api.views.stats import stats_view
from daybreak.cli import completions
from daybreak.cli.options import NAME, PAST, Moment, OneOf, as_json
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.queues.queue_text import found
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.trends import say_trends
from daybreak.client.client import Client
from daybreak.core.text import counted, lasted, local, number, priority_name, safe


@click.command(name="stats", short_help="Show counts of jobs, retries and timeouts.")
@click.argument("queue", type=NAME, required=False, shell_complete=completions.queues)
@click.option(
    "--since",
    type=PAST,
    help="Show trends since this time instead: an age such as 90m or 7d, at most 30d, or an instant.",
)
@click.option(
    "--by", type=OneOf("grouping", get_args(By)), default="queue", help="With --since: queue, priority or task."
)
@click.option(
    "--resolution",
    type=OneOf("resolution", SIZES),
    help="With --since: minute, hour or day; by default it fits the time.",
)
@as_json
def command(queue: str | None, since: Moment | None, by: str, resolution: str | None, as_json: bool) -> int:
    """Show counts of jobs, retries and timeouts since the store was created, for one queue or for all queues.

    The store counts jobs, attempts and retries with every change: these numbers are exact, and remain when the jobs are
    removed. Durations are reported by workers every few seconds and kept for two days.

    Examples:
      daybreak stats
      daybreak stats reports --json
      daybreak stats --since 7d --by priority

    """
    if since is None:
        return session().run(lambda client: _show(client, queue, as_json=as_json))
    wanted = _Wanted(since.at, by, resolution)
    return session().run(lambda client: _show_trends(client, queue, wanted, as_json=as_json))


store_options(command)


async def _show(client: Client, queue: str | None, *, as_json: bool) -> int:
    stats = await stats_of(client, queue)
    queues = await by_queue(client)
    if queue is not None:
        if queue not in {one.queue for one in queues}:
            await found(client, queue)  # raises NotFound with the closest name, if the queue does not exist
        queues = [stats.queue]
    if as_json:
        say_json(stats_view(stats, queues))
        return 0
    if not stats.queue.submitted and not queues:
        say("No statistics yet: no job was ever submitted to this store.")
        return 0
    _say_queue(stats.queue)
    if queue is None:
        _say_queues(queues)
    _say_retries(stats.retries)
    _say_timeouts(stats.timeouts)
    if stats.batch_calls:
        _say_batch_calls(stats.batch_calls)
    if stats.adaptive:
        _say_adaptive(stats.adaptive)
    return 0


class _Wanted(NamedTuple):
    since: datetime
    by: str
    resolution: str | None


async def _show_trends(client: Client, queue: str | None, wanted: _Wanted, *, as_json: bool) -> int:
    queues = await by_queue(client)
    if queue is not None and queue not in {one.queue for one in queues}:
        await found(client, queue)  # or it says what comes closest
    trends = await trends_of(client, wanted.since, by=wanted.by, resolution=wanted.resolution, queue=queue)
    if as_json:
        stats = await stats_of(client, queue)
        say_json(stats_view(stats, [stats.queue] if queue is not None else queues, trends))
    else:
        say_trends(trends)
    return 0


def _say_queue(stats: QueueStats) -> None:
    heading("all queues" if stats.queue is None else f"queue {stats.queue}")
    waiting = [f"{n} {priority_name(level)}" for level, n in stats.by_priority.items() if n]
    say_pairs([
        ("submitted", number(stats.submitted)),
        ("completed", number(stats.completed)),
        ("of them cached", _cached(stats)),
        ("failed", number(stats.errors) if stats.errors else ""),
        ("expired", number(stats.timeouts) if stats.timeouts else ""),
        ("shed", number(stats.shed) if stats.shed else ""),
        ("cancelled", number(stats.cancelled) if stats.cancelled else ""),
        ("waiting", number(stats.waiting) + (f" ({', '.join(waiting)})" if waiting else "")),
        ("running", number(stats.running)),
        ("waited", f"{lasted(stats.average_wait)} on average"),
        ("ran", f"{lasted(stats.average_run)} on average"),
        ("batches", number(stats.batches)),
        ("wait limits shortened", number(stats.shortened) if stats.shortened else ""),
        ("last ended", f"{local(stats.last_at)}, ran {lasted(stats.last_ran)}" if stats.last_at else ""),
    ])  # fmt: skip


def _cached(stats: QueueStats) -> str:
    hits = stats.cached + stats.followed
    return f"{number(hits)}, which saved {lasted(stats.saved)}" if hits else ""


def _say_queues(queues: list[QueueStats]) -> None:
    say()
    titles = ("SUBMITTED", "COMPLETED", "FAILED", "EXPIRED", "SHED", "WAITING", "RUNNING", "WAITED", "RAN")
    say_table(
        [Column("QUEUE"), *(Column(title, right=True) for title in titles)],
        [
            [
                safe(one.queue or ""), number(one.submitted), number(one.completed), _or_blank(one.errors),
                _or_blank(one.timeouts), _or_blank(one.shed), number(one.waiting), number(one.running),
                lasted(one.average_wait), lasted(one.average_run),
            ]
            for one in queues
        ],
    )  # fmt: skip


def _or_blank(n: int) -> str:
    return number(n) if n else ""


def _say_retries(stats: RetryStats) -> None:
    say()
    heading("retries: attempts after the first")
    say_pairs([
        ("total", number(stats.total)),
        ("succeeded", number(stats.successful)),
        ("failed", number(stats.failed)),
        ("ran", f"{lasted(stats.average_run)} on average" if stats.total else ""),
        ("most attempts", number(stats.most_attempts) if stats.most_attempts else ""),
        ("by strategy", ", ".join(f"{name} {number(n)}" for name, n in stats.by_strategy.items())),
        ("delayed", f"{number(stats.spared)}, while their resource was failing" if stats.spared else ""),
        ("breakers opened", counted(stats.breaker_trips, "time") if stats.breaker_trips else ""),
    ])  # fmt: skip


def _say_timeouts(stats: TimeoutStats) -> None:
    say()
    heading("timeouts")
    say_pairs([
        ("timed out", number(stats.total)),
        ("by kind", ", ".join(f"{kind} {number(n)}" for kind, n in stats.by_kind.items() if n)),
        ("adjusted", f"{counted(stats.adjustments, 'time')}, to the observed durations" if stats.adjustments else ""),
        ("raised", f"{counted(stats.escalations, 'time')}, after a timeout" if stats.escalations else ""),
        ("duration", f"{lasted(stats.average)} on average, of everything that has a limit" if stats.average else ""),
        ("limited now", counted(stats.active, "running job") if stats.active else ""),
    ])  # fmt: skip


def _say_batch_calls(found: list[BatchCallStats]) -> None:
    say()
    heading("calls of batch tasks")
    titles = ("CALLS", "JOBS", "JOBS PER CALL", "RAN")
    say_table(
        [Column("TASK", gives=True), *(Column(title, right=True) for title in titles)],
        [
            [
                safe(one.task), number(one.calls), number(one.elements), f"{one.average_size:.1f}",
                lasted(one.average_run),
            ]
            for one in found
        ],
    )  # fmt: skip


def _say_adaptive(adaptive: list[AdaptiveStats]) -> None:
    say()
    titles = ("COUNT", "TIMED OUT", "MEDIAN", "99 %", "BASE LIMIT", "LIMIT NOW")
    say_table(
        [Column("OPERATION", gives=True), *(Column(title, right=True) for title in titles)],
        [
            [
                safe(one.subject), number(one.seen), _or_blank(one.late), lasted(one.median), lasted(one.p99),
                lasted(one.base), lasted(one.limit),
            ]
            for one in adaptive
        ],
    )  # fmt: skip
