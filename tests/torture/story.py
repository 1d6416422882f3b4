"""Retells the event feed and checks on the way what must hold of it, whoever was killed or stopped meanwhile.

The feed is in commit order, so it is judged without any tolerance: every claim took the head of its queue, no queue ran
more than it may, fences only rose, numbers have no gap, and what was final stayed so."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from daybreak.core.events import Event
from daybreak.core.model import FINAL, State
from daybreak.store.protocol import Store


@dataclass
class Life:
    job: str
    queue: str
    rank: tuple[int, int]
    state: State
    n: int = 1
    fence: int = 0
    holder: str = ""
    since: datetime | None = None
    settled: Counter[int] = field(default_factory=Counter)


@dataclass
class Handover:
    """A lease that someone held and that was then taken over."""

    job: str
    fence: int
    holder: str
    since: datetime
    until: datetime


@dataclass
class Story:
    limits: dict[str, int] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    ready: dict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    running: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    handovers: list[Handover] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        self.kinds[event.kind] += 1
        if event.kind == "progress" or not event.job:  # the event of a record or queue belongs to no job
            return
        if event.kind == "submitted":
            self._submitted(event)
            return
        life = self.lives[event.job]
        assert event.n == life.n + 1, f"gap in the events of {event.job}: {event.n} follows {life.n}"
        assert life.state not in FINAL, f"{event.kind} after {life.state} of {event.job}"
        life.n = event.n
        if event.fence is not None:
            assert event.fence > life.fence, f"fence of {event.job} went from {life.fence} to {event.fence}"
        before = life.state
        if event.kind == "started":
            self._started(life, event)
        elif event.kind == "lease_expired":
            assert before is State.RUNNING, f"{event.job} was taken over while {before}"
            self._handed_over(life, event)
        elif before is State.RUNNING and event.state is not None:
            self._settled(life, event)
        if event.fence is not None:
            life.fence = event.fence
        if event.state is not None:
            life.state = event.state
            if event.state is State.QUEUED:
                heapq.heappush(self.ready[life.queue], (*life.rank, life.job))

    def _submitted(self, event: Event) -> None:
        assert event.job not in self.lives, f"{event.job} was submitted twice"
        rank = (event.priority or 0, len(self.lives))
        life = Life(event.job, event.queue or "", rank, event.state or State.QUEUED)
        self.lives[event.job] = life
        if life.state is State.QUEUED:
            heapq.heappush(self.ready[life.queue], (*rank, life.job))

    def _started(self, life: Life, event: Event) -> None:
        waiting = self.ready[life.queue]
        assert waiting, f"{event.job} was claimed while {life.state}"
        best = heapq.heappop(waiting)
        assert best[2] == event.job, f"{event.job} {life.rank} was claimed before {best}, which stood ahead of it"
        self.running[life.queue] += 1
        self.most[life.queue] = max(self.most[life.queue], self.running[life.queue])
        limit = self.limits.get(life.queue)
        assert limit is None or self.running[life.queue] <= limit, f"{self.running[life.queue]} run in {life.queue}"
        life.holder, life.since = event.by, event.at
        self.started[event.by] += 1

    def _handed_over(self, life: Life, event: Event) -> None:
        assert life.since is not None
        self.handovers.append(Handover(life.job, life.fence, life.holder, life.since, event.at))
        life.holder, life.since = event.by, event.at

    def _settled(self, life: Life, event: Event) -> None:
        self.running[life.queue] -= 1
        life.settled[life.fence] += 1
        assert life.settled[life.fence] == 1, f"two settlements of {event.job} under fence {life.fence}"
        assert event.by == life.holder, f"{event.by} settled {event.job}, held by {life.holder}"


async def retell(store: Store, limits: dict[str, int] | None = None) -> Story:
    """The whole feed, from the oldest event."""
    story = Story(limits=limits or {})
    cursor = None
    while True:
        feed = await store.events(cursor, limit=5000)
        for event in feed.events:
            story.add(event)
        if not feed.events:
            return story
        cursor = feed.cursor
