"""Waiting for a job's end, with a word to the person who waits; and saying how it ended."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import click

from daybreak.api.views.job import plain_value
from daybreak.api.worker_info import known_tasks, live_workers
from daybreak.cli.errors import Exit, NotYet
from daybreak.cli.output import as_json, console, note, say_json
from daybreak.cli.session import COMMANDS, session
from daybreak.cli.text import percent, safe
from daybreak.client.client import Client
from daybreak.core.errors import JobCancelled, JobFailed, ResultTimeout
from daybreak.core.model import Job, State
from daybreak.core.units import ZERO
from daybreak.store.protocol import job_topic

_LOOK = timedelta(seconds=1)
_HINT_AFTER = 2.0


async def wait_for(client: Client, job_id: str, limit: timedelta | None = None) -> Job:
    """The job once it is final; ResultTimeout if that takes longer than `limit`. The job goes on either way."""
    began = time.monotonic()
    hinted = False
    watch = client.store.watch([job_topic(job_id)])
    try:
        with _status() as (tell, aside):
            while not (job := await client.get(job_id)).is_final:
                waited = timedelta(seconds=time.monotonic() - began)
                if limit is not None and waited >= limit:
                    raise ResultTimeout(job_id, job.state, limit)
                if not hinted and waited.total_seconds() >= _HINT_AFTER and job.state is not State.RUNNING:
                    hinted = True
                    if hint := await unknown_to_all(client, job.spec.task, job.spec.version, job.spec.queue):
                        aside(hint)
                tell(_line(job))
                await watch.wait(_LOOK if limit is None else max(min(_LOOK, limit - waited), ZERO))
    finally:
        watch.close()
    return job


def _line(job: Job) -> str:
    said = [job.state.value, percent(job.progress), safe(job.message)]
    return f"{safe(job.spec.task)} {job.id}: {' '.join(word for word in said if word)}"


@contextlib.contextmanager
def _status() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """How to say how far it is, in a line that moves, for a person alone; and how to say something beside."""
    if not sys.stderr.isatty():
        yield lambda _: None, note
        return
    from rich.text import Text  # noqa: PLC0415 - programs need none of it

    out = console(err=True)
    with out.status("waiting") as status:
        yield lambda line: status.update(Text(line)), lambda text: out.print(Text(f"Note: {text}"))


async def unknown_to_all(client: Client, task: str, version: int, queue: str) -> str | None:
    """A sentence if nobody there can run this. It is no error: whoever can may start later."""
    live = await live_workers(client)
    known = known_tasks(live)
    if (task, version) in known:
        return None
    here = session()
    start = here.start_for(task, queue)
    if live and task == COMMANDS:
        return f"no live worker may run commands: the job waits for one that may. Start it with: {start}"
    others = sorted(number for name, number in known if name == task)
    if others:
        told = f"live workers know {safe(task)!r} in version {', '.join(map(str, others))}, not in version {version}"
        return f"{told}: the job waits until one does."
    if live:
        return f"no live worker knows the task {safe(task)!r}: the job waits for one that does. Start it with: {start}"
    return f"no worker is there: the job waits for one. Start it with: {start}"


def say_outcome(job: Job, *, raw: bool = False, silent: bool = False) -> int:
    """Print the result of a job that ended well, unless `silent`; raise what says how it ended otherwise."""
    match job.state:
        case State.COMPLETED:
            if not silent:
                _say_result(job, raw=raw)
            return int(Exit.OK)
        case State.FAILED:
            raise JobFailed(job.id, job.spec.task, job.reason or "", _error(job), job.attempt)
        case State.CANCELLED:
            raise JobCancelled(job.id, job.spec.task)
        case _:
            raise NotYet(f"job {job.id} is {job.state}. {_wait_with(job)}")


def _say_result(job: Job, *, raw: bool) -> None:
    value = None if job.result is None else plain_value(job.result)
    if raw and isinstance(value, str):
        # A program gets the text as it is; a terminal gets it so that it cannot be steered by it. Without `color`, what
        # looks like an escape sequence would be taken out of it on the way.
        click.echo(safe(value, lines=True) if sys.stdout.isatty() else value, color=True)
    elif raw:
        click.echo(as_json(value, indent=None))
    else:
        say_json(value)


def _wait_with(job: Job) -> str:
    return f"Wait for its end with: {session().command('jobs', 'result', job.id, '--wait')}"


def _error(job: Job) -> str:
    return f"{job.failure or ''}\nAll about it: {session().command('jobs', 'show', job.id)}"
