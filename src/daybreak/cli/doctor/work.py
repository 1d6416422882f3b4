"""Checks queues, workers, jobs and resources: jobs that no worker can run, and workers that are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Final

from daybreak.api.locks.lock_job import QUEUE as LOCKS
from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.resources import ResourceInfo, all_resources
from daybreak.api.trends import trends_of
from daybreak.api.worker_info import WorkerInfo, known_tasks, read_workers
from daybreak.cli.doctor.attempts import about_retries, about_timeouts
from daybreak.cli.doctor.code import about_code
from daybreak.cli.doctor.failures import about_failures
from daybreak.cli.doctor.growth import about_depth, about_storage
from daybreak.cli.doctor.priorities import about_priorities
from daybreak.cli.doctor.slots import about_slots
from daybreak.cli.doctor.stuck import about_stuck
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import UNFINISHED, State
from daybreak.core.text import ago, counted, number, safe
from daybreak.services.reaper import LONG_ENOUGH
from daybreak.store.protocol import Finding, Tally, ok_finding
from daybreak.tasks.command_tasks import COMMAND_TASKS, EXEC

RECENT: Final = timedelta(hours=24)
MAX_SKEW: Final = timedelta(seconds=30)  # between clocks
_MAX_CHECKED: Final = 1000  # jobs
_MAX_IDS: Final = 5  # in a command, so that a person can still read it
_MAY_RUN: Final = frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED})


async def about_work(client: Client, session: Session, now: datetime) -> AsyncIterator[Finding]:
    """All findings about queues, workers, jobs and resources."""
    workers = await read_workers(client)
    live = [one for one in workers if one.is_live(now)]
    tallies = [tally for tally in await client.tallies() if tally.n and tally.queue != LOCKS]
    queues = await read_queues(client)
    waiting = [tally for tally in tallies if tally.state in _MAY_RUN]
    yield _workers(live, waiting, session)
    if live:
        async for finding in _unknown(client, tallies, live, session):
            yield finding
        for finding in _unserved(tallies, live, session):
            yield finding
    async for finding in about_slots(client, [one for one in live if not one.stopping], session):
        yield finding
    for finding in about_code(live, now):
        yield finding
    for finding in _queues(queues, session):
        yield finding
    for finding in _gone(workers, now):
        yield finding
    async for finding in _leases(client, session, now):
        yield finding
    async for finding in about_stuck(client, session, now):
        yield finding
    async for finding in about_priorities(client, session, now):
        yield finding
    async for finding in _trends(client, session):
        yield finding
    async for finding in about_storage(client, session, tallies, now):
        yield finding
    for finding in _resources(await all_resources(client), session, now):
        yield finding
    async for finding in about_failures(client, session, now):
        yield finding
    async for finding in _clocks(client, workers, now):
        yield finding


async def _trends(client: Client, session: Session) -> AsyncIterator[Finding]:
    for finding in about_depth(await trends_of(client, "1h", by="queue"), session):
        yield finding
    async for finding in about_timeouts(client, await trends_of(client, "1d", by="task"), session):
        yield finding
    for finding in about_retries(await trends_of(client, "1h", by="task"), session):
        yield finding


def _wait(n: int) -> str:
    return counted(n, "job waits", "jobs wait")


def _workers(live: list[WorkerInfo], waiting: list[Tally], session: Session) -> Finding:
    n = sum(tally.n for tally in waiting)
    if live and n and all(one.stopping for one in live):
        return Finding(
            f"{_wait(n)}, but every live worker is stopping and starts no more jobs",
            cure=f"start a new one: {session.start_worker()}",
        )
    if live:
        return ok_finding(f"{counted(len(live), 'live worker')}, {counted(n, 'job')} waiting")
    if n:
        commands = [tally.queue for tally in waiting if tally.task in COMMAND_TASKS]
        starts = [session.start_worker()] if len(commands) < len(waiting) else []
        starts += [session.start_for(EXEC, *commands)] if commands else []
        return Finding(
            f"{_wait(n)}, but no worker is running",
            cure=f"start one: {', and for commands: '.join(starts)}",
        )
    return ok_finding("no live worker, and no job waits for one")


async def _unknown(
    client: Client, tallies: list[Tally], live: list[WorkerInfo], session: Session
) -> AsyncIterator[Finding]:
    """Jobs whose task no live worker has. They wait for such a worker; no attempt is charged."""
    known = known_tasks(live)
    waits: Counter[tuple[str, int]] = Counter()
    for tally in tallies:
        if tally.state in _MAY_RUN and (tally.task, tally.version) not in known:
            waits[tally.task, tally.version] += tally.n
    for (task, version), n in waits.most_common():
        what = f"{_wait(n)} for the task {safe(task)!r}, version {version}, which no live worker has"
        if task in COMMAND_TASKS:
            what = f"{counted(n, 'command waits', 'commands wait')}, but no live worker accepts commands"
        names = {name for name, _ in known}
        if task in names:
            versions = ", ".join(str(v) for name, v in sorted(known) if name == task)
            what += f" (they have version {versions})"
        elif task not in COMMAND_TASKS and (hint := closest(task, names)):
            what += f"; was {safe(hint)!r} meant?"
        start = _start_for(task, tallies, live, session)
        if task in COMMAND_TASKS:
            queues = {tally.queue for tally in tallies if tally.task == task and tally.state in _MAY_RUN}
            start = session.start_for(EXEC, *queues)
        unfinished = sum(tally.n for tally in tallies if tally.task == task and tally.state in UNFINISHED)
        give_up = await _give_up(client, task, version, n, session, alone=n == unfinished)
        one = "one that does" if task in COMMAND_TASKS else "a worker that has it"
        yield Finding(what, cure=f"start {one}: {start}; or {give_up}")


def _start_for(task: str, tallies: list[Tally], live: list[WorkerInfo], session: Session) -> str:
    """The command that starts a worker for a task; over message queues, if a dispatcher sends its jobs there."""
    queues = {tally.queue for tally in tallies if tally.task == task and tally.state in _MAY_RUN}
    via = next((one.via for one in live if one.is_dispatcher and queues.intersection(one.queues)), None)
    return session.command("worker", "TARGET", *(() if via is None else ("--url", via)))


async def _give_up(client: Client, task: str, version: int, n: int, session: Session, *, alone: bool) -> str:
    """How to cancel these jobs and no others. No filter selects a version, so the task selects them only if they are
    `alone`: the only unfinished jobs of the task."""
    if alone:
        return f"cancel them: {session.command('jobs', 'cancel', '--task', task)}"
    page = await client.find(task=task, state=sorted(_MAY_RUN), limit=_MAX_CHECKED)
    found = [job.id for job in page.jobs if job.spec.version == version]
    if n <= _MAX_IDS and len(found) == n:
        return f"cancel them: {session.command('jobs', 'cancel', *found)}"
    everything = session.command("jobs", "cancel", "--task", task, "--dry-run")
    return f"cancel them by their ids; --task would select every version, as this count shows: {everything}"


def _unserved(tallies: list[Tally], live: list[WorkerInfo], session: Session) -> Iterator[Finding]:
    """Jobs whose task only workers have that do not serve the job's queue."""
    waits: Counter[tuple[str, bool]] = Counter()
    for tally in tallies:
        able = [one for one in live if (tally.task, tally.version) in one.tasks]
        if tally.state in _MAY_RUN and able and not any(tally.queue in one.queues or not one.queues for one in able):
            waits[tally.queue, tally.task in COMMAND_TASKS] += tally.n
    for (queue, is_command), n in waits.most_common():
        start = session.start_for(EXEC, queue) if is_command else session.start_worker("--queues", queue)
        yield Finding(
            f"{_wait(n)} in the queue {safe(queue)!r}, which no live worker that has their task serves",
            cure=f"start one for it: {start}",
        )


