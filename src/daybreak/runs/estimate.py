"""When a run will probably end, from what its own jobs took so far and what they wait for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from daybreak.api.resources import settings_in
from daybreak.api.worker_info import live_workers
from daybreak.client.client import Client
from daybreak.core.model import WAITING, Job, State
from daybreak.core.units import moment
from daybreak.policy.eta import MAX_OBSERVED, MIN_ENDED, Ended, predict_end
from daybreak.runs.record import RunRecord
from daybreak.runs.run_info import Eta
from daybreak.system.ports import World

MAX_RUNNING: Final = 500
MAX_PAGES: Final = 10
ENDED: Final = (State.COMPLETED, State.FAILED)


async def estimate(client: Client, world: World, run: RunRecord, label: str, counts: dict[State, int]) -> Eta | None:
    """The range in which the run will probably end; None before three jobs have ended, while it is paused, and while no
    live worker can run its jobs."""
    waiting = sum(counts[state] for state in WAITING if state is not State.SUSPENDED)
    if sum(counts[state] for state in ENDED) < MIN_ENDED or run.paused or not (waiting or counts[State.RUNNING]):
        return None
    now = moment(world.wall())
    ended = await latest_ended(client, label)
    running = (await client.find(limit=MAX_RUNNING, run=label, state=State.RUNNING)).jobs
    slots = await _slots(client, run, [*running, *ended][:1], now)
    if not slots or len(ended) < MIN_ENDED:
        return None
    found = predict_end(
        [Ended(_seconds(job.finished_at, now), _ran_for(job)) for job in ended],
        now=0.0,
        running=[max(-_seconds(job.started_at, now), 0.0) for job in running],
        waiting=waiting,
        slots=slots,
        chance=world.chance.random,
        ahead=await _ahead(client, run, label),
    )
    if found is None:
        return None
    low, high = (now + timedelta(seconds=seconds) for seconds in (found.earliest, found.latest))
    return Eta(low=low, mid=low + (high - low) / 2, high=high)


async def latest_ended(client: Client, label: str) -> list[Job]:
    """The jobs of the run that ended last, in the order of their end, as far as they are among the newest. Jobs that
    did not run, because their result was known, say nothing about those that must: they are passed over, up to a few
    pages of them."""
    found: list[Job] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.find(limit=MAX_OBSERVED, cursor=cursor, run=label, state=ENDED)
        ran = [job for job in page.jobs if job.cached_from is None]
        found += [job for job in ran if job.started_at is not None and job.finished_at is not None]
        cursor = page.cursor
        if cursor is None or len(found) >= MIN_ENDED or len(ran) == len(page.jobs):
            break
    return sorted(found, key=lambda job: job.finished_at or job.created_at)


def _seconds(at: datetime | None, now: datetime) -> float:
    return 0.0 if at is None else (at - now).total_seconds()


def _ran_for(job: Job) -> float:
    assert job.started_at is not None
    assert job.finished_at is not None
    return max((job.finished_at - job.started_at).total_seconds(), 0.0)


async def _slots(client: Client, run: RunRecord, sample: list[Job], now: datetime) -> int:
    """How many jobs of the run can run at once: by the live workers, the queue, and the resources that they need."""
    slots = 0
    for worker in await live_workers(client, now):
        if (run.task, run.version) in worker.tasks and run.queue in worker.queues and not worker.stopping:
            slots += (worker.async_jobs if run.task in worker.on_loop else worker.processes) or 1
    settings = await client.queue(run.queue)
    if settings.paused:
        return 0
    if settings.max_running is not None:
        slots = min(slots, settings.max_running)
    for need in sample[0].spec.options.resources if sample else ():
        limit = (await settings_in(client, need.resource)).slots
        if limit is not None:
            slots = min(slots, limit // need.slots)
    return slots


async def _ahead(client: Client, run: RunRecord, label: str) -> int:
    """How many jobs of others are more urgent and wait in the same queue."""
    waiting = (State.QUEUED, State.BLOCKED)
    everybody = await client.tallies(queue=run.queue, state=waiting)
    own = await client.tallies(queue=run.queue, state=waiting, run=label)
    total = sum(tally.n for tally in everybody if tally.priority < run.priority)
    return max(total - sum(tally.n for tally in own if tally.priority < run.priority), 0)
