"""`daybreak stats --since`: trends as a table and as small charts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from daybreak.api.trends import TrendFigures, TrendPoint, Trends
from daybreak.cli.output import Column, heading, say, say_pairs, say_table
from daybreak.core.text import lasted, local, number, safe

BARS: Final = " ▁▂▃▄▅▆▇█"
PLAIN_BARS: Final = " .:-=+*#@"  # for terminals without block characters
CHART_WIDTH: Final = 48
SMALL_WIDTH: Final = 16
MILLISECOND: Final = timedelta(milliseconds=1)


def say_trends(trends: Trends) -> None:
    where = "all queues" if trends.queue is None else f"queue {safe(trends.queue)}"
    heading(f"{where} since {local(trends.since)}, by {trends.resolution}")
    if not any(point.submitted or point.completed or point.waiting or point.running for point in trends.points):
        say("Nothing happened in this time.")
        return
    _say_figures(trends.figures)
    _say_charts(trends.points)
    _say_groups(trends)


def _say_figures(figures: TrendFigures) -> None:
    say_pairs([
        ("submitted", number(figures.submitted)),
        ("completed", number(figures.completed)),
        ("of them cached", f"{number(figures.cached)}, which saved {lasted(figures.saved)}" if figures.cached else ""),
        ("failed", _some(figures.failed)),
        ("expired", _some(figures.expired)),
        ("shed", _some(figures.shed)),
        ("cancelled", _some(figures.cancelled)),
        ("retries", f"{number(figures.retries)}, {number(figures.retries_failed)} failed" if figures.retries else ""),
        ("time limits exceeded", _some(figures.timeouts)),
        ("attempts lost", _some(figures.lost)),
        ("waiting now", number(figures.waiting)),
        ("running now", number(figures.running)),
        ("waited", _spread(figures.wait_p50, figures.wait_p95, figures.wait_p99)),
        ("ran", _spread(figures.run_p50, figures.run_p95, figures.run_p99)),
        ("within wait target", percent(figures.target_met)),
    ])  # fmt: skip


def _spread(median: timedelta, p95: timedelta, p99: timedelta) -> str:
    if not p99:
        return ""
    return f"median {lasted(median)}, 95 % {lasted(p95)}, 99 % {lasted(p99)}"


def _say_charts(points: Sequence[TrendPoint]) -> None:
    say()
    say_pairs([
        ("completed", _chart(points, lambda point: point.completed, number)),
        ("failed", _chart(points, lambda point: point.failed + point.expired + point.shed, number)),
        ("waiting", _chart(points, lambda point: point.waiting, number)),
        ("95 % waited", _chart(points, lambda point: point.wait_p95 // MILLISECOND, _milliseconds)),
    ])  # fmt: skip


def _chart(points: Sequence[TrendPoint], value: Callable[[TrendPoint], int], text: Callable[[int], str]) -> str:
    """A sparkline with its greatest value, or nothing if all values are 0."""
    values = [value(point) for point in points]
    if not any(values):
        return ""
    return f"{sparkline(values, CHART_WIDTH)}  up to {text(max(values))}"


def _milliseconds(n: int) -> str:
    return lasted(n * MILLISECOND)


def _say_groups(trends: Trends) -> None:
    say()
    titles = (
        "SUBMITTED", "COMPLETED", "FAILED", "RETRIES", "TIMEOUTS", "WAITING", "WAIT 50 %", "WAIT 95 %", "RUN 95 %",
        "TARGET", "MET",
    )  # fmt: skip
    rows = []
    for group in trends.groups:
        figures = group.figures
        rows.append([
            safe(group.name), number(figures.submitted), number(figures.completed),
            _some(figures.failed + figures.expired + figures.shed), _some(figures.retries), _some(figures.timeouts),
            _some(figures.waiting), _time(figures.wait_p50), _time(figures.wait_p95), _time(figures.run_p95),
            "" if group.target is None else lasted(group.target), percent(figures.target_met),
            sparkline([point.completed for point in group.points], SMALL_WIDTH),
        ])  # fmt: skip
    columns = [Column(trends.by.upper()), *(Column(title, right=True) for title in titles), Column("TREND", drop=1)]
    say_table(columns, rows)


def _some(n: int) -> str:
    return number(n) if n else ""


def _time(span: timedelta) -> str:
    return lasted(span) if span else ""


def percent(share: float | None) -> str:
    """A share in percent. Only a share of exactly 1 is shown as 100 %."""
    if share is None:
        return ""
    if 0.9995 <= share < 1:
        return "99.9 %"
    return f"{100 * share:.4g} %"


def sparkline(values: Sequence[int], width: int) -> str:
    """At most `width` bars; where there are more values, each bar is the greatest of its neighbours. A value above 0
    always shows."""
    bars = _bars()
    size = -(-len(values) // width)
    peaks = [max(values[start : start + size]) for start in range(0, len(values), size)]
    most = max(peaks, default=0)
    if not most:
        return ""
    return "".join(bars[-(-peak * (len(bars) - 1) // most)] for peak in peaks)


def _bars() -> str:
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_BARS
    return BARS
