"""`daybreak jobs stack`: shows where a running job is now."""

from __future__ import annotations

import click

from daybreak.api.views.job_stack import stack_text, stack_view
from daybreak.cli import completions
from daybreak.cli.jobs.show import found
from daybreak.cli.options import as_json
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client


@click.command(short_help="Show where a running job is now: its stack and its memory.")
@click.argument("job_id", metavar="ID", shell_complete=completions.jobs)
@as_json
def stack(job_id: str, as_json: bool) -> int:
    """Show the current Python stack of a running job, the memory of its process, and the processes that it started. Its
    worker is asked, on whichever machine it runs. Local variables are not shown.

    Examples:
      daybreak jobs stack 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak jobs stack last

    """

    async def show(client: Client) -> int:
        job = await found(client, job_id)
        answer = await client.stack(job.id)
        if as_json:
            say_json(stack_view(answer))
        else:
            say(stack_text(answer))
        return 0

    return session().run(show)


store_options(stack)
