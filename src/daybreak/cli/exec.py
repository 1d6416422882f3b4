"""`daybreak exec`: a command line as a job."""

from __future__ import annotations

import sys
from typing import Any

import click
from msgspec.structs import replace

from daybreak.api.views.job import plain_value
from daybreak.cli.errors import Exit
from daybreak.cli.options import Place, pairs
from daybreak.cli.root import store_options
from daybreak.cli.submit_options import How, hand_in, job_options, run
from daybreak.cli.text import safe
from daybreak.cli.wait import say_outcome
from daybreak.client.client import Client
from daybreak.config import here
from daybreak.core.errors import BadInput
from daybreak.core.model import DEFAULT_OPTIONS, Job, State
from daybreak.core.units import clean

TASK = "exec"


@click.command(
    "exec",
    short_help="Submit a command line as a job.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("argv", metavar="[--] COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", type=Place(), help="The folder to run it in; this one unless said otherwise.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="A variable of its environment; may be repeated.")
@job_options
def command(argv: tuple[str, ...], cwd: str | None, env: tuple[str, ...], how: How) -> int:
    """Submit a command line as a job and print its id. It is run, without a shell, by a worker that was started with
    --allow-commands. With --wait its output is printed, and the exit code is 1 if it failed.

    Examples:
      daybreak exec --timeout 1h -- make report
      daybreak exec --priority low --wait -- ffmpeg -i talk.wav talk.mp3

    """
    if not argv[0]:
        raise BadInput("the command is empty, as from a variable that is not set: write what is to be run")
    folder = str(here() / (cwd or "."))
    if folder != clean(folder):
        raise BadInput(f"--cwd {clean(folder)}: a job keeps only text, and this name is none; choose another folder")
    args: dict[str, Any] = {"argv": list(argv), "cwd": folder, "env": pairs(env, "--env")}

    async def submitted(client: Client) -> int:
        spec = replace(client.spec(TASK, args, **how.said), options=how.options(DEFAULT_OPTIONS))
        job = await hand_in(client, spec, how)
        return 0 if job is None else _say_output(job, how)

    return int(run(submitted))


store_options(command)


def _say_output(job: Job, how: How) -> int:
    value = plain_value(job.result) if job.state is State.COMPLETED and job.result is not None else None
    if not isinstance(value, dict):
        return say_outcome(job, silent=how.as_json)
    for stream, text in ((sys.stdout, value.get("stdout")), (sys.stderr, value.get("stderr"))):
        if text and not how.as_json:
            stream.write(safe(str(text), lines=True) if stream.isatty() else str(text))
            stream.flush()
    return int(Exit.FAILED if value.get("exit_code") else Exit.OK)
