"""`daybreak exec`: a command line as a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from daybreak.api.cached_submits import keyed_by
from daybreak.api.views.job import plain_value
from daybreak.cli.command_cache import cache_options, command_cache
from daybreak.cli.errors import Exit
from daybreak.cli.options import Place, pairs
from daybreak.cli.root import store_options
from daybreak.cli.submit_options import How, job_options, run, submit_job
from daybreak.cli.wait import say_outcome
from daybreak.client.client import Client
from daybreak.config import here
from daybreak.core.errors import BadInput
from daybreak.core.metadata import encode_meta
from daybreak.core.model import Job, State
from daybreak.core.text import safe
from daybreak.core.units import clean
from daybreak.tasks.registry import Definition
from daybreak.worker.child.commands import run_command

TASK = "exec"


@click.command(
    "exec",
    short_help="Submit a command line as a job.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("argv", metavar="[--] COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", type=Place(), help="The folder to run the command in. Default: the current folder.")
@click.option(
    "--env", metavar="NAME=VALUE", multiple=True, help="Set an environment variable of the command. May be repeated."
)
@cache_options
@job_options
def command(
    argv: tuple[str, ...], cwd: str | None, env: tuple[str, ...], use_cache: bool, inputs: tuple[str, ...], how: How
) -> int:
    """Submit a command line as a job and print the job's id. A worker that was started with --allow-commands runs the
    command, without a shell. With --wait, print the command's output; the exit code is 1 if it failed.

    Examples:
      daybreak exec --timeout 1h -- make report
      daybreak exec --priority low --wait -- ffmpeg -i talk.wav talk.mp3
      daybreak exec --cache --input buck.plecs --wait -- python3 sim.py --vin 24

    """
    if not argv[0]:
        raise BadInput("the command is empty (is a shell variable not set?); write the command to run")
    folder = str(here() / (cwd or "."))
    if folder != clean(folder):
        raise BadInput(
            f"--cwd {clean(folder)}: the path is not valid UTF-8, so a job cannot store it; use another folder"
        )
    args: dict[str, Any] = {"argv": list(argv), "cwd": folder, "env": pairs(env, "--env")}

    if inputs and not use_cache:
        raise click.UsageError("--input is for --cache: it names files on which a known result depends")
    cache = command_cache(argv, inputs, Path(folder), also={}) if use_cache else None

    async def submitted(client: Client) -> int:
        spec = client.spec(TASK, args, **how.given)
        if cache is not None:
            spec = replace(spec, meta={**spec.meta, **encode_meta(cache.meta)})
            spec = await keyed_by(client, Definition(run_command, name=TASK), cache.cache, spec)
        job = await submit_job(client, spec, how)
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
