"""`daybreak jobs release`: takes running jobs away from their workers."""

from __future__ import annotations

import click

from daybreak.api.job_release import release_job
from daybreak.api.views.job import amendment_view
from daybreak.cli import completions
from daybreak.cli.errors import Exit
from daybreak.cli.job_selector import job_ids_of
from daybreak.cli.options import as_json
from daybreak.cli.output import note as say_note
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import safe
from daybreak.store.protocol import Amendment


@click.command(short_help="Return running jobs to their queue.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=completions.jobs)
@click.option("--charge", is_flag=True, help="Count the interrupted attempt. Without this it is not counted.")
@click.option("--note", default="", help="The reason; it is kept in the job's history.")
@as_json
def release(ids: tuple[str, ...], charge: bool, note: str, as_json: bool) -> int:
    """Take running jobs away from their workers and return them to their queue, for example when a worker hangs. The
    worker loses the lease: it stops the job, and its outcome is refused.

    Example:
      daybreak jobs release 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d --note "machine is frozen"

    """
    return session().run(lambda client: _release(client, ids, charge=charge, note=note, as_json=as_json))


store_options(release)


async def _release(client: Client, ids: tuple[str, ...], *, charge: bool, note: str, as_json: bool) -> int:
    chosen = dict.fromkeys(await job_ids_of(client, ids, announce=True))
    answers = [await release_job(client, job_id, charge=charge, note=note) for job_id in chosen]
    if as_json:
        say_json({"jobs": [amendment_view(answer) for answer in answers]})
    else:
        for answer in answers:
            _say(answer)
    return int(Exit.OK if all(answer.verdict == "done" for answer in answers) else Exit.FAILED)


def _say(answer: Amendment) -> None:
    job = safe(answer.job)
    if answer.verdict == "done":
        say(f"{job} released, now {answer.state}")
    else:
        say_note(f"job {job} is {answer.state}: only running jobs can be released")
