"""The data of the memory store, and the small moves that every transition is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import (
    DEFAULT_QUEUE,
    NO_GATE,
    NO_HEALTH,
    UNFINISHED,
    UNLIMITED,
    Gate,
    Health,
    JobSpec,
    Put,
    QueueSettings,
    Reason,
    Record,
    ResourceSettings,
    State,
)
from daybreak.core.rank import rank_of
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, Gauge
from daybreak.core.units import moment, span
from daybreak.store.protocol import (
    EVENTS_TOPIC,
    REQUEST_KIND,
    SCHEDULE_KIND,
    SCHEDULES_TOPIC,
    asked_worker,
    job_topic,
    work_topic,
    worker_topic,
)
from daybreak.stores.memory.counts import Counts
from daybreak.stores.memory.entry import QUEUED, RUNNING, Entry
from daybreak.stores.memory.ready import Lane, Ready
from daybreak.stores.memory.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Now:
    """The store's wall and steady time, in microseconds."""

    wall: int
    steady: int


@dataclass(slots=True)
class Key:
    """An idempotency key. If its job is purged, the key is spent until the steady time `until`. `at` is the steady time
    of the submit under it."""

    digest: str
    job: str
    at: int
    until: int | None = None


@dataclass(slots=True)
class Book:
    """All data of the store."""

    jobs: dict[int, Entry] = field(default_factory=dict)
    ids: dict[str, Entry] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    uniques: dict[str, Entry] = field(default_factory=dict)
    ready: Ready = field(default_factory=Ready)
    running: dict[int, Entry] = field(default_factory=dict)
    unfinished: Counter[str] = field(default_factory=Counter)
    due: dict[str, Timeline] = field(default_factory=lambda: {"steady": Timeline(), "wall": Timeline()})
    expiring: Timeline = field(default_factory=Timeline)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    queues: dict[str, QueueSettings] = field(default_factory=dict)  # the settings from their records
    feed: list[tuple[int, Event]] = field(default_factory=list)  # steady time, event
    feed_start: int = 0
    seq: int = 0
    revision: int = 0
    topics: set[str] = field(default_factory=set)
    settlement_inserts: list[JobSpec] = field(default_factory=list)
    settlement_puts: list[Put] = field(default_factory=list)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    blocked: dict[str, Ready] = field(default_factory=dict)  # resource -> the jobs that wait for it
    parked: Ready = field(default_factory=Ready)  # all blocked jobs
    freed: set[str] = field(default_factory=set)  # resources to offer before this transaction ends
    totals: dict[tuple[Lane, int], Counts] = field(default_factory=dict)  # by lane and priority
    settled: set[Counts] = field(default_factory=set)  # the totals that this transaction has settled jobs of

    # -- records -------------------------------------------------------------------------------------------------------

    def put(self, put: Put, now: Now) -> Record | None:
        name = (put.kind, put.name)
        there = self.records.get(name)
        if put.expect is not None and put.expect != (there.revision if there else 0):
            return None
        self.revision += 1
        if put.tells:
            self._publish(events.record_event(put, moment(now.wall)), now)
        if put.value is None:
            self.records.pop(name, None)
        else:
            self.records[name] = Record(kind=put.kind, name=put.name, value=put.value, revision=self.revision)
        if put.kind == "queue":
            self.queues[put.name] = _decoded(put.value, QueueSettings, DEFAULT_QUEUE)
            self.topics.add(work_topic(put.name))
        elif put.kind == "resource":
            self.gauge(put.name).set_up(_decoded(put.value, ResourceSettings, UNLIMITED))
            self.freed.add(put.name)
        elif put.kind == "gate":
            gauge = self.gauge(put.name)
            gauge.shut(_decoded(put.value, Gate, NO_GATE), now.steady)
            if gauge.kept is not None and gauge.shut_until:
                # A shut resource must not hold back the slots of others.
                self._release_reservation(self.jobs[gauge.kept.seq])
            self.freed.add(put.name)
        elif put.kind == "health":
            self.gauge(put.name).spare(_decoded(put.value, Health, NO_HEALTH).spare_for, now.steady)
            self.freed.add(RETRY_CAUSE_PREFIX + put.name)
        elif put.kind == REQUEST_KIND and put.value is not None:
            self.topics.add(worker_topic(asked_worker(put.name)))
        elif put.kind == SCHEDULE_KIND:
            self.topics.add(SCHEDULES_TOPIC)
        return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=self.revision)

    def settings(self, queue: str) -> QueueSettings:
        return self.queues.get(queue, DEFAULT_QUEUE)

    def gauge(self, resource: str) -> Gauge:
        return self.gauges.setdefault(resource, Gauge())

    # -- the end of a job
    # -----------------------------------------------------------------------------------------------

    def _finish(
        self,
        entry: Entry,
        state: State,
        now: Now,
        *,
        by: str,
        reason: Reason | None = None,
        note: str = "",
        kind: str | None = None,
        replaced_by: str | None = None,
    ) -> None:
        """End a job without an outcome of its own: cancelled, replaced, expired, shed or refused by a breaker."""
        self._release_offers(entry)
        self._exit(entry)
        entry.state, entry.reason, entry.note = state, reason, note
        self._leave_lease(entry)
        keep = entry.spec.options.keep_failed if state is State.FAILED else entry.spec.options.keep_completed
        self._close(entry, now, keep)
        self._count(entry, state.value if reason is None else f"{state} {reason}")
        changed = {"state": state, "reason": reason, "attempt": entry.attempt}
        self._record(entry, kind or state.value, now, by, **changed, note=note, replaced_by=replaced_by)

    def _close(self, entry: Entry, now: Now, keep_for: timedelta | None) -> None:
        spec = entry.spec
        self.unfinished[spec.queue] -= 1
        self._forget_expiry(entry)
        entry.due = None
        entry.finished = now.wall
        entry.purge_at = None if keep_for is None else now.steady + span(keep_for)
        if spec.unique is not None and self.uniques.get(spec.unique) is entry:
            del self.uniques[spec.unique]
        self.topics.add(job_topic(spec.id))

    def _holder_of(self, spec: JobSpec) -> Entry | None:
        """The job that holds this unique name and is in conflict with the spec."""
        holder = None if spec.unique is None else self.uniques.get(spec.unique)
        if holder is not None and spec.unique_while == "waiting" and holder.state is State.RUNNING:
            return None  # the running job gives up the name
        return holder

    def _leave_lease(self, entry: Entry) -> None:
        if entry.until is not None:
            if self.settings(entry.spec.queue).max_running is not None:
                self.topics.add(work_topic(entry.spec.queue))
            for need in entry.needs:
                self.gauge(need.resource).give(need.slots)
                self.freed.add(need.resource)
        entry.worker = entry.until = entry.call = entry.cancelling = None
        entry.reaped = entry.alone = entry.ahead = entry.suspending = False

    def _rerank(self, entry: Entry, priority: int | None, now: Now, *, by: str) -> None:
        self._release_reservation(entry)
        self._exit(entry)
        before = entry.priority
        entry.priority = before if priority is None else priority
        self._update_rank(entry)
        self._enter(entry)
        if entry.priority != before:
            self._record(entry, "reprioritised", now, by, priority=entry.priority)

    def _update_rank(self, entry: Entry) -> None:
        # By the queue's present discipline: a change of the discipline re-ranks only the jobs that wait at that time.
        entry.rank = rank_of(self.settings(entry.spec.queue), entry.priority, entry.arrived, entry.seq)

    def drop(self, entry: Entry, now: Now, *, keys_for: timedelta | None, lives_on: bool = False) -> None:
        """Delete a job. Its keys are spent until `keys_for` after their submit, or from now if the job `lives_on` in
        another store; None frees them at once."""
        if entry.state in UNFINISHED:
            self._release_offers(entry)
            self._exit(entry)
            self._leave_lease(entry)
            self._forget_expiry(entry)
            self.unfinished[entry.spec.queue] -= 1
        del self.jobs[entry.seq], self.ids[entry.spec.id]
        if entry.spec.unique is not None and self.uniques.get(entry.spec.unique) is entry:
            del self.uniques[entry.spec.unique]
        for name in entry.keys:
            if keys_for is None:
                del self.keys[name]
            else:
                key = self.keys[name]
                key.until = (now.steady if lives_on else key.at) + span(keys_for)

    def _forget_expiry(self, entry: Entry) -> None:
        """Drop the wait limit. It applies only to the wait for the first start."""
        if entry.expires is not None:
            self.expiring.discard(entry.expires, entry.seq)
            entry.expires = None

    @staticmethod
    def _is_overdue(entry: Entry, now: Now) -> bool:
        return entry.expires is not None and entry.expires <= now.steady

    @staticmethod
    def _is_early(entry: Entry, now: Now) -> bool:
        return entry.due is not None and entry.due[1] > (now.wall if entry.due[0] == "wall" else now.steady)

    def _first_state(self, entry: Entry, now: Now) -> State:
        """The state of a job that may start: queued. A job with a holder is blocked instead, and its resource is
        offered before this transaction ends."""
        if entry.spec.holder is None:
            return State.QUEUED
        entry.blocked_on = entry.needs[0].resource
        entry.blocked_since = entry.blocked_since or now.steady
        self.freed.add(entry.blocked_on)
        return State.BLOCKED

    # -- the small moves -----------------------------------------------------------------------------------------------

    def _enter(self, entry: Entry) -> None:
        state = entry.state
        if state is QUEUED:
            self.ready.add(entry.lane, entry.rank)
            self.topics.add(work_topic(entry.spec.queue))
        elif state is RUNNING:
            self.running[entry.seq] = entry
        elif state is State.SCHEDULED:
            assert entry.due is not None
            self.due[entry.due[0]].add(entry.due[1], entry.seq)
            self.topics.add(work_topic(entry.spec.queue))  # an idle worker must compute its sleep again
        elif state is State.BLOCKED:
            assert entry.blocked_on is not None
            self.blocked.setdefault(entry.blocked_on, Ready()).add(entry.lane, entry.rank)
            self.parked.add(entry.lane, entry.rank)

    def _exit(self, entry: Entry) -> None:
        state = entry.state
        if state is QUEUED:
            self.ready.discard(entry.lane, entry.rank)
        elif state is RUNNING:
            del self.running[entry.seq]
        elif state is State.SCHEDULED:
            assert entry.due is not None
            self.due[entry.due[0]].discard(entry.due[1], entry.seq)
        elif state is State.BLOCKED:
            assert entry.blocked_on is not None
            self.blocked[entry.blocked_on].discard(entry.lane, entry.rank)
            self.parked.discard(entry.lane, entry.rank)

    def _release_offers(self, entry: Entry) -> None:
        """Offer the resources that a queued job could have taken to the next waiting jobs."""
        self._release_reservation(entry)
        if entry.state is State.QUEUED:
            self.freed.update(need.resource for need in entry.needs)
            if entry.attempt:
                self.freed.update(RETRY_CAUSE_PREFIX + need.resource for need in entry.needs)

    def _release_reservation(self, entry: Entry) -> None:
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            if gauge.kept is not None and gauge.kept.seq == entry.seq:
                gauge.kept = None
                self.freed.add(need.resource)

    def _count(self, entry: Entry, what: str, n: int = 1, took: int = 0) -> None:
        self._counts(entry).add(what, n, took)

    def _counts(self, entry: Entry) -> Counts:
        cell = (entry.lane, entry.priority)
        counts = self.totals.get(cell)
        if counts is None:
            counts = self.totals[cell] = Counts()
        return counts

    def _record(self, entry: Entry, kind: str, now: Now, by: str, **changed: object) -> None:
        event = Event(n=entry.n + 1, kind=kind, job=entry.spec.id, at=moment(now.wall), by=by, **changed)  # type: ignore[arg-type]
        self._record_event(entry, event, now)

    def _record_event(self, entry: Entry, event: Event, now: Now) -> None:
        entry.n = event.n
        entry.history.append(event)
        entry.history = events.shorten_history(entry.history)
        self._publish(event, now)

    def _publish(self, event: Event, now: Now) -> None:
        self.feed.append((now.steady, event))
        self.topics.add(EVENTS_TOPIC)


def due_at(entry: Entry) -> datetime | None:
    return moment(entry.due[1]) if entry.due and entry.state is State.SCHEDULED else None


def check(puts: Iterable[Put]) -> None:
    """Refuse bad records before anything is written: an error half-way would leave half an operation behind."""
    for put in puts:
        if put.tells and put.tells not in events.KINDS:
            raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is not a kind of event")
        if put.value is not None and (kind := _KINDS.get(put.kind)) is not None:
            try:
                msgspec.json.decode(put.value, type=kind)
            except msgspec.DecodeError as error:
                raise BadInput(f"{put.kind} {put.name!r}: not valid {put.kind} settings: {error}") from None


_KINDS = {"queue": QueueSettings, "resource": ResourceSettings, "gate": Gate, "health": Health}

T = TypeVar("T")


def _decoded(value: bytes | None, kind: type[T], otherwise: T) -> T:
    return otherwise if value is None else msgspec.json.decode(value, type=kind)
