"""`daybreak submit`: a job from the command line."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from daybreak.api.cached_submits import keyed_by
from daybreak.api.resources import provide
from daybreak.cli import arguments, completions
from daybreak.cli.options import NAME, Whole, pairs
from daybreak.cli.output import note
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, session
from daybreak.cli.submit_options import How, job_options, run, submit_job
from daybreak.cli.wait import say_outcome
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import JobSpec
from daybreak.core.text import safe
from daybreak.policy.resources import Resource, needs_of
from daybreak.values.file import Content, collecting


@click.command("submit", short_help="Submit a job and print its id.")
@click.argument("task", type=NAME, shell_complete=completions.tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--args",
    "args_file",
    metavar="FILE",
    help="Read the arguments from a file that holds a JSON object; - reads standard input.",
)
@click.option(
    "--version", type=Whole(0), help="The task's version. Default: the version in the app's code, or 1 without an app."
)
@click.option("--no-cache", is_flag=True, help="Of a cached task: run it whatever is known, and keep no result.")
@click.option("--refresh", is_flag=True, help="Of a cached task: compute its result anew, and keep that.")
@job_options
def command(
    task: str,
    words: tuple[str, ...],
    args_file: str | None,
    version: int | None,
    no_cache: bool,
    refresh: bool,
    how: How,
) -> int:
    """Submit a job and print its id.

    If an app is known (--app, DAYBREAK_APP, or app in daybreak.toml), the arguments are converted and checked by the
    annotations of the task's function. Otherwise a value is read as JSON if it is valid JSON, and as text if not.
    name=@file takes the value from a text file; for a File it is that file.

    Examples:
      daybreak submit send_mail to=ann@example.com subject='"42"' --priority high
      daybreak submit simulate vin=24 model=@buck.json --wait --timeout-wait 10m
      jq . order.json | daybreak submit import_order --args - --key order-7

    """
    if no_cache and refresh:
        raise click.UsageError("give --no-cache or --refresh, not both")
    given = pairs(words, "argument")
    named = arguments.read_args(args_file)
    here = session()
    app = here.loaded if here.target else None
    texts = arguments.read_pairs(given, () if app is None else app.program[task].arguments.files())

    # Check the arguments before the store is opened: a typing error must not create a store.
    args, contents = (None, []) if app is None else arguments_of(app, task, texts, named)

    async def submitted(client: Client) -> int:
        for content in contents:
            await (await here.files(client)).put(content)
        if app is None or args is None:
            spec = _untyped(client, task, arguments.untyped(texts, named), version, how)
        else:
            spec = _typed(client, app, task, args, version, how)
            spec = await _with_resources(client, app.program[task], spec)
            cache = app.program[task].cache
            if cache is not None and not no_cache:
                spec = await keyed_by(client, app.program[task], cache, spec, refreshes=refresh)
        job = await submit_job(client, spec, how)
        return 0 if job is None else say_outcome(job, silent=how.as_json)

    if app is not None:
        _use_store_of_app(here, app)
    return int(run(submitted))


store_options(command)


def arguments_of(app: Any, task: str, texts: dict[str, str], named: dict[str, Any]) -> tuple[bytes, list[Content]]:
    """The encoded arguments, and the contents of the files among them."""
    with collecting() as contents:
        return arguments.typed(app.program[task].arguments, texts, named), list(contents.values())


def _untyped(client: Client, task: str, args: dict[str, Any], version: int | None, how: How) -> JobSpec:
    return client.spec(task, args, version=1 if version is None else version, **how.given)


def _typed(client: Client, app: Any, task: str, args: bytes, version: int | None, how: How) -> JobSpec:
    """The job as the app's own code would submit it: with the task's queue, priority and options, unless the command
    line gives others."""
    definition = app.program[task]
    if version not in (None, definition.version):
        raise BadInput(
            f"this app has version {definition.version} of the task {task!r}, not {version}; leave --version out"
        )
    given = {"queue": definition.queue, "priority": definition.priority, **how.given}
    spec = client.spec(definition.name, version=definition.version, defaults=definition.options, **given)
    # The client computes the digest from these arguments when it submits the job.
    code = "" if spec.key is None else definition.code
    return replace(spec, args=args, digest="", code=code)


async def _with_resources(client: Client, definition: Any, spec: JobSpec) -> JobSpec:
    """The job with the resources that it needs. Resources that the code declares are written to the store first."""
    positional, named = definition.arguments.decode(spec.args)
    args = tuple(positional)
    shares = definition.shares(definition.resource, args, named)
    if shares:
        await provide(client, [share.resource for share in shares if isinstance(share.resource, Resource)])
        spec = replace(spec, options=replace(spec.options, resources=needs_of(shares)))
    if definition.batching is None:
        return spec
    return replace(spec, batch=definition.batch_key(spec.args, args, named, spec.options.resources))


def _use_store_of_app(here: Session, app: Any) -> None:
    """Submit to the store that the app names in its code, if it names one."""
    if here.url is not None:
        return
    found = getattr(app, "settings", None)
    if found is None or found.url == here.settings.url:
        return
    note(
        f"the app's code names the store {safe(found.store)}, so the job goes there. Other commands use "
        f"{safe(here.settings.store)} unless you add --app {safe(here.target or '')}"
    )
    here.settings = found
