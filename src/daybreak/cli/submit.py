"""`daybreak submit`: a job from the command line."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from daybreak.api.resources import provide
from daybreak.cli import arguments, completions
from daybreak.cli.options import NAME, Whole, pairs
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.cli.submit_options import How, hand_in, job_options, run
from daybreak.cli.text import safe
from daybreak.cli.wait import say_outcome
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import DEFAULT_OPTIONS, JobSpec
from daybreak.policy.resources import Resource, needs_of


@click.command("submit", short_help="Submit a job and print its id.")
@click.argument("task", type=NAME, shell_complete=completions.tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--args", "args_file", metavar="FILE", help="A JSON object with the arguments; - reads what is piped in.")
@click.option("--version", type=Whole(0), help="The task's version; 1, or that of the app's code.")
@job_options
def command(task: str, words: tuple[str, ...], args_file: str | None, version: int | None, how: How) -> int:
    """Submit a job and print its id.

    With an app (--app, DAYBREAK_APP, or app in daybreak.toml) the arguments are read and checked by the annotations of
    the task's function. Without one, a value is JSON if it parses, else text; name=@file takes the text of a file.

    Examples:
      daybreak submit send_mail to=ann@example.com subject='"42"' --priority high
      daybreak submit simulate vin=24 model=@buck.json --wait --timeout-wait 10m
      jq . order.json | daybreak submit import_order --args - --key order-7

    """
    texts = arguments.read_pairs(pairs(words, "argument"))
    named = arguments.read_args(args_file)
    here = session()
    app = here.loaded if here.target else None

    async def submitted(client: Client) -> int:
        if app is None:
            spec = _untyped(client, task, arguments.untyped(texts, named), version, how)
        else:
            spec = _typed(client, app, task, arguments_of(app, task, texts, named), version, how)
            spec = await _sharing(client, app.program[task], spec)
        job = await hand_in(client, spec, how)
        return 0 if job is None else say_outcome(job, silent=how.as_json)

    if app is not None:
        _follow(here, app)
    return int(run(submitted))


store_options(command)


def arguments_of(app: Any, task: str, texts: dict[str, str], named: dict[str, Any]) -> bytes:
    return arguments.typed(app.program[task].arguments, texts, named)


def _untyped(client: Client, task: str, args: dict[str, Any], version: int | None, how: How) -> JobSpec:
    spec = client.spec(task, args, version=1 if version is None else version, **how.said)
    return replace(spec, options=how.options(DEFAULT_OPTIONS))


def _typed(client: Client, app: Any, task: str, args: bytes, version: int | None, how: How) -> JobSpec:
    """As the app's own code would submit it: with the task's queue, priority and options, unless others are given."""
    definition = app.program[task]
    if version not in (None, definition.version):
        raise BadInput(f"task {task!r} is at version {definition.version} in this app, not at {version}")
    said = {"queue": definition.queue, "priority": definition.priority, **how.said}
    spec = client.spec(definition.name, version=definition.version, **said)
    # The digest is made anew from these arguments when the job is submitted.
    code = "" if spec.key is None else definition.code
    return replace(spec, args=args, digest="", code=code, options=how.options(definition.options))


async def _sharing(client: Client, definition: Any, spec: JobSpec) -> JobSpec:
    """With what the job needs, of which the store is told what the code says."""
    positional, named = definition.arguments.decode(spec.args)
    shares = definition.shares(definition.resource, tuple(positional), named)
    if not shares:
        return spec
    await provide(client, [share.resource for share in shares if isinstance(share.resource, Resource)])
    return replace(spec, options=replace(spec.options, resources=needs_of(shares)))


def _follow(here: Session, app: Any) -> None:
    """An app may name its store in code, and that is where its jobs go."""
    if here.url is not None:
        return
    found = getattr(app, "settings", None)
    if found is None or found.url == here.settings.url:
        return
    note(
        f"the app names the store {safe(found.store)} in its code; other commands look at {safe(here.settings.store)} "
        f"unless they are given --app {safe(here.target or '')}"
    )
    here.settings = found
