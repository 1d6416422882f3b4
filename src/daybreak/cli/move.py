"""`daybreak move`: moves the jobs and settings of a store that is in use to another store."""

from __future__ import annotations

import asyncio
import contextlib

import click

from daybreak import config
from daybreak.cli.output import note, say
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.client.store_migration import Mover, Report
from daybreak.core.errors import BadInput
from daybreak.core.text import counted, number, safe
from daybreak.files import FileStore, open_blobs
from daybreak.stores import store_for
from daybreak.system import platform
from daybreak.system.ports import RealWorld


@click.command("move", short_help="Move all jobs and settings to another store.")
@click.option("--to", "to", metavar="URL", required=True, help="The store to move to.")
@click.option("--queue", metavar="NAME", help="Move only this queue.")
@click.option(
    "--no-wait",
    is_flag=True,
    help="Leave running jobs in the old store. Default: wait, and move each one when it ends.",
)
def command(to: str, queue: str | None, no_wait: bool) -> int:
    """Move every job, with its history and result, and the settings of queues to another store. Workers and submitters
    can continue meanwhile: first point them to the new store, then move. If the command is interrupted, call it again:
    it continues where it stopped.

    Examples:
      daybreak move --to postgresql://db/jobs
      daybreak move --url jobs.db --to redis://cache --queue mail

    """
    here = session()
    url = config.url_of(to, here.project.folder, "--to")
    if url == here.settings.url:
        raise BadInput("--to names the store that holds the jobs already: name another one")
    report = asyncio.run(_move(here, url, queue, wait=not no_wait))
    _say(report, here, url, queue)
    return 1 if report.held_back or report.schedules_held_back or report.running else 0


store_options(command)


async def _move(here: Session, url: str, queue: str | None, *, wait: bool) -> Report:
    target = store_for(url)
    if not target.traits.persistent:
        raise BadInput(
            f"{url} is in the memory of one process and would be lost at the end of this command: name another store"
        )
    async with here.client() as client:
        await target.open()
        try:
            progress = _Progress(wait=wait)
            world = RealWorld()
            # A place that is set serves both stores, each with a part of its own.
            target_blobs = await open_blobs(here.settings.files, url, target)
            files = (await here.files(client), FileStore(target_blobs, target, world))
            mover = Mover(
                client.store, target, world, by=platform.whoami(), queue=queue, on_progress=progress, files=files
            )
            return await mover.run(wait=wait)
        finally:
            with contextlib.suppress(Exception):
                await target.close()


class _Progress:
    """Prints a note after every 10,000 jobs, and when it starts to wait for running jobs."""

    def __init__(self, *, wait: bool) -> None:
        self._wait = wait
        self._noted = 0
        self._waiting_for = 0

    def __call__(self, report: Report) -> None:
        if report.moved >= self._noted + 10_000:
            self._noted = report.moved
            note(f"{counted(report.moved, 'job')} moved")
        if self._wait and report.running and report.running != self._waiting_for:
            running = counted(report.running, "running job")
            note(f"waiting for {running} to end before moving them; press Ctrl-C to leave them in the old store")
        self._waiting_for = report.running


def _say(report: Report, here: Session, url: str, queue: str | None) -> None:
    say(f"{counted(report.moved, 'job', 'jobs')} moved to {safe(str(config.path_of(url) or config.shown(url)))}")
    if report.known:
        say(f"{counted(report.known, 'job was', 'jobs were')} in the new store already")
    if report.settings:
        say(f"the settings of {counted(report.settings, 'queue')} copied")
    if report.schedules:
        say(f"{counted(report.schedules, 'schedule')} moved")
    if report.running:
        again = here.command("move", "--to", config.shown(url), *(() if queue is None else ("--queue", queue)))
        say(
            f"{counted(report.running, 'running job was', 'running jobs were')} left in the old store; "
            f"move the rest later with: {again}"
        )
    for name, why in report.schedules_held_back.items():
        say(f"schedule {safe(name)} was not moved: {safe(why)}")
    for job, why in list(report.held_back.items())[:20]:
        say(f"job {safe(job)} was not moved: {safe(why)}")
    if len(report.held_back) > 20:
        say(f"and {number(len(report.held_back) - 20)} more were not moved")
