"""`daybreak jobs show`: prints everything about one job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from daybreak.api.job_history import attempts, ran_for, runner_of, waited_for
from daybreak.api.views.job import event_view, job_view, plain_value
from daybreak.api.why import explain, read_situation
from daybreak.cli import completions
from daybreak.cli.job_selector import job_id_of
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.output import as_json as to_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.client.duration_stats import execution_of
from daybreak.core.events import Event
from daybreak.core.metadata import decode_meta, meta_text
from daybreak.core.model import FINAL, Job, Need, Reason, State
from daybreak.core.text import ago, cause_text, clock, counted, first_line, lasted, local, percent, priority_name, safe
from daybreak.policy.timeouts import describe_limit, in_seconds, limit_for
from daybreak.sqs.deliveries import delivery_of

MAX_IN_CALL = 1000  # running jobs that are read to find those of one call
MAX_VALUE_LENGTH = 4000  # characters of an argument or result


@click.command(short_help="Show one job in detail.")
@click.argument("job_id", metavar="ID", shell_complete=completions.jobs)
@click.option("--history", "with_history", is_flag=True, help="With --json, include the job's events.")
@as_json
def show(job_id: str, with_history: bool, as_json: bool) -> int:
    """Show one job: its arguments, attempts, errors, result and history.

    Examples:
      daybreak jobs show last
      daybreak jobs show 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d

    """
    return session().run(lambda client: _show(client, job_id, with_history=with_history, as_json=as_json))


store_options(show)


async def found(client: Client, job_id: str) -> Job:
    """The job that the word means (see `job_selector`), or JobNotFound."""
    return await client.get(await job_id_of(client, job_id))


async def _show(client: Client, job_id: str, *, with_history: bool, as_json: bool) -> int:
    job = await found(client, job_id)
    history = await client.store.history(job.id)
    now = datetime.now(UTC)
    if as_json:
        data = job_view(job, history, now, await delivery_of(client.store, job))
        if with_history:
            data["history"] = [event_view(event) for event in history]
        say_json(data)
        return 0
    heading(f"{job.spec.task}  {job.id}")
    say_pairs(await facts(client, job, history, now))
    _say_attempts(history)
    _say_traceback(job)
    _say_history(history)
    say()
    say(_next_step(job))
    return 0


async def facts(client: Client, job: Job, history: list[Event], now: datetime) -> list[tuple[str, str]]:
    """What there is to know about a job, as names and values for people. A value that does not apply is empty."""
    spec = job.spec
    retry = spec.options.retry
    ran = ran_for(job, history, now)
    return [
        ("state", job.state.value),
        ("why", await _why(client, job)),
        ("queue", safe(spec.queue)),
        ("priority", priority_name(job.priority)),
        ("version", str(spec.version) if spec.version != 1 else ""),
        ("attempt", f"{job.attempt} of {retry.attempts}"),
        (
            "progress",
            " ".join(filter(None, (percent(job.progress), safe(job.message)))) if job.progress is not None else "",
        ),
        ("worker", await _worker(client, job, history, now)),
        ("call", await _call(client, job)),
        ("elsewhere", f"until {local(job.leased_until)}: no worker has it" if job.detached else ""),
        (
            "submitted",
            f"{local(job.created_at)}, {ago(job.created_at, now)}" + (f", by {safe(spec.by)}" if spec.by else ""),
        ),
        ("not before", local(job.run_at) if job.state is State.SCHEDULED else ""),
        ("started", local(job.started_at)),
        ("finished", local(job.finished_at)),
        ("cached from", f"job {job.cached_from}, which computed the same" if job.cached_from else ""),
        ("waited", lasted(waited_for(job, history, now))),
        ("ran", lasted(ran) if ran is not None else ""),
        ("time limit", await _limit(client, job)),
        ("expires", local(job.expires_at)),
        ("needs", safe(", ".join(_need(need) for need in spec.options.resources))),
        ("run", safe(spec.run or "")),
        ("owner", safe(spec.owner or "")),
        ("key", safe(spec.key or "")),
        ("unique", safe(spec.unique or "")),
        ("tags", safe(", ".join(spec.tags))),
        ("meta", safe(", ".join(f"{name}={meta_text(value)}" for name, value in decode_meta(spec.meta).items()))),
        ("arguments", _value(spec.args)),
        ("result", _value(job.result) if job.result is not None else ""),
        ("error", safe(str(job.failure), lines=True) if job.failure else ""),
    ]


async def _why(client: Client, job: Job) -> str:
    """The reason for the job's state, or what the job waits for."""
    if job.state is State.FAILED:
        return job.reason.value if job.reason else ""
    if job.state in FINAL:
        return safe(job.note)
    if job.state is State.RUNNING and not job.cancelling:
        return "asked to suspend" if job.suspending else ""
    return safe(str(explain(await read_situation(client, job.id))))


