"""The data of the memory store: jobs, their indexes, and everything else that transactions read and write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from daybreak.core.events import Event
from daybreak.core.model import QueueSettings, Record, State
from daybreak.core.resource_gauge import Gauge
from daybreak.stores.kernel.port import FlightEntry
from daybreak.stores.kernel.row import STEADY, WALL, LaneName, Place, Row
from daybreak.stores.kernel.totals import Counter as Total
from daybreak.stores.memory.ready import Ranks, Ready
from daybreak.stores.memory.timeline import Timeline


@dataclass(slots=True)
class Key:
    """An idempotency key. Once its job is deleted, the key is spent until the steady time `until`. `at` is the steady
    time of the submit under it."""

    digest: str
    job: str
    at: int
    until: int | None = None


@dataclass(slots=True)
class Book:
    """All data of the store. `blocked` has the jobs that wait for each cause, and `parked` all of them. `rooms` has how
    many results a task keeps, and their bytes; `last_entry` is the number of the latest entry. `company` has the
    jobs that a batch call may take along, by lane and batch key."""

    jobs: dict[int, Row] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    keys_of_job: dict[str, list[str]] = field(default_factory=dict)
    uniques: dict[str, int] = field(default_factory=dict)
    ready: Ready = field(default_factory=Ready)
    blocked: dict[str, Ready] = field(default_factory=dict)
    parked: Ready = field(default_factory=Ready)
    running: set[int] = field(default_factory=set)
    company: dict[tuple[LaneName, str], Ranks] = field(default_factory=dict)
    due: dict[int, Timeline] = field(default_factory=lambda: {STEADY: Timeline(), WALL: Timeline()})
    expiring: Timeline = field(default_factory=Timeline)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    feed: list[tuple[int, Event]] = field(default_factory=list)  # steady time, event
    feed_start: int = 0
    seq: int = 0
    revision: int = 0
    flights: dict[str, int] = field(default_factory=dict)
    entries: dict[int, FlightEntry] = field(default_factory=dict)
    landing: set[int] = field(default_factory=set)
    rooms: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_entry: int = 0
    tallies: Counter[tuple[LaneName, int, State]] = field(default_factory=Counter)
    totals: dict[tuple[LaneName, int], dict[str, Total]] = field(default_factory=dict)

    def place(self, row: Row, place: Place) -> None:
        """Enter a job into the indexes of its place."""
        match place.state:
            case State.QUEUED:
                self.ready.add(row.name, row.rank)
            case State.RUNNING:
                self.running.add(row.seq)
            case State.SCHEDULED:
                assert place.clock is not None
                assert place.due is not None
                self.due[place.clock].add(place.due, row.seq)
            case State.BLOCKED:
                self.blocked.setdefault(place.cause or "", Ready()).add(row.name, row.rank)
                self.parked.add(row.name, row.rank)
        if place.expires is not None:
            self.expiring.add(place.expires, row.seq)
        if (batch := row.company_at(place)) is not None:
            self.company.setdefault((row.name, batch), Ranks()).add(row.rank)

    def displace(self, row: Row, place: Place) -> None:
        """Remove a job from the indexes of the place where it was."""
        rank = row.rank._replace(band=place.band, order=place.ord)
        match place.state:
            case State.QUEUED:
                self.ready.discard(row.name, rank)
            case State.RUNNING:
                self.running.discard(row.seq)
            case State.SCHEDULED:
                assert place.clock is not None
                assert place.due is not None
                self.due[place.clock].discard(place.due, row.seq)
            case State.BLOCKED:
                waiting = self.blocked[place.cause or ""]
                waiting.discard(row.name, rank)
                if not len(waiting):
                    del self.blocked[place.cause or ""]
                self.parked.discard(row.name, rank)
        if place.expires is not None:
            self.expiring.discard(place.expires, row.seq)
        if (batch := row.company_at(place)) is not None:
            company = self.company[row.name, batch]
            company.discard(rank)
            if not len(company):
                del self.company[row.name, batch]

    def waiting(self, cause: str) -> int:
        """How many jobs are blocked on this."""
        return len(self.blocked.get(cause, ()))
