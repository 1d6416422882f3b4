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
from daybreak.cli.wait import unknown_to_all, wait_for
from daybreak.client.client import Client
from daybreak.core.model import Adaptive, Job, JobSpec, Options
from daybreak.policy.parse_options import parse_options
from daybreak.policy.retry import PRESETS
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
    """How a job is to be run, as the command line says; None is for what it does not say."""

    def __init__(self, **said: Any) -> None:
        self.wait: bool = said.pop("wait") or said.get("timeout_wait") is not None
        self.timeout_wait: timedelta | None = said.pop("timeout_wait")
        self.as_json: bool = said.pop("as_json")
        self.retry: object = said.pop("retry")
        self.timeout: timedelta | Adaptive | None = said.pop("timeout")
        self.expires_in: timedelta | None = said.pop("expires_in")
        said["tags"] = said.pop("tag")
        said["meta"] = pairs(said.pop("meta"), "--meta")
        self.said: dict[str, Any] = {name: value for name, value in said.items() if value is not None}

    def options(self, defaults: Options) -> Options:
        return parse_options(defaults, retry=self.retry, timeout=self.timeout, expires_in=self.expires_in)


def job_options(command: F) -> F:
    """The options of a job; the command gets them as `how`."""

    @functools.wraps(command)
    def packed(*args: Any, **said: Any) -> Any:
        own = {name: said.pop(name) for name in list(said) if name not in _NAMES}
        return command(*args, how=How(**said), **own)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed  # type: ignore[return-value]


_OPTIONS = [
    click.option(
        "--priority", "-p", type=PRIORITY, help="A name (critical, high, normal, low ...) or 0 to 10; lower runs first."
    ),
    click.option("--queue", "-q", type=NAME, shell_complete=completions.queues, help="The queue it waits in."),
    click.option("--delay", type=DURATION, help="Not before this has passed, such as 10m."),
    click.option("--run-at", type=INSTANT, help="Not before this instant, such as 2026-01-31T18:00+01:00."),
    click.option("--key", type=NAME, help="Idempotency key: submitting again with the same key gives the same job."),
    click.option(
        "--unique", type=NAME, help="At most one unfinished job of this name; if there is one, its id is printed."
    ),
    click.option(
        "--unique-while",
        type=OneOf("choice", ("unfinished", "waiting")),
        help="With waiting, a running job does not count for --unique: one more may wait beside it.",
    ),
    click.option("--tag", type=NAME, multiple=True, help="A word to find it by; may be repeated."),
    click.option("--meta", metavar="NAME=VALUE", multiple=True, help="Something to keep with it; may be repeated."),
    click.option("--owner", type=NAME, help="Who it belongs to."),
    click.option("--retry", type=RetryType(), help=f"How many attempts, or a preset: {', '.join(PRESETS)}."),
    click.option(
        "--timeout",
        type=TIMEOUT,
        help="How long an attempt may run, such as 10m; adaptive:10m follows how long such jobs take.",
    ),
    click.option("--expires-in", type=DURATION, help="Fail if it has not started by then."),
    click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit 1 if it failed."),
    click.option("--timeout-wait", type=DURATION, help="Wait at most so long; exit 5 if it has not ended by then."),
    click.option("--json", "as_json", is_flag=True, help="Print the job as JSON, for programs."),
]
_NAMES = {
    "priority", "queue", "delay", "run_at", "key", "unique", "unique_while", "tag", "meta", "owner", "retry",
    "timeout", "expires_in", "wait", "timeout_wait", "as_json",
}  # fmt: skip


async def hand_in(client: Client, spec: JobSpec, how: How) -> Job | None:
    """Submit; then print the id, or wait for the end and answer with the job. With `--json` the job is printed, after
    the wait if there is one."""
    client.on_known = _hint_at_code
    job_id = await client.submit(spec)
    if how.wait:
        note(f"submitted {job_id}")
        job = await wait_for(client, job_id, how.timeout_wait)
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
    if hint := await unknown_to_all(client, spec.task, spec.version, spec.queue):
        note(hint)
    return None


def _hint_at_code(specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
    for spec, job in telemetry.duplicates_of_other_code(specs, answers):
        note(f"{telemetry.describe_code_change(spec, job)}: daybreak jobs remove {job}")


async def _say_job(client: Client, job: Job) -> None:
    say_json(job_view(job, await client.store.history(job.id), datetime.now(job.created_at.tzinfo)))


def run(do: Callable[[Client], Any]) -> Any:
    return session().run(do, create=True)
