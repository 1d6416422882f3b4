"""`daybreak spool`: what waits in the offline spool; forward it, and decide about jobs that the store refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from daybreak.api.views.scalars import instant
from daybreak.cli.errors import Exit
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import note, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.core.errors import BadInput
from daybreak.core.text import ago, counted, safe
from daybreak.core.units import bytes_text
from daybreak.spool import SpooledJob, SpoolFile, SpoolStatus
from daybreak.system.ports import RealWorld


@click.command("spool", short_help="Show and forward jobs that wait for the store.")
@click.option("--flush", is_flag=True, help="Forward the jobs now; the exit code is 3 if the store is away.")
@click.option("--retry", type=NAME, metavar="ID", help="Forward a job again that was set aside; `all` is all of them.")
@click.option("--drop", type=NAME, metavar="ID", help="Delete a job from the spool: it will never run.")
@as_json
def command(flush: bool, retry: str | None, drop: str | None, as_json: bool) -> int:
    """Show the jobs that were submitted while the store could not be reached, and wait in a local file. They are
    forwarded by themselves once the store is back, as long as a program with this spool runs: a submitter, a worker, or
    this command with --flush. Jobs that the store refused are set aside, with the reason.

    Example:
      daybreak spool --flush

    """
    here = session()
    file = spool_of(here)
    if retry is not None:
        _retry(file, retry)
    if drop is not None and not file.drop(drop):
        note(f"no job {safe(drop)} in the spool {safe(str(file.path))}")
        return int(Exit.NOT_FOUND)
    if flush:
        forwarded = _flush(here)
        if not as_json:
            say(f"{counted(forwarded, 'job')} forwarded.")
    _show(file, as_json=as_json)
    return int(Exit.OK)


store_options(command)


def spool_of(here: Session) -> SpoolFile:
    """The spool that the settings name."""
    path = here.settings.spool
    if path is None:
        raise BadInput(
            'no spool is set: set DAYBREAK_SPOOL, write spool = "jobs.spool" in daybreak.toml, or add --app if the '
            "code of the app names one"
        )
    return SpoolFile(path, here.settings.url, RealWorld())


def _retry(file: SpoolFile, which: str) -> None:
    if not file.wait_again(None if which == "all" else which):
        note("no job was set aside" if which == "all" else f"job {safe(which)} was not set aside")


def _flush(here: Session) -> int:
    from daybreak.api.app import Daybreak  # noqa: PLC0415 - only this option needs it

    settings = here.settings
    with here.command_line(), Daybreak(settings.url, files=settings.files, spool=settings.spool) as app:
        return app.flush_spool()


def _show(file: SpoolFile, *, as_json: bool) -> None:
    status, set_aside, now = file.status(), file.set_aside_jobs(), datetime.now(UTC)
    if as_json:
        say_json(status_view(status, set_aside))
        return
    say(f"Spool {safe(status.path)} for the store {safe(status.store)}, {bytes_text(status.bytes)}.")
    if status.waiting and status.oldest is not None:
        say(f"{counted(status.waiting, 'job')} waiting, the oldest submitted {ago(status.oldest, now)}.")
    else:
        say("No job is waiting.")
    if status.last_error and status.last_error_at is not None:
        say(f"Last error, {ago(status.last_error_at, now)}: {safe(status.last_error)}")
    for job in set_aside:
        say(f"Set aside: {safe(job.spec.id)} {safe(job.spec.task)}: {safe(job.refused or '')}")
    if set_aside:
        say("Forward these again with: daybreak spool --retry ID, or delete them with: daybreak spool --drop ID")


def status_view(status: SpoolStatus, set_aside: list[SpooledJob]) -> dict[str, Any]:
    return {
        "path": status.path,
        "store": status.store,
        "waiting": status.waiting,
        "oldest": instant(status.oldest),
        "bytes": status.bytes,
        "last_error": status.last_error or None,
        "last_error_at": instant(status.last_error_at),
        "set_aside": [
            {
                "id": job.spec.id,
                "task": job.spec.task,
                "queue": job.spec.queue,
                "priority": job.spec.priority,
                "spooled_at": instant(job.spooled_at),
                "reason": job.refused,
            }
            for job in set_aside
        ],
    }
