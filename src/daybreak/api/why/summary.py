"""Counts what all waiting jobs wait for, from the counters of the store: no job is read."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from msgspec import Struct

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.resources import ResourceInfo, all_resources
from daybreak.api.why.causes import worker_words
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.units import moment
from daybreak.policy.resources import LOCK_PREFIX
from daybreak.store.protocol import Tally


class CauseCount(Struct, frozen=True, kw_only=True):
    """So many waiting jobs, `n`, have one cause. `command` are the words of the `daybreak` command that removes it, or
    that lists the jobs."""

    kind: str
    subject: str
    n: int
    command: tuple[str, ...] = ()

    @property
    def command_line(self) -> str:
        """The command as one would type it."""
        return " ".join(("daybreak", *self.command)) if self.command else ""


async def summarise(client: Client) -> list[CauseCount]:
    """The causes of all waiting jobs, the most frequent first."""
    now = moment(client.wall())
    workers = [worker for worker in await read_workers(client) if worker.is_live(now)]
    queues = {queue.name: queue for queue in await read_queues(client)}
    counts: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    for tally in await client.tallies():
        if not tally.n:
            continue
        match tally.state:
            case State.QUEUED:
                counts[_queued(tally, queues.get(tally.queue), workers)] += tally.n
            case State.SCHEDULED:
                listing = ("jobs", "--state", "scheduled", "--queue", tally.queue)
                counts["scheduled", tally.queue, listing] += tally.n
            case State.SUSPENDED:
                listing = ("jobs", "--state", "suspended", "--queue", tally.queue)
                counts["suspended", tally.queue, listing] += tally.n
            case _:
                pass
    for resource in await all_resources(client):
        if resource.waiting:
            counts[_blocked(resource, now)] += resource.waiting
        if resource.retries_waiting:
            reset = ("resources", "reset", resource.name)
            counts["retry budget", resource.name, reset] += resource.retries_waiting
    return [
        CauseCount(kind=kind, subject=subject, command=command, n=n)
        for (kind, subject, command), n in counts.most_common()
    ]


def _queued(tally: Tally, queue: QueueInfo | None, workers: list[WorkerInfo]) -> tuple[str, str, tuple[str, ...]]:
    if queue is not None and queue.settings.paused:
        return "paused", tally.queue, ("queues", "resume", tally.queue)
    if not workers:
        return "no worker", tally.queue, worker_words(tally.task, tally.queue)
    via = next((one.via for one in workers if one.is_dispatcher and tally.queue in one.queues), "")
    knowing = [worker for worker in workers if (tally.task, tally.version) in worker.tasks]
    if not knowing:
        start = worker_words(tally.task, tally.queue, via=via)
        return "unknown task", f"{tally.task} version {tally.version}", start
    serving = [worker for worker in knowing if not worker.queues or tally.queue in worker.queues]
    target = next((worker.app for worker in knowing if worker.app), "TARGET")
    if not serving:
        return "unserved queue", tally.queue, worker_words(tally.task, tally.queue, target, is_unserved=True)
    if all(worker.stopping for worker in serving):
        return "draining", tally.queue, worker_words(tally.task, tally.queue, target, via=via)
    if queue is not None and queue.settings.max_running is not None:
        running = queue.states.get(State.RUNNING, 0)
        if running >= queue.settings.max_running:
            return "max_running", tally.queue, ("queues", "set", tally.queue, f"max_running={running + 1}")
    return "behind others", tally.queue, ("jobs", "--state", "queued", "--queue", tally.queue)


def _blocked(resource: ResourceInfo, now: datetime) -> tuple[str, str, tuple[str, ...]]:
    name = resource.name
    if name.startswith(LOCK_PREFIX):
        return "lock", name.removeprefix(LOCK_PREFIX), ("locks",)
    if resource.breaker == "open" and resource.shut_until is not None and resource.shut_until > now:
        return "breaker", name, ("resources", "reset", name)
    if resource.slots is not None and resource.used >= resource.slots:
        return "resource", name, ("resources", "set", name, f"slots={resource.used + 1}")
    if resource.rate:
        return "rate", name, ("resources", "set", name, "rate=none")
    return "resource", name, ("resources", "show", name)
