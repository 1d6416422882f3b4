"""Everything that can keep one job from running, read from the store at one moment."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from daybreak.api.resources import ResourceInfo, info_of
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.client.client import Client
from daybreak.client.duration_stats import execution_of
from daybreak.core.events import Event
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import Job, QueueSettings, State
from daybreak.core.resource_gauge import need_of, spared_resource
from daybreak.core.units import moment
from daybreak.policy.durations import Durations
from daybreak.sqs.deliveries import DeliveryRecord, delivery_of
from daybreak.store.protocol import Position

MAX_HOLDERS: Final = 5  # jobs in the way that are named
_SCANNED: Final = 1000  # running jobs that are looked at to find them


class Situation(Struct, frozen=True, kw_only=True):
    """One job and its surroundings. `running` counts the running jobs of its queue; `ahead` are the waiting jobs of its
    queue by priority, those of its own priority included. `holders` are running jobs that hold the resource it is
    blocked on; `first` are the jobs that are claimed before it, the next one first. `delivery` says which remote worker
    runs the job, if one does. `company` are the queued jobs that may share its call, the next one first."""

    job: Job
    now: datetime
    history: list[Event]
    queue: QueueSettings
    running: int = 0
    ahead: dict[int, int] = {}
    position: Position | None = None
    first: list[Job] = []
    workers: list[WorkerInfo] = []
    resources: dict[str, ResourceInfo] = {}
    holders: list[Job] = []
    durations: Durations | None = None
    delivery: DeliveryRecord | None = None
    company: list[Job] = []

    @property
    def live(self) -> list[WorkerInfo]:
        """The workers that are there, those that stop included."""
        return [worker for worker in self.workers if worker.is_live(self.now)]

    @property
    def task(self) -> tuple[str, int]:
        """The task and version that a worker must know."""
        return self.job.spec.task, self.job.spec.version

    @property
    def knowing(self) -> list[WorkerInfo]:
        """The live workers that know the task."""
        return [worker for worker in self.live if self.task in worker.tasks]

    @property
    def serving(self) -> list[WorkerInfo]:
        """The live workers that know the task and serve the queue."""
        return [worker for worker in self.knowing if not worker.queues or self.job.spec.queue in worker.queues]

    @property
    def able(self) -> list[WorkerInfo]:
        """The workers that can claim the job: they know its task, serve its queue, and do not stop."""
        return [worker for worker in self.serving if not worker.stopping]

    @property
    def runner(self) -> str | None:
        """The id of the worker that runs the job: the remote one, if a dispatcher sent the job to it."""
        return self.job.worker if self.delivery is None else self.delivery.worker

    @property
    def dispatcher(self) -> WorkerInfo | None:
        """The dispatcher that sent the job, while no remote worker has begun it."""
        if self.delivery is not None:
            return None
        return next((one for one in self.workers if one.id == self.job.worker and one.is_dispatcher), None)

    @property
    def dispatchers(self) -> list[WorkerInfo]:
        """The live dispatchers that send jobs of this queue to remote workers."""
        return [one for one in self.live if one.is_dispatcher and self.job.spec.queue in one.queues]

    @property
    def batching(self) -> tuple[int, timedelta] | None:
        """How many jobs of its task a call takes, and how long a call waits that is not full, as the workers that can
        claim it say; None if they run each by itself."""
        for worker in self.able:
            for task, version, size, linger in worker.batches:
                if (task, version) == self.task:
                    return size, timedelta(seconds=linger)
        return None

    def slots_of(self, worker: WorkerInfo) -> int:
        """How many jobs of this kind a worker runs at once."""
        on_loop = self.job.spec.task in worker.on_loop
        return (worker.async_jobs if on_loop else worker.processes) or 0


async def read_situation(client: Client, job_id: str) -> Situation:
    """The situation of a job now. Raises JobNotFound."""
    job = await client.get(job_id)
    history = await client.history(job_id)
    queue = await client.queue(job.spec.queue)
    now = moment(client.wall())
    if job.is_final:
        return Situation(job=job, now=now, history=history, queue=queue)
    running = 0
    ahead: dict[int, int] = {}
    for tally in await client.tallies(queue=job.spec.queue):
        if tally.state is State.RUNNING:
            running += tally.n
        elif tally.state is State.QUEUED and tally.priority <= job.priority and tally.n:
            ahead[tally.priority] = ahead.get(tally.priority, 0) + tally.n
    position = await client.position(job.id)
    return Situation(
        job=job,
        now=now,
        history=history,
        queue=queue,
        running=running,
        ahead=ahead,
        position=position,
        first=await _first(client, job, position),
        workers=await read_workers(client),
        resources=await _resources(client, job),
        holders=await _holders(client, job),
        delivery=await delivery_of(client.store, job),
        company=await _company(client, job),
        durations=(await client.durations.read(execution_of(job.spec)))[0],
    )


async def _first(client: Client, job: Job, position: Position | None) -> list[Job]:
    """The jobs that are claimed next, if there are any before this one."""
    if job.state is not State.QUEUED or position is None or not position.ahead:
        return []
    page = await client.find(queue=job.spec.queue, state=State.QUEUED, limit=min(position.ahead, MAX_HOLDERS))
    return [found for found in page.jobs if found.id != job.id]


async def _company(client: Client, job: Job) -> list[Job]:
    """The queued jobs with its batch key, of a page of its queue."""
    if job.state is not State.QUEUED or job.spec.batch is None:
        return []
    page = await client.find(queue=job.spec.queue, task=job.spec.task, state=State.QUEUED, limit=_SCANNED)
    same = (job.spec.batch, job.spec.version)
    return [found for found in page.jobs if (found.spec.batch, found.spec.version) == same]


async def _resources(client: Client, job: Job) -> dict[str, ResourceInfo]:
    names = {need.resource for need in job.spec.options.resources}
    if job.blocked_on is not None and not is_flight_cause(job.blocked_on):
        names.add(spared_resource(job.blocked_on) or job.blocked_on)
    return {name: await info_of(client, name) for name in sorted(names)}


async def _leader(client: Client, job: Job) -> list[Job]:
    """The job that computes what this one waits for, if it is among those that are looked at."""
    where = {"task": job.spec.task, "queue": job.spec.queue}
    for state in (State.RUNNING, State.QUEUED, State.SCHEDULED, State.BLOCKED):
        page = await client.find(**where, state=state, limit=_SCANNED)
        for found in page.jobs:
            if found.spec.flight == job.spec.flight and found.blocked_on != job.blocked_on:
                return [found]
    return []


async def _holders(client: Client, job: Job) -> list[Job]:
    """Running jobs that hold the resource that this one is blocked on, up to a few; or the job whose result it waits
    for."""
    if job.state is not State.BLOCKED or job.blocked_on is None:
        return []
    if is_flight_cause(job.blocked_on):
        return await _leader(client, job)
    found: list[Job] = []
    cursor, scanned = None, 0
    while scanned < _SCANNED:
        page = await client.find(state=State.RUNNING, limit=500, cursor=cursor)
        scanned += len(page.jobs)
        found += [running for running in page.jobs if need_of(running.spec, job.blocked_on)]
        if len(found) >= MAX_HOLDERS or page.cursor is None:
            break
        cursor = page.cursor
    return found[:MAX_HOLDERS]