def _queues(queues: list[QueueInfo], session: Session) -> Iterator[Finding]:
    for queue in queues:
        name, settings = safe(queue.name), queue.settings
        unfinished = sum(queue.states.get(state, 0) for state in UNFINISHED)
        if settings.paused and queue.waiting:
            yield Finding(
                f"the queue {name!r} is paused, and {_wait(queue.waiting)} in it",
                cure=session.command("queues", "resume", queue.name),
            )
        if settings.max_running == 0 and queue.waiting:
            yield Finding(
                f"the queue {name!r} runs no jobs (max_running=0), and {_wait(queue.waiting)} in it",
                cure=session.command("queues", "set", queue.name, "max_running=none"),
            )
        if settings.capacity is not None and unfinished >= settings.capacity:
            yield Finding(
                f"the queue {name!r} is full and refuses new jobs: {number(unfinished)} unfinished jobs, "
                f"capacity {number(settings.capacity)}",
                cure=session.command("queues", "set", queue.name, f"capacity={max(settings.capacity * 2, 1)}"),
            )


def _gone(workers: list[WorkerInfo], now: datetime) -> Iterator[Finding]:
    gone = [one for one in workers if one.state(now) == "gone" and one.seen_at and now - one.seen_at <= RECENT]
    if not gone:
        return
    latest = max(gone, key=lambda one: one.seen_at.timestamp() if one.seen_at else 0)
    name = safe(latest.name or latest.id)
    where = f" on {safe(latest.host)}, process {latest.pid}" if latest.host else ""
    yield Finding(
        f"{counted(len(gone), 'worker')} disappeared without stopping in order; the last one was {name}{where}, "
        f"last seen {ago(latest.seen_at, now)}",
        cure="if nobody killed it, look for a crash, or for the kernel's out-of-memory killer (dmesg, journalctl -k)",
    )


