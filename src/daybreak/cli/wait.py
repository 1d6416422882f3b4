"""Waits for the end of a job while showing its progress, and prints how it ended."""

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
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import JobCancelled, JobFailed, ResultTimeout
from daybreak.core.model import Job, State
from daybreak.core.text import percent, safe
from daybreak.core.units import ZERO
from daybreak.store.protocol import job_topic
from daybreak.tasks.command_tasks import COMMAND_TASKS

_POLL_INTERVAL = timedelta(seconds=1)
_HINT_AFTER = 2.0  # seconds


async def wait_for(client: Client, job_id: str, limit: timedelta | None = None) -> Job:
    """The job once it is final. Raises ResultTimeout after `limit`; the job itself continues."""
    began = time.monotonic()
    hinted = False
    watch = client.store.watch([job_topic(job_id)])
    try:
        with _status() as (show, note_above):
            while not (job := await client.get(job_id)).is_final:
                waited = timedelta(seconds=time.monotonic() - began)
                if limit is not None and waited >= limit:
                    raise ResultTimeout(job_id, job.state, limit)
                if not hinted and waited.total_seconds() >= _HINT_AFTER and job.state is not State.RUNNING:
                    hinted = True
                    if hint := await no_worker_hint(client, job.spec.task, job.spec.version, job.spec.queue):
                        note_above(hint)
                show(_progress_line(job))
                await watch.wait(_POLL_INTERVAL if limit is None else max(min(_POLL_INTERVAL, limit - waited), ZERO))
    finally:
        watch.close()
    return job


def _progress_line(job: Job) -> str:
    parts = [job.state.value, percent(job.progress), safe(job.message)]
    return f"{safe(job.spec.task)} {job.id}: {' '.join(part for part in parts if part)}"


@contextlib.contextmanager
def _status() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Two functions: one updates a status line on the terminal, the other prints a note above it. Without a terminal
    there is no status line."""
    if not sys.stderr.isatty():
        yield lambda _: None, note
        return
    from rich.text import Text  # noqa: PLC0415 - slow to import, and needed only on a terminal

    out = console(err=True)
    with out.status("waiting") as status:
        yield lambda line: status.update(Text(line)), lambda text: out.print(Text(f"Note: {text}"))


async def no_worker_hint(client: Client, task: str, version: int, queue: str) -> str | None:
    """A sentence if no live worker can run this task, else None. It is not an error: such a worker may start later."""
    live = await live_workers(client)
    known = known_tasks(live)
    if (task, version) in known:
        return None
    here = session()
    start = here.start_for(task, queue)
    if live and task in COMMAND_TASKS:
        return f"no live worker accepts commands, so the job waits. Start one that does with: {start}"
    others = sorted(number for name, number in known if name == task)
    if others:
        versions = ", ".join(map(str, others))
        return f"live workers have version {versions} of {safe(task)!r}, not version {version}, so the job waits."
    if live:
        return f"no live worker has the task {safe(task)!r}, so the job waits. Start one that does with: {start}"
    return f"no worker is running, so the job waits. Start one with: {start}"


def say_outcome(job: Job, *, raw: bool = False, silent: bool = False) -> int:
    """Print the result of a completed job, unless `silent`. For any other state raise the error that describes it."""
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
        # In a pipe the text is printed unchanged; on a terminal escape sequences are escaped. Without `color=True`
        # click would remove escape sequences from the text.
        click.echo(safe(value, lines=True) if sys.stdout.isatty() else value, color=True)
    elif raw:
        click.echo(as_json(value, indent=None))
    else:
        say_json(value)


def _wait_with(job: Job) -> str:
    return f"Wait for it with: {session().command('jobs', 'result', job.id, '--wait')}"


def _error(job: Job) -> str:
    return f"{job.failure or ''}\nDetails: {session().command('jobs', 'show', job.id)}"