async def _worker(client: Client, job: Job, history: list[Event], now: datetime) -> str:
    """Who runs the job, or ran it last. For a remote worker, also when it was heard of, and who sent it the job."""
    delivery = await delivery_of(client.store, job)
    if delivery is None:
        runner = runner_of(job, history, None)
        return f"none yet; sent by {safe(job.worker or '')}" if runner is None and job.worker else safe(runner or "")
    age = lasted(delivery.heartbeat_age(job, now))
    return f"{safe(delivery.worker)}, last heartbeat {age} ago; sent by {safe(job.worker or '')}"


async def _call(client: Client, job: Job) -> str:
    """The batch call that the job runs in, if it shares one."""
    if job.group is None:
        return ""
    page = await client.find(state=State.RUNNING, queue=job.spec.queue, task=job.spec.task, limit=MAX_IN_CALL)
    call = [found for found in page.jobs if found.group == job.group]
    first = next((found.id for found in call if found.seq == job.group), None)
    if len(call) < 2 or first is None:
        return ""
    return f"{counted(len(call), 'job')}, of which {first} is the first"


async def _limit(client: Client, job: Job) -> str:
    """How long an attempt may run, and where the limit comes from. An adaptive limit is computed from the durations
    known now."""
    options, known = job.spec.options, None
    if options.timeout is not None and options.adaptive:
        known = (await client.durations.read(execution_of(job.spec)))[0]
    # The timeout that ended the job raised no limit, because no attempt follows it.
    timeouts = job.timeouts - (job.reason is Reason.TIMEOUT and job.timeouts > 0)
    limit = limit_for(options, timeouts, known)
    return "" if limit is None else describe_limit(options, limit, _short)


def _short(span: timedelta) -> str:
    return in_seconds(span) if span < timedelta(minutes=1) else lasted(span)


def _need(need: Need) -> str:
    return need.resource if need.slots == 1 else f"{need.slots} of {need.resource}"


def _value(data: bytes) -> str:
    value = plain_value(data)
    text = to_json(value, indent=None)
    text = text if len(text) <= 100 else to_json(value)
    return (
        text
        if len(text) <= MAX_VALUE_LENGTH
        else f"{text[:MAX_VALUE_LENGTH]}… ({len(data):,} bytes; --json prints all of it)"
    )


def _say_attempts(history: list[Event]) -> None:
    tries = attempts(history)
    if len(tries) < 2 and not any(one.error for one in tries):
        return
    say()
    columns = [
        Column("ATTEMPT", right=True), Column("STARTED"), Column("RAN"), Column("ENDED"), Column("WORKER", drop=1),
        Column("ERROR", gives=True),
    ]  # fmt: skip
    rows = [
        [
            str(one.n), clock(one.started_at), lasted(one.ended_at - one.started_at) if one.ended_at else "", one.ended,
            safe(one.worker), first_line(one.error),
        ]
        for one in tries
    ]  # fmt: skip
    say_table(columns, rows)


def _say_traceback(job: Job) -> None:
    if job.failure is not None and job.failure.traceback:
        say()
        say(safe(job.failure.traceback.rstrip(), lines=True))


def _say_history(history: list[Event]) -> None:
    say()
    say_table(
        [Column("TIME"), Column("EVENT"), Column("BY", drop=1), Column("DETAIL", gives=True)],
        [
            [clock(event.at), safe(event.kind.replace("_", " ")), safe(event.by), event_detail(event)]
            for event in history
        ],
    )


def event_detail(event: Event) -> str:
    """What an event says besides its kind, in one line."""
    parts = [
        event.reason.value if event.reason else "",
        f"attempt {event.attempt}" if event.kind == "started" else "",
        f"priority {priority_name(event.priority)}"
        if event.kind == "reprioritised" and event.priority is not None
        else "",
        f"not before {clock(event.run_at)}" if event.run_at else "",
        f"deadline {clock(event.deadline)}" if event.deadline else "",
        cause_text(event.note) if event.kind == "blocked" else event.note,
        event.error,
    ]
    return first_line(", ".join(part for part in parts if part))


def _next_step(job: Job) -> str:
    words = {
        State.FAILED: ("Retry with", "retry"),
        State.CANCELLED: ("Run it again with", "retry"),
        State.SUSPENDED: ("Resume it with", "resume"),
        State.COMPLETED: ("Print only its result with", "result"),
    }
    if job.detached:
        return f"Finish it with: {session().command('finish', job.id, '--fence', str(job.fence), '--result', 'JSON')}"
    phrase, action = words.get(job.state, ("Wait for its result with", "result"))
    wait = () if job.state in FINAL or action != "result" else ("--wait",)
    return f"{phrase}: {session().command('jobs', action, job.id, *wait)}"
