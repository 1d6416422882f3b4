"""`daybreak report`: what happened last night, the failures by their cause, and what to do."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from daybreak.api.report import FailureCluster, Report, collect_report
from daybreak.api.views.report import report_view
from daybreak.cli.options import NAME, PAST, Moment, Place, as_json
from daybreak.cli.output import Column, heading, note, say, say_json, say_pairs, say_table
from daybreak.cli.report_page import report_page
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, counted, first_line, lasted, local, number, safe

LEVELS: Final = " ▁▂▃▄▅▆▇█"
WIDTH: Final = 60  # columns of the utilisation plot


@click.command("report", short_help="Show what happened last night, and what to do.")
@click.option("--since", type=PAST, default="18:00", show_default=True, help="From this time on: 18:00, 12h or a date.")
@click.option("--run", type=NAME, help="Only the jobs of this run.")
@click.option("--html", "html_file", type=Place(dir_okay=False), help="Write the report to this file as one HTML page.")
@as_json
def command(since: Moment, run: str | None, html_file: str | None, as_json: bool) -> int:
    """Show what happened since a time: how jobs ended, the failures grouped by their cause, each with one example and
    the command that retries exactly these jobs, the slowest jobs, and workers that disappeared. Failures that were
    retried successfully are not listed.

    Examples:
      daybreak report --since 18:00
      daybreak report --run overnight --html morning.html

    """
    return session().run(lambda client: _report(client, since.at, run, html_file, as_json=as_json))


store_options(command)


async def _report(client: Client, since: datetime, run: str | None, html_file: str | None, *, as_json: bool) -> int:
    report = await collect_report(client, since, run=run)
    if html_file is not None:
        _write(Path(html_file), report_page(report, retry_commands(report)))
        note(f"wrote {safe(html_file)}")
    if as_json:
        say_json(report_view(report))
    elif html_file is None:
        _say(report)
    return 0


def retry_commands(report: Report) -> dict[str, str]:
    """The command that retries exactly the jobs of each cluster."""
    run = () if report.run is None else ("--run", report.run)
    return {
        cluster.fingerprint: session().command("jobs", "retry", "--cluster", cluster.fingerprint, *run)
        for cluster in report.failures.clusters
    }


def _write(path: Path, page: str) -> None:
    """Write to a temporary file first, so that a full disk leaves no half page behind."""
    folder = path.parent
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".report-", delete=False) as file:
        try:
            file.write(page)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


# -- for a terminal ----------------------------------------------------------------------------------------------------


def _say(report: Report) -> None:
    of_run = f" in the run {safe(report.run)}" if report.run is not None else ""
    heading(f"Since {local(report.since)}{of_run} ({lasted(report.until - report.since)})")
    say_pairs(_outcomes(report))
    commands = retry_commands(report)
    for cluster in report.failures.clusters:
        _say_cluster(cluster, commands[cluster.fingerprint], report.until)
    if not report.failures.is_all:
        say()
        say("There are more failed jobs than were read: --since a later time.")
    _say_slowest(report)
    _say_gone(report)
    _say_utilisation(report)


def _outcomes(report: Report) -> list[tuple[str, str]]:
    clusters = len(report.failures.clusters)
    failed = number(report.counts.get("failed", 0))
    if clusters:
        failed += f", of {counted(clusters, 'kind')}"
    completed = number(report.counts.get("completed", 0))
    if report.saved:
        at_least = "" if report.is_all else "at least "
        completed += f", {at_least}{number(report.saved)} of them only because of a retry"
    return [
        ("completed", completed),
        ("of them cached", _cached(report)),
        ("failed", failed),
        ("cancelled", number(report.counts.get("cancelled", 0))),
        ("unfinished", ", ".join(f"{number(n)} {state}" for state, n in report.unfinished.items()) or "none"),
        ("lost attempts", f"{number(report.lost)}: their process died" if report.lost else ""),
    ]


def _cached(report: Report) -> str:
    if not report.cached:
        return ""
    at_least = "" if report.is_all else "at least "
    saved = f", which saved {lasted(report.cache_saved)}" if report.cache_saved else ""
    return f"{at_least}{number(report.cached)}{saved}"


def _say_cluster(cluster: FailureCluster, command: str, now: datetime) -> None:
    say()
    error = first_line(f"{cluster.kind}: {cluster.error}" if cluster.error else cluster.kind, 150)
    say(f"{counted(cluster.n, 'job')} failed: {error}")
    tasks = ", ".join(f"{safe(task)} {number(n)}" for task, n in list(cluster.tasks.items())[:5])
    reasons = ", ".join(reason for reason in cluster.reasons if reason)
    say(f"  task {tasks}; reason {reasons}; last {ago(cluster.last_at, now)}")
    say(f"  example: {session().command('jobs', 'show', cluster.example)}")
    say(f"  retry:   {command}")


def _say_slowest(report: Report) -> None:
    if not report.slowest:
        return
    say()
    say_table(
        [Column("SLOWEST"), Column("RAN", right=True), Column("ATTEMPT", right=True), Column("ID")],
        [[safe(job.task), lasted(job.ran_for), str(job.attempt), job.id] for job in report.slowest[:5]],
    )


def _say_gone(report: Report) -> None:
    if not report.gone:
        return
    say()
    for worker in report.gone:
        say(f"Worker {safe(worker.name)} on {safe(worker.host)} disappeared, last seen {local(worker.seen_at)}.")


def _say_utilisation(report: Report) -> None:
    running = [point.running for point in report.points]
    if not any(running):
        return
    say()
    say(f"Running jobs: {sparkline(running, WIDTH)}  at most {number(max(running))}")


def sparkline(values: Sequence[int], width: int) -> str:
    """A plot in one line of text: the greatest value of each part of the time."""
    if not values:
        return ""
    size = max(len(values) / width, 1.0)
    columns = [
        max(values[int(n * size) : max(int((n + 1) * size), int(n * size) + 1)])
        for n in range(min(width, len(values)))
    ]  # fmt: skip
    top = max(columns) or 1
    return "".join(LEVELS[-(-value * (len(LEVELS) - 1) // top)] for value in columns)
