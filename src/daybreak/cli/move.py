"""`daybreak move`: a live store goes to another place."""

from __future__ import annotations

import asyncio
import contextlib

import click

from daybreak import config
from daybreak.cli.output import note, say
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.cli.text import counted, number, safe
from daybreak.client.store_migration import Mover, Report
from daybreak.core.errors import BadInput
from daybreak.stores import store_for
from daybreak.system import platform
from daybreak.system.ports import RealWorld


@click.command("move", short_help="Move all jobs and settings to another store.")
@click.option("--to", "to", metavar="URL", required=True, help="The store they go to.")
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option(
    "--no-wait", is_flag=True, help="Leave running jobs where they are, instead of moving them when they end."
)
def command(to: str, queue: str | None, no_wait: bool) -> int:
    """Move every job, waiting or ended, with its history and results, and the settings of queues, to another store.
    Workers and submitters may go on meanwhile: let submitters and workers name the new store first, then move. Stopped
    in the middle, it goes on where it was when called again.

    Examples:
      daybreak move --to postgresql://db/jobs
      daybreak move --url jobs.db --to redis://cache --queue mail

    """
    here = session()
    url = config.url_of(to, here.project.folder, "--to")
    if url == here.settings.url:
        raise BadInput("--to names the store that the jobs are in: name another one")
    report = asyncio.run(_move(here, url, queue, wait=not no_wait))
    _say(report, here, url, queue)
    return 1 if report.held_back or report.running else 0


store_options(command)


async def _move(here: Session, url: str, queue: str | None, *, wait: bool) -> Report:
    target = store_for(url)
    if not target.traits.shared:
        raise BadInput(f"{url} lives inside one process and would be gone at the end of this command")
    async with here.client() as client:
        await target.open()
        try:
            teller = _Teller(wait=wait)
            return await Mover(client.store, target, RealWorld(), by=platform.whoami(), queue=queue, tell=teller).run(
                wait=wait
            )
        finally:
            with contextlib.suppress(Exception):
                await target.close()


class _Teller:
    def __init__(self, *, wait: bool) -> None:
        self._wait = wait
        self._told = 0
        self._waits_for = 0

    def __call__(self, report: Report) -> None:
        if report.moved >= self._told + 10_000:
            self._told = report.moved
            note(f"{counted(report.moved, 'job')} moved")
        if self._wait and report.running and report.running != self._waits_for:
            runs = counted(report.running, "job runs and", "jobs run and each")
            note(f"{runs} will be moved when it ends; Ctrl-C leaves what runs")
        self._waits_for = report.running


def _say(report: Report, here: Session, url: str, queue: str | None) -> None:
    say(f"{counted(report.moved, 'job', 'jobs')} moved to {safe(str(config.path_of(url) or config.shown(url)))}")
    if report.known:
        say(f"{counted(report.known, 'job was', 'jobs were')} there already")
    if report.settings:
        say(f"{counted(report.settings, 'queue', 'queues')} set up as here")
    if report.running:
        again = here.command("move", "--to", config.shown(url), *(() if queue is None else ("--queue", queue)))
        say(
            f"{counted(report.running, 'running job was', 'running jobs were')} left here; move the rest later: {again}"
        )
    for job, why in list(report.held_back.items())[:20]:
        say(f"job {safe(job)} stayed: {safe(why)}")
    if len(report.held_back) > 20:
        say(f"and {number(len(report.held_back) - 20)} more stayed")
