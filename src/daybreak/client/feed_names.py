"""The task, queue, run and owner of events: only `submitted` carries them, later events of a job do not."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.events import Event
from daybreak.store.protocol import Store

MAX_REMEMBERED_JOBS: Final = 20_000


class JobNames(Struct, frozen=True, gc=False):
    """What an event says of its job beyond the id."""

    task: str
    queue: str
    run: str | None = None
    owner: str | None = None


class FeedNames:
    """Remembers the names of the jobs seen last, so that following the feed costs few reads of the store."""

    def __init__(self, max_jobs: int = MAX_REMEMBERED_JOBS) -> None:
        self._max_jobs = max_jobs
        self._names: OrderedDict[str, JobNames] = OrderedDict()

    async def fill(self, store: Store, events: list[Event]) -> list[Event]:
        """The events with the names of their jobs, where the job is known or still in the store."""
        for event in events:
            if event.kind == "submitted" and event.task is not None and event.queue is not None:
                self._remember(event.job, JobNames(event.task, event.queue, event.run, event.owner))
        unknown = list(
            dict.fromkeys(
                event.job for event in events if event.job and event.task is None and event.job not in self._names
            )
        )
        if unknown:
            for job in await store.get(unknown):
                if job is not None:
                    spec = job.spec
                    self._remember(job.id, JobNames(spec.task, spec.queue, spec.run, spec.owner))
        return [self._named(event) for event in events]

    def _named(self, event: Event) -> Event:
        names = self._names.get(event.job)
        if names is None:
            return event
        return msgspec.structs.replace(event, task=names.task, queue=names.queue, run=names.run, owner=names.owner)

    def _remember(self, job: str, names: JobNames) -> None:
        self._names[job] = names
        self._names.move_to_end(job)
        while len(self._names) > self._max_jobs:
            self._names.popitem(last=False)


async def with_names(store: Store, events: list[Event]) -> list[Event]:
    """The events with the names of their jobs, without remembering them for later events."""
    return await FeedNames(max_jobs=max(len(events), 1)).fill(store, events)
