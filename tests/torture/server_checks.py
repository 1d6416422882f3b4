"""Checks what the store and the tasks recorded about their jobs at the end of a test, whatever happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from server_processes import name_in
from worker_processes import read_lines

from daybreak.core.events import Event, fold
from daybreak.core.model import Job, State
from daybreak.store.protocol import Store
from daybreak.stores import store_for
from daybreak.testing.contract.builders import folded, jobs_of

LOOKED_UP = 500  # jobs whose history is compared with the feed: each is a question of its own


@dataclass
class Seen:
    """What became of all jobs: what the store says of each, its events in the feed, how often its work began."""

    jobs: dict[str, Job]
    events: dict[str, list[Event]]
    begun: Counter[str]

    def only(self, jobs: Iterable[str]) -> Seen:
        """The same of these alone."""
        chosen = set(jobs)
        return Seen(
            {job: found for job, found in self.jobs.items() if job in chosen},
            {job: events for job, events in self.events.items() if job in chosen},
            Counter({job: n for job, n in self.begun.items() if job in chosen}),
        )

    @property
    def taken_over(self) -> int:
        return sum(event.kind == "lease_expired" for events in self.events.values() for event in events)

    @property
    def charged(self) -> list[str]:
        return [job for job, found in self.jobs.items() if found.attempt != 1]

    def assert_uncharged(self) -> None:
        """Nobody died, so nobody was taken for dead, and no work was done twice."""
        charged = [story_of(self.events[job]) for job in self.charged]
        assert not charged, f"{len(charged)} jobs were charged: {charged[:3]}"
        assert self.taken_over == 0, [story_of(self.events[job]) for job in self.orphans][:3]
        assert set(self.begun.values()) == {1}, f"{max(self.begun.values())} times the same work"

    @property
    def orphans(self) -> list[str]:
        return [job for job, events in self.events.items() if any(event.kind == "lease_expired" for event in events)]

    @property
    def holders(self) -> Counter[str]:
        """Who started how many."""
        told = (event for events in self.events.values() for event in events)
        return Counter(name_of(event) for event in told if event.kind == "started")

    def waits(self, deaths: dict[str, datetime]) -> dict[str, float]:
        """For each job that a dead worker held when it died: how long, at most, until it was started again."""
        found = {job: list(orphaned(events, deaths)) for job, events in self.events.items()}
        return {job: max(waits) for job, waits in found.items() if waits}


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await store_for(url).open()
    try:
        yield store
    finally:
        await store.close()


async def look_back(url: str, jobs: Iterable[str]) -> Seen:
    """All of these are there and nothing else is; each is completed, once, by the lease that was settled."""
    async with opened(url) as store:
        found = {job.id: job for job in await jobs_of(store, 500)}
        events = await all_events(store)
        kept = await histories(store, list(found)[:LOOKED_UP])
        recount = Counter((job.spec.queue, job.spec.task, job.priority, job.state) for job in found.values())
        assert {(t.queue, t.task, t.priority, t.state): t.n for t in await store.count()} == recount
    assert not set(jobs) - found.keys(), f"{len(set(jobs) - found.keys())} jobs are lost"
    assert not found.keys() - set(jobs), f"{len(found.keys() - set(jobs))} jobs are there that nobody was told of"
    lines = read_lines()
    leases = Counter((line["job"], line["fence"]) for line in lines if line["word"] == "began")
    did = {(line["job"], line["fence"]) for line in lines if line["word"] == "did"}
    assert max(leases.values()) == 1, "one lease was begun twice"
    for job in found.values():
        told = events[job.id]
        assert job.state is State.COMPLETED, f"{job.id} is {job.state} ({job.reason}): {story_of(told)}"
        assert sum(event.kind == "completed" for event in told) == 1, story_of(told)
        assert int(job.result or b"0") == job.fence, "the result is not of the lease that was settled"
        assert (job.id, job.fence) in did, "a result without its effect"
        assert kept.get(job.id, told) == told, f"feed: {story_of(told)}; history: {story_of(kept[job.id])}"
        assert fold(told) == folded(job)
        assert_in_order(told)
    return Seen(found, events, Counter(job for job, _ in leases))


def assert_in_order(events: list[Event]) -> None:
    """Numbers without a gap, fences that only rise, and one attempt for each start that was not handed back."""
    assert [event.n for event in events] == list(range(1, len(events) + 1)), story_of(events)
    fences = [event.fence for event in events if event.fence is not None]
    assert all(before < after for before, after in pairwise(fences)), f"fences {fences}: {story_of(events)}"
    attempt = 0
    for event in events:
        if event.kind == "started":
            assert event.attempt == attempt + 1, story_of(events)
        attempt = attempt if event.attempt is None else event.attempt


async def histories(store: Store, jobs: Iterable[str]) -> dict[str, list[Event]]:
    return dict(zip(jobs, await asyncio.gather(*(store.history(job) for job in jobs)), strict=True))


async def all_events(store: Store) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    cursor = None
    while (feed := await store.events(cursor, limit=5000)).events:
        for event in feed.events:
            found[event.job].append(event)
        cursor = feed.cursor
    return found


def orphaned(events: list[Event], deaths: dict[str, datetime]) -> Iterator[float]:
    for n, event in enumerate(events):
        died_at = deaths.get(name_of(event)) if event.kind == "started" else None
        if died_at is not None and n + 1 < len(events) and events[n + 1].kind == "lease_expired":
            again = next(later for later in events[n + 1 :] if later.kind == "started")
            yield (again.at - max(died_at, event.at)).total_seconds()


def name_of(event: Event) -> str:
    return name_in(event.by)


def story_of(events: list[Event]) -> str:
    return "; ".join(f"{event.at:%M:%S.%f} {event.kind} by {name_of(event)}" for event in events)
