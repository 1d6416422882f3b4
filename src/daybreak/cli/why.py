"""`daybreak why`: says why a job waits, and what all waiting jobs wait for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import click

from daybreak.api.views.why import summary_view, why_view
from daybreak.api.why import Why, explain, read_situation, summarise
from daybreak.cli import completions
from daybreak.cli.jobs.show import found
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.text import ago, counted, number, safe


@click.command("why", short_help="Say why a job waits, and what to do.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=completions.jobs)
@click.option("--summary", is_flag=True, help="Count the causes of all waiting jobs.")
@as_json
def command(job_id: str | None, summary: bool, as_json: bool) -> int:
    """Say why a job does not run: the cause, who is in the way, the command that removes the cause, and the expected
    start. With --summary, count the causes of all waiting jobs.

    Examples:
      daybreak why last
      daybreak why 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak why --summary

    """
    if summary == (job_id is not None):
        raise BadInput("name one job, or write --summary for all waiting jobs; not both")
    if job_id is None:
        return session().run(lambda client: _summary(client, as_json=as_json))
    return session().run(lambda client: _why(client, job_id, as_json=as_json))


store_options(command)


async def _why(client: Client, job_id: str, *, as_json: bool) -> int:
    job = await found(client, job_id)
    why = explain(await read_situation(client, job.id))
    if as_json:
        say_json(why_view(why))
        return 0
    say(f"{safe(job.spec.task)}  {why.job}  {why.state.value}")
    for line in why_lines(why, session().command):
        say(line)
    return 0


def why_lines(why: Why, command: Callable[..., str]) -> list[str]:
    """The saga of the job, the causes, who is in the way, the commands that remove the causes, and the expected start.
    `command` writes a command line for the store in use."""
    lines = []
    if why.saga is not None:
        words = _sentence(f"{why.saga.words} {safe(why.saga.id)} ({safe(why.saga.name)})")
        lines += ["", words, f"  {command('sagas', 'show', why.saga.id)}"]
    for cause in why.causes:
        lines += ["", _sentence(safe(cause.text))]
        if cause.holders:
            lines.append(f"  in the way: {', '.join(safe(holder) for holder in cause.holders)}")
        if cause.command:
            lines.append(f"  {command(*cause.command)}")
    if (expected := _expected(why)) is not None:
        lines += ["", expected]
    return lines


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _expected(why: Why) -> str | None:
    if why.starts_after is None or why.starts_before is None:
        return None
    now = datetime.now(UTC)
    first, last = ago(max(why.starts_after, now), now), ago(max(why.starts_before, now), now)
    when = first if first == last else f"between {first.removeprefix('in ')} and {last.removeprefix('in ')} from now"
    return f"Expected start: {when}."


async def _summary(client: Client, *, as_json: bool) -> int:
    causes = await summarise(client)
    if as_json:
        say_json({"causes": summary_view(causes)})
        return 0
    if not causes:
        say("No job waits.")
        return 0
    say_table(
        [Column("JOBS", right=True), Column("CAUSE"), Column("OF", gives=True), Column("COMMAND")],
        [
            [number(cause.n), cause.kind, safe(cause.subject), session().command(*cause.command)]
            for cause in causes
        ],
    )  # fmt: skip
    say()
    total = sum(cause.n for cause in causes)
    say(f"{counted(total, 'job waits', 'jobs wait')}. Ask about one of them with: {session().command('why', 'ID')}")
    return 0
