"""What holds of jobs: every transition, written out plainly. Other stores repeat this in their own tongue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from daybreak import events
from daybreak.errors import BadInput
from daybreak.events import Event
from daybreak.model import (
    DEFAULT_QUEUE,
    FINAL,
    UNFINISHED,
    WAITING,
    JobSpec,
    Put,
    QueueSettings,
    Reason,
    Record,
    Settlement,
    State,
)
from daybreak.rank import place, turn, urgency
from daybreak.store import (
    EVENTS_TOPIC,
    PROMOTED_PER_CLAIM,
    Amend,
    Amendment,
    Beat,
    Claim,
    Extended,
    Inserted,
    Reap,
    Verdict,
    job_topic,
    work_topic,
    worker_topic,
)
from daybreak.stores.memory.entry import Entry
from daybreak.stores.memory.ready import Ready
from daybreak.stores.memory.timeline import Timeline
from daybreak.units import moment, span


@dataclass(frozen=True, slots=True)
class Now:
    """The two hands of the store's clock, in microseconds."""

    wall: int
    steady: int


@dataclass(slots=True)
class Key:
    """An idempotency key outlives its job; `dropped` is when the job went."""

    digest: str
    job: str
    dropped: int | None = None


@dataclass(slots=True)
class Ledger:
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
    feed: list[tuple[int, Event]] = field(default_factory=list)  # by steady time
    feed_start: int = 0
    seq: int = 0
    revision: int = 0
    topics: set[str] = field(default_factory=set)
    following_inserts: list[JobSpec] = field(default_factory=list)
    following_puts: list[Put] = field(default_factory=list)

    # -- insert --------------------------------------------------------------------------------------------------------

    def insert(self, spec: JobSpec, now: Now, *, bounded: bool = True) -> Inserted:
        if known := self.ids.get(spec.id):
            return Inserted(Verdict.DUPLICATE, spec.id, known.seq, known.state, "id")
        if spec.key is not None and (key := self.keys.get(spec.key)):
            same = Verdict.DUPLICATE if key.digest == spec.digest else Verdict.CONFLICT
            there = self.ids.get(key.job)
            return Inserted(same, key.job, there.seq if there else 0, there.state if there else None, "key")
        holder = self.uniques.get(spec.unique) if spec.unique is not None else None
        replaces = holder is not None and spec.on_conflict == "replace" and holder.state is not State.RUNNING
        if holder and not replaces:
            return self._defer_to(holder, spec, now)
        settings = self.settings(spec.queue)
        freed = 1 if holder and holder.spec.queue == spec.queue else 0
        if bounded and settings.capacity is not None and self.unfinished[spec.queue] - freed >= settings.capacity:
            return Inserted(Verdict.FULL, spec.id)
        if holder:
            self._finish(holder, State.CANCELLED, now, by=spec.by, note="replaced")
        entry = self._accept(spec, settings, now)
        return Inserted(Verdict.NEW, spec.id, entry.seq, entry.state)

    def _defer_to(self, holder: Entry, spec: JobSpec, now: Now) -> Inserted:
        if spec.on_conflict == "refuse":
            return Inserted(Verdict.CONFLICT, holder.spec.id, holder.seq, holder.state, "unique")
        if spec.on_conflict == "raise" and spec.priority < holder.priority and holder.state in WAITING:
            self._rerank(holder, spec.priority, now, by=spec.by)
        if spec.key is not None:  # the holder answers for this key from now on, also when it has ended
            self._know_key(spec, holder)
        return Inserted(Verdict.DUPLICATE, holder.spec.id, holder.seq, holder.state, "unique")

    def _accept(self, spec: JobSpec, settings: QueueSettings, now: Now) -> Entry:
        self.seq += 1
        entry = Entry(
            spec=spec,
            seq=self.seq,
            state=State.QUEUED,
            rank=place(settings, spec.priority, now.steady, self.seq),
            priority=spec.priority,
            created=now.wall,
            arrived=now.steady,
            fence=spec.fence,
        )
        if spec.run_at is not None:
            entry.due = ("wall", span(spec.run_at - moment(0)))
        elif spec.delay is not None:
            entry.due = ("steady", now.steady + span(spec.delay))
        if spec.options.expires_in is not None:
            entry.expires = now.steady + span(spec.options.expires_in)
            self.expiring.add(entry.expires, entry.seq)
        if self._is_early(entry, now):
            entry.state = State.SCHEDULED
        else:
            entry.due = None
        self.jobs[entry.seq] = self.ids[spec.id] = entry
        if spec.key is not None:
            self._know_key(spec, entry)
        if spec.unique is not None:
            self.uniques[spec.unique] = entry
        self.unfinished[spec.queue] += 1
        self._enter(entry)
        self._tell(entry, events.submitted(spec, entry.state, moment(now.wall), _due_at(entry)), now)
        return entry

    def _know_key(self, spec: JobSpec, entry: Entry) -> None:
        assert spec.key is not None
        self.keys[spec.key] = Key(spec.digest, entry.spec.id)
        entry.keys.append(spec.key)

    # -- settle --------------------------------------------------------------------------------------------------------

    def settle(self, settlement: Settlement, now: Now) -> bool:
        entry = self.jobs.get(settlement.seq)
        if entry is None or entry.fence != settlement.fence:
            return False
        if entry.state is not State.RUNNING:
            return True  # this very fence ended before: the reply was lost, the work was not
        if entry.cancelling is not None:
            # Whoever was told that a running job is being cancelled never sees it complete or run again.
            entry.attempt = settlement.attempt
            self._finish(entry, State.CANCELLED, now, by=entry.cancelling)
            return True
        if entry.suspending and settlement.state in (State.QUEUED, State.SCHEDULED):
            settlement = msgspec.structs.replace(settlement, state=State.SUSPENDED, delay=None)
        self._write(entry, settlement, now)
        self.following_inserts += settlement.inserts
        self.following_puts += settlement.puts
        return True

    def follow(self, now: Now) -> None:
        """What the settlements of a transaction bring with them, once all of them are written."""
        for spec in self.following_inserts:  # part of an accepted settlement: a full queue does not refuse them
            self.insert(spec, now, bounded=False)
        for put in self.following_puts:
            self.put(put)
        self.following_inserts, self.following_puts = [], []

    def _write(self, entry: Entry, settlement: Settlement, now: Now) -> None:
        self._exit(entry)
        entry.attempt, entry.lost, entry.timeouts = settlement.attempt, settlement.lost, settlement.timeouts
        if settlement.checkpoint is not None:
            entry.checkpoint = settlement.checkpoint
        if settlement.failure is not None:
            entry.failure = settlement.failure
        entry.note = settlement.note
        if settlement.delay is not None:
            entry.due = ("steady", now.steady + span(settlement.delay))
        entry.state, entry.reason = settlement.state, settlement.reason
        if settlement.state is State.COMPLETED:
            entry.result, entry.failure, entry.checkpoint = settlement.result, None, None
        self._leave_lease(entry)
        if settlement.state in FINAL:
            self._close(entry, now, settlement.keep_for)
        else:
            self._place(entry)
            self._enter(entry)
        self._tell(entry, events.settled(settlement, entry.n + 1, moment(now.wall), _due_at(entry)), now)

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
    ) -> None:
        """End a job without an outcome of its own: cancelled, replaced or expired."""
        self._exit(entry)
        entry.state, entry.reason, entry.note = state, reason, note
        self._leave_lease(entry)
        keep = entry.spec.options.keep_failed if state is State.FAILED else entry.spec.options.keep_completed
        self._close(entry, now, keep)
        self._change(entry, kind or state.value, now, by, state=state, reason=reason, note=note, attempt=entry.attempt)

    def _close(self, entry: Entry, now: Now, keep_for: timedelta | None) -> None:
        self.unfinished[entry.spec.queue] -= 1
        self._forget_expiry(entry)
        entry.due = None
        entry.finished = now.wall
        entry.purge_at = None if keep_for is None else now.steady + span(keep_for)
        if entry.spec.unique is not None and self.uniques.get(entry.spec.unique) is entry:
            del self.uniques[entry.spec.unique]
        self.topics.add(job_topic(entry.spec.id))

    def _leave_lease(self, entry: Entry) -> None:
        if entry.until is not None and self.settings(entry.spec.queue).max_running is not None:
            self.topics.add(work_topic(entry.spec.queue))
        entry.worker = entry.until = entry.call = entry.cancelling = None
        entry.reaped = entry.suspending = False

    # -- claim ---------------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, now: Now) -> tuple[list[Entry], bool]:
        """The most urgent jobs that the claimant may have, leased; and whether more may be there at once."""
        due, expired = self.promote(PROMOTED_PER_CLAIM, now), 0
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        room = {queue: self._room(queue) for queue in claim.queues}
        taken: list[Entry] = []
        while len(taken) < claim.limit and expired < PROMOTED_PER_CLAIM:
            head = self._next(claim, room, served, now)
            if head is None:
                return taken, due == PROMOTED_PER_CLAIM
            queue = head.spec.queue
            if self._is_overdue(head, now):
                self._expire(head, now)
                expired += 1
                continue
            self._lease(head, claim, now)
            taken.append(head)
            room[queue] -= 1
            served[queue] += 1
        return taken, True

    def _next(self, claim: Claim, room: dict[str, float], served: dict[str, int], now: Now) -> Entry | None:
        best: tuple[tuple[int, int, int], Entry] | None = None
        for index, queue in enumerate(claim.queues):
            if room[queue] < 1 or (rank := self.ready.head(queue, claim.tasks)) is None:
                continue
            entry, settings = self.jobs[rank.seq], self.settings(queue)
            key = (
                urgency(settings, entry.priority, rank.order, now.steady),
                turn(served[queue], settings.weight),
                index,
            )
            if best is None or key < best[0]:
                best = (key, entry)
        return best[1] if best else None

    def _room(self, queue: str) -> float:
        settings = self.settings(queue)
        if settings.paused:
            return 0
        if settings.max_running is None:
            return float("inf")
        return settings.max_running - sum(1 for e in self.running.values() if e.spec.queue == queue)

    def _lease(self, entry: Entry, claim: Claim, now: Now) -> None:
        self._exit(entry)
        entry.state, entry.due, entry.note = State.RUNNING, None, ""
        self._enter(entry)
        self._forget_expiry(entry)
        entry.attempt += 1
        entry.fence += 1
        entry.worker, entry.call = claim.worker, claim.call
        entry.term = span(claim.lease_for)
        entry.until = now.steady + entry.term
        entry.started = now.wall
        entry.progress, entry.message = None, ""
        self._change(entry, "started", now, claim.worker, state=State.RUNNING, attempt=entry.attempt, fence=entry.fence)

    # -- while it runs -------------------------------------------------------------------------------------------------

    def extend(self, beat: Beat, now: Now) -> Extended:
        entry = self.jobs.get(beat.seq)
        if entry is None or entry.state is not State.RUNNING or entry.fence != beat.fence:
            return Extended(held=False)
        entry.term = span(beat.lease_for)
        entry.until = now.steady + entry.term
        if beat.checkpoint is not None:
            entry.checkpoint = beat.checkpoint
        if beat.progress is not None:
            entry.progress, entry.message = beat.progress, beat.message
            self._publish(
                Event(
                    n=entry.n, kind="progress", job=entry.spec.id, at=moment(now.wall), by=entry.worker or "",
                    progress=beat.progress, note=entry.message,
                ),
                now,
            )  # fmt: skip
        return Extended(held=True, cancel=entry.cancelling is not None, suspend=entry.suspending)

    def reap(self, reap: Reap, now: Now) -> list[Entry]:
        watched = span(reap.watched_for)
        lapsed = [
            entry
            for entry in self.running.values()
            if entry.until is not None and entry.until <= now.steady and entry.term <= watched
        ]
        lapsed.sort(key=lambda entry: (entry.until, entry.seq))
        for entry in lapsed[: reap.limit]:
            entry.fence += 1
            entry.worker, entry.call, entry.reaped = reap.worker, None, True
            entry.term = span(reap.lease_for)
            entry.until = now.steady + entry.term
            self._change(entry, "lease_expired", now, reap.worker, fence=entry.fence)
        return lapsed[: reap.limit]

    # -- time ----------------------------------------------------------------------------------------------------------

    def promote(self, limit: int, now: Now) -> int:
        """Queue what is due; a bounded number, so that a million due at once is no giant transaction."""
        due = self.due["steady"].until(now.steady, limit)
        due += self.due["wall"].until(now.wall, limit - len(due))
        for entry in map(self.jobs.__getitem__, due):
            self._exit(entry)
            entry.state, entry.due = State.QUEUED, None
            self._enter(entry)
            self._change(entry, "due", now, "", state=State.QUEUED)
        return len(due)

    def expire(self, limit: int, now: Now) -> int:
        overdue = self.expiring.until(now.steady, limit)
        for entry in map(self.jobs.__getitem__, overdue):
            self._expire(entry, now)
        return len(overdue)

    def next_in(self, now: Now) -> timedelta | None:
        firsts = ((self.due["steady"].first(), now.steady), (self.due["wall"].first(), now.wall))
        delays = [first - hand for first, hand in firsts if first is not None]
        return timedelta(microseconds=max(0, min(delays))) if delays else None

    def _expire(self, entry: Entry, now: Now) -> None:
        self._finish(entry, State.FAILED, now, by="", reason=Reason.EXPIRED, kind="expired")

    def _forget_expiry(self, entry: Entry) -> None:
        """The limit is on the wait for the first start; later waits are the retries' own."""
        if entry.expires is not None:
            self.expiring.discard(entry.expires, entry.seq)
            entry.expires = None

    @staticmethod
    def _is_overdue(entry: Entry, now: Now) -> bool:
        return entry.expires is not None and entry.expires <= now.steady

    @staticmethod
    def _is_early(entry: Entry, now: Now) -> bool:
        return entry.due is not None and entry.due[1] > (now.wall if entry.due[0] == "wall" else now.steady)

    # -- people --------------------------------------------------------------------------------------------------------

    def amend(self, entry: Entry, amend: Amend, now: Now) -> Amendment:
        verdict = getattr(self, f"_amend_{amend.action}")(entry, amend, now)
        return Amendment(entry.spec.id, verdict, entry.state)

    def _amend_cancel(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state in FINAL:
            return "refused"
        if entry.state is State.RUNNING:
            if entry.cancelling is None:
                entry.cancelling = amend.by
                self._change(entry, "cancel_requested", now, amend.by, note=amend.note)
                self.topics.add(worker_topic(entry.worker or ""))
            return "requested"
        self._finish(entry, State.CANCELLED, now, by=amend.by, note=amend.note)
        return "done"

    def _amend_suspend(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state in FINAL or entry.state is State.SUSPENDED:
            return "refused"
        if entry.state is State.RUNNING:
            if not entry.suspending:
                entry.suspending = True
                self._change(entry, "suspend_requested", now, amend.by, note=amend.note)
                self.topics.add(worker_topic(entry.worker or ""))
            return "requested"
        self._exit(entry)
        entry.state, entry.note = State.SUSPENDED, amend.note
        self._change(entry, "suspended", now, amend.by, state=State.SUSPENDED, note=amend.note)
        return "done"

    def _amend_resume(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state is State.RUNNING and entry.suspending:
            entry.suspending = False
            self._change(entry, "resumed", now, amend.by)
            return "done"
        if entry.state is not State.SUSPENDED:
            return "refused"
        entry.note = ""
        if self._is_early(entry, now):
            entry.state = State.SCHEDULED
        else:
            entry.state, entry.due = State.QUEUED, None
        self._enter(entry)
        self._change(entry, "resumed", now, amend.by, state=entry.state, run_at=_due_at(entry))
        return "done"

    def _amend_retry(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL or (entry.spec.unique is not None and entry.spec.unique in self.uniques):
            return "refused"
        entry.state, entry.reason, entry.note = State.QUEUED, None, ""
        entry.attempt = entry.lost = entry.timeouts = 0
        entry.finished = entry.purge_at = entry.result = None
        self.unfinished[entry.spec.queue] += 1
        if entry.spec.unique is not None:
            self.uniques[entry.spec.unique] = entry
        self._place(entry)
        self._enter(entry)
        self._change(entry, "retried", now, amend.by, state=State.QUEUED, attempt=0, note=amend.note)
        return "done"

    def _amend_remove(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL:
            return "refused"
        self._change(entry, "removed", now, amend.by, note=amend.note)
        self.drop(entry, now)
        return "done"

    def _amend_rerank(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in WAITING:
            return "refused"
        self._rerank(entry, amend.priority, now, by=amend.by)
        return "done"

    def _rerank(self, entry: Entry, priority: int | None, now: Now, *, by: str) -> None:
        self._exit(entry)
        before = entry.priority
        entry.priority = before if priority is None else priority
        self._place(entry)
        self._enter(entry)
        if entry.priority != before:
            self._change(entry, "reprioritised", now, by, priority=entry.priority)

    def _place(self, entry: Entry) -> None:
        # Whatever comes back to its queue stands by today's discipline: a change of it re-ranks only what waits.
        entry.rank = place(self.settings(entry.spec.queue), entry.priority, entry.arrived, entry.seq)

    def drop(self, entry: Entry, now: Now) -> None:
        if entry.state in UNFINISHED:
            self._exit(entry)
            self._leave_lease(entry)
            self.unfinished[entry.spec.queue] -= 1
        del self.jobs[entry.seq], self.ids[entry.spec.id]
        if entry.spec.unique is not None and self.uniques.get(entry.spec.unique) is entry:
            del self.uniques[entry.spec.unique]
        for key in entry.keys:
            self.keys[key].dropped = now.steady

    # -- records -------------------------------------------------------------------------------------------------------

    def put(self, put: Put) -> Record | None:
        name = (put.kind, put.name)
        there = self.records.get(name)
        if put.expect is not None and put.expect != (there.revision if there else 0):
            return None
        self.revision += 1
        if put.value is None:
            self.records.pop(name, None)
        else:
            self.records[name] = Record(kind=put.kind, name=put.name, value=put.value, revision=self.revision)
        if put.kind == "queue":
            self.topics.add(work_topic(put.name))
        return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=self.revision)

    def settings(self, queue: str) -> QueueSettings:
        record = self.records.get(("queue", queue))
        return msgspec.json.decode(record.value, type=QueueSettings) if record else DEFAULT_QUEUE

    # -- the small moves every transition is made of -------------------------------------------------------------------

    def _enter(self, entry: Entry) -> None:
        match entry.state:
            case State.QUEUED:
                self.ready.add(entry.lane, entry.rank)
                self.topics.add(work_topic(entry.spec.queue))
            case State.SCHEDULED:
                assert entry.due is not None
                self.due[entry.due[0]].add(entry.due[1], entry.seq)
                self.topics.add(work_topic(entry.spec.queue))  # an idle worker must plan anew
            case State.RUNNING:
                self.running[entry.seq] = entry

    def _exit(self, entry: Entry) -> None:
        match entry.state:
            case State.QUEUED:
                self.ready.discard(entry.lane, entry.rank)
            case State.SCHEDULED:
                assert entry.due is not None
                self.due[entry.due[0]].discard(entry.due[1], entry.seq)
            case State.RUNNING:
                del self.running[entry.seq]

    def _change(self, entry: Entry, kind: str, now: Now, by: str, **changed: object) -> None:
        event = Event(n=entry.n + 1, kind=kind, job=entry.spec.id, at=moment(now.wall), by=by, **changed)  # type: ignore[arg-type]
        self._tell(entry, event, now)

    def _tell(self, entry: Entry, event: Event, now: Now) -> None:
        entry.n = event.n
        entry.history = events.shortened([*entry.history, event])
        self._publish(event, now)

    def _publish(self, event: Event, now: Now) -> None:
        self.feed.append((now.steady, event))
        self.topics.add(EVENTS_TOPIC)


def _due_at(entry: Entry) -> datetime | None:
    return moment(entry.due[1]) if entry.due and entry.state is State.SCHEDULED else None


def check(puts: Iterable[Put]) -> None:
    """Before anything is written: what raises half way through would leave half an operation behind."""
    for put in puts:
        if put.kind == "queue" and put.value is not None:
            _check_settings(put, put.value)


def _check_settings(put: Put, value: bytes) -> None:
    try:
        msgspec.json.decode(value, type=QueueSettings)
    except msgspec.DecodeError as trouble:
        raise BadInput(f"queue {put.name!r}: these are no queue settings: {trouble}") from None
