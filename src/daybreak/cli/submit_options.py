"""What `submit` and `exec` share: a job's options, and handing it in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from daybreak import telemetry
from daybreak.api.views.job import job_view
from daybreak.cli import completions
from daybreak.cli.errors import Unwritten
from daybreak.cli.options import DURATION, INSTANT, NAME, PRIORITY, TIMEOUT, OneOf, ParamType, pairs
from daybreak.cli.output import note, say, say_json
from daybreak.cli.session import session
from daybreak.cli.wait import no_worker_hint, wait_for
from daybreak.client.client import Client
from daybreak.core.model import Job, JobSpec
from daybreak.policy.parse_options import SUBMIT_OPTIONS
from daybreak.policy.retry import PRESETS
from daybreak.sqs.deliveries import delivery_of
from daybreak.store.protocol import Inserted

F = TypeVar("F", bound=Callable[..., Any])


class RetryType(ParamType):
    name = "retry"
    _presets = OneOf("preset", PRESETS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value[:10])
        return self._presets.convert(value, param, ctx)


class How:
    """How a job is to be run, from the options of the command line. Options that were not given are None."""

    def __init__(self, **options: Any) -> None:
        self.wait: bool = options.pop("wait") or options.get("timeout_wait") is not None
        self.timeout_wait: timedelta | None = options.pop("timeout_wait")
        self.as_json: bool = options.pop("as_json")

        options["tags"] = options.pop("tag")
        options["meta"] = pairs(options.pop("meta"), "--meta")
        self.given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}


def job_options(command: F) -> F:
    """Add the options of a job to a command, which receives them as `how`."""

    @functools.wraps(command)
    def packed(*args: Any, **options: Any) -> Any:
        own = {name: options.pop(name) for name in list(options) if name not in _NAMES}
        return command(*args, how=How(**options), **own)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed  # type: ignore[return-value]


_OPTIONS = [
    click.option(
        "--priority",
        "-p",
        type=PRIORITY,
        help="A name (critical, high, normal, low ...), or 0 to 10; lower runs first.",
    ),
    click.option("--queue", "-q", type=NAME, shell_complete=completions.queues, help="The queue the job waits in."),
    click.option("--delay", type=DURATION, help="Do not start the job before this time has passed, for example 10m."),
    click.option("--run-at", type=INSTANT, help="Do not start the job before, for example, 2026-01-31T18:00+01:00."),
    click.option("--key", type=NAME, help="Idempotency key: a second submit with the same key returns the first job."),
    click.option("--unique", type=NAME, help="Allow one unfinished job of this name; if there is one, print its id."),
    click.option(
        "--unique-while",
        type=OneOf("choice", ("unfinished", "waiting")),
        help="Which job counts for --unique: unfinished (the default), or waiting, which allows one job to wait while "
        "another one runs.",
    ),
    click.option("--tag", type=NAME, multiple=True, help="A tag to find the job by. May be repeated."),
    click.option("--meta", metavar="NAME=VALUE", multiple=True, help="A value to store with the job. May be repeated."),
    click.option("--owner", type=NAME, help="Who the job belongs to."),
    click.option("--retry", type=RetryType(), help=f"The number of attempts, or a preset: {', '.join(PRESETS)}."),
    click.option(
        "--timeout",
        type=TIMEOUT,
        help="How long an attempt may run, for example 10m. adaptive:10m starts at 10m and follows how long such jobs "
        "take.",
    ),
    click.option("--expires-in", type=DURATION, help="Fail the job if it has not started within this time."),
    click.option("--wait", is_flag=True, help="Wait for the job and print its result; exit code 1 if it failed."),
    click.option("--timeout-wait", type=DURATION, help="Wait at most this long; exit code 5 if the job has not ended."),
    click.option("--json", "as_json", is_flag=True, help="Print the job as JSON instead of its id or result."),
]
_NAMES = SUBMIT_OPTIONS | {"tag", "wait", "timeout_wait", "as_json"}


async def submit_job(client: Client, spec: JobSpec, how: How) -> Job | None:
    """Submit a job. Without `--wait` print its id and return None; with it, return the job once it has ended. With
    `--json` print the job instead, after the wait if there is one."""
    client.on_changed_code = _hint_at_code
    job_id = await client.submit(spec)
    if how.wait:
        note(f"submitted {job_id}")
        job = await session().with_result(client, await wait_for(client, job_id, how.timeout_wait))
        if how.as_json:
            await _say_job(client, job)
        return job
    try:
        if how.as_json:
            await _say_job(client, await client.get(job_id))
        else:
            say(job_id)
    except Unwritten:
        note(f"job {job_id} was accepted")
        raise
    if hint := await no_worker_hint(client, spec.task, spec.version, spec.queue):
        note(hint)
    return None


def _hint_at_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    for spec, job in telemetry.duplicates_of_other_code(specs, answers):
        note(f"{telemetry.describe_code_change(spec, job)}: daybreak jobs remove {job}")


async def _say_job(client: Client, job: Job) -> None:
    history, delivery = await client.store.history(job.id), await delivery_of(client.store, job)
    say_json(job_view(job, history, datetime.now(job.created_at.tzinfo), delivery))


def run(do: Callable[[Client], Any]) -> Any:
    return session().run(do, create=True)
