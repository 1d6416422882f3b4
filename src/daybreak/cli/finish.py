"""`daybreak finish`: ends a job whose work went on elsewhere."""

from __future__ import annotations

import json
from typing import Any

import click

from daybreak.api.detached_jobs import Report, definition_of, outcome_of
from daybreak.api.views.job import finished_view
from daybreak.cli import completions
from daybreak.cli.arguments import read_text
from daybreak.cli.job_selector import job_ids_of
from daybreak.cli.options import as_json
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.text import safe


@click.command("finish", short_help="End a job whose work went on elsewhere.")
@click.argument("job", metavar="ID", shell_complete=completions.jobs)
@click.option("--fence", type=click.IntRange(1), help="The number of the attempt: what ctx.fence gave to it.")
@click.option("--result", metavar="JSON", help="The result, as JSON; @file reads a file, @- standard input.")
@click.option("--error", metavar="TEXT", help="The attempt failed, and is retried like any other.")
@click.option("--permanent", is_flag=True, help="With --error: do not retry.")
@click.option("--timed-out", is_flag=True, help="The work took too long where it went on.")
@click.option("--cancelled", is_flag=True, help="The work was cancelled where it went on.")
@click.option("--note", default="", help="What people should know; kept with the job.")
@as_json
def command(
    job: str, fence: int | None, result: str | None, error: str | None, permanent: bool, timed_out: bool,
    cancelled: bool, note: str, as_json: bool,
) -> int:  # fmt: skip
    """End a job whose work went on elsewhere (ctx.detach). Without an outcome, its result is null. Without --fence, the
    attempt that is detached now is ended. The same outcome again answers as the first time; any other outcome of an
    attempt that is over is refused.

    Examples:
      daybreak finish 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d --fence 1 --result '{"pages": 3}'
      daybreak finish 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d --fence 1 --error "the pod was evicted"

    """
    report = Report(
        result=None if result is None else _read(result),
        error=error,
        permanent=permanent,
        cancelled=cancelled,
        timed_out=timed_out,
        note=note,
    )
    here = session()
    return here.run(lambda client: _finish(here, client, job, report, fence, as_json=as_json))


store_options(command)


def _read(text: str) -> Any:
    read = read_text(text[1:], "--result") if text.startswith("@") else text
    try:
        return json.loads(read)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--result is not valid JSON: {error}; a text needs quotes: --result '\"done\"'") from None


async def _finish(here: Session, client: Client, job: str, report: Report, fence: int | None, *, as_json: bool) -> int:
    [job_id] = await job_ids_of(client, (job,), announce=True)
    spec = (await client.get(job_id)).spec
    task = definition_of(here.loaded.program, spec) if here.target else None
    outcome, contents = outcome_of(report, task)
    for content in contents:
        await (await here.files(client)).put(content)
    finished = await client.finish(job_id, outcome, fence=fence)
    if as_json:
        say_json(finished_view(finished))
    else:
        again = ", as before" if finished.repeated else ""
        say(f"{safe(finished.job)}: attempt {finished.attempt} ended, the job is {finished.state}{again}")
    return 0