async def _leases(client: Client, session: Session, now: datetime) -> AsyncIterator[Finding]:
    page = await client.find(state=State.RUNNING, limit=_MAX_CHECKED)
    # After an outage, the deadline of work that goes on elsewhere is enforced later.
    lapsed = [
        job
        for job in page.jobs
        if job.leased_until is not None
        and now - job.leased_until > (LONG_ENOUGH + MAX_SKEW if job.detached else MAX_SKEW)
    ]
    if lapsed:
        yield Finding(
            f"{counted(len(lapsed), 'running job holds', 'running jobs hold')} a lease that expired more than 30 s ago",
            cure=f"start a worker, which takes them over: {session.start_worker()}",
        )


def _resources(resources: list[ResourceInfo], session: Session, now: datetime) -> Iterator[Finding]:
    for one in resources:
        name = safe(one.name)
        if one.breaker == "open":
            until = f", the next probe is {ago(one.shut_until, now)}" if one.shut_until and one.shut_until > now else ""
            yield Finding(
                f"the breaker of the resource {name!r} is open{until}; {_wait(one.waiting)} for it",
                cure=f"repair the service behind it; the breaker then closes by itself, or close it with: "
                f"{session.command('resources', 'reset', one.name)}"
                + (f", which also undoes what {safe(one.set_by)} has set" if one.set_by else ""),
            )
        if one.retries_waiting:
            yield Finding(
                f"the resource {name!r} is failing: {counted(one.retries_waiting, 'retry waits', 'retries wait')} "
                "until it fails less often",
                cure="repair the service behind it; the retries then continue by themselves",
            )
        if one.slots == 0 and one.waiting:
            yield Finding(
                f"the resource {name!r} has no slots, and {_wait(one.waiting)} for it",
                cure=session.command("resources", "set", one.name, "slots=1"),
            )
        if one.differs:
            yield Finding(
                f"{safe(one.set_by) or 'someone'} set the resource {name!r} to other limits than the code declares",
                cure=f"if that is no longer wanted: {session.command('resources', 'reset', one.name)}",
            )


async def _clocks(client: Client, workers: list[WorkerInfo], now: datetime) -> AsyncIterator[Finding]:
    ahead = [one for one in workers if one.seen_at is not None and one.seen_at - now > MAX_SKEW]
    newest = (await client.find(limit=1)).jobs
    if newest and newest[0].created_at - now > MAX_SKEW:
        yield Finding(
            f"the newest job was submitted {ago(newest[0].created_at, now)}, by this machine's clock: clocks differ",
            cure="synchronise the clocks; leases do not depend on them, but --run-at does",
        )
    elif ahead:
        yield Finding(
            f"worker {safe(ahead[0].name or ahead[0].id)} was last seen {ago(ahead[0].seen_at, now)}: clocks differ",
            cure="synchronise the clocks; leases do not depend on them, but --run-at does",
        )
