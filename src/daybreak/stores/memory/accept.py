"""Insert and adopt: decide whether a job is a duplicate, a conflict, refused, or new."""

from __future__ import annotations

from msgspec.structs import replace

from daybreak.core import events
from daybreak.core.model import UNFINISHED, WAITING, JobSpec, Put, QueueSettings, Reason, Record, State
from daybreak.core.rank import rank_of
from daybreak.core.units import micros, moment, span
from daybreak.core.wait_limit import SHORTENED_NOTE, shortened_wait
from daybreak.store.protocol import Inserted, Moved, Verdict, clock_jump, job_topic, keep_until
from daybreak.stores.memory.book import Book, Key, Now, due_at
from daybreak.stores.memory.entry import Entry

_MAY_BE_EARLY = (State.SCHEDULED, State.SUSPENDED)


class Accepting(Book):
    """Insert, pack and adopt; also the jobs that come with a record."""

    __slots__ = ()

    def put(self, put: Put, now: Now) -> Record | None:
        record = super().put(put, now)
        if record is not None:
            for spec in put.inserts:  # a full queue does not refuse them: the record is written
                self.insert(spec, now, bounded=False)
        return record

    def insert(self, spec: JobSpec, now: Now, *, bounded: bool = True) -> Inserted:
        if known := self.ids.get(spec.id):
            return Inserted(Verdict.DUPLICATE, spec.id, known.seq, known.state, "id")
        if spec.key is not None and (key := self.known_key(spec.key, now)):
            return self._find_by_key(key, spec.digest)
        holder = self._holder_of(spec)
        replaces = holder is not None and spec.on_conflict == "replace" and holder.state is not State.RUNNING
        if holder and not replaces:
            return self._keep_holder(holder, spec, now)
        settings = self.settings(spec.queue)
        freed = 1 if holder and holder.spec.queue == spec.queue else 0
        victim: Entry | None = None
        if bounded:
            is_full = settings.capacity is not None and self.unfinished[spec.queue] - freed >= settings.capacity
            crowded = self._crowded_resources(spec)
            if is_full or crowded:
                victim = self._find_victim(spec, crowded) if settings.when_full == "shed" else None
                if victim is None:
                    return Inserted(Verdict.FULL, spec.id)
        if holder:
            self._finish(holder, State.CANCELLED, now, by=spec.by, note="replaced", replaced_by=spec.id)
        if victim and victim is not holder:
            shed = {"reason": Reason.SHED, "note": f"pushed out by {spec.id}", "kind": "shed"}
            self._finish(victim, State.FAILED, now, by=spec.by, **shed, replaced_by=spec.id)  # type: ignore[arg-type]
        entry = self._accept(spec, settings, now)
        return Inserted(Verdict.NEW, spec.id, entry.seq, entry.state, "", victim.spec.id if victim else "")

    def known_key(self, name: str, now: Now) -> Key | None:
        """The entry of an idempotency key that is in use or spent; None if the key is free."""
        key = self.keys.get(name)
        return None if key is None or (key.until is not None and key.until <= now.steady) else key

    def _find_by_key(self, key: Key, digest: str) -> Inserted:
        there = self.ids.get(key.job)
        is_same = key.digest == digest
        if there is None:
            return Inserted(Verdict.SPENT if is_same else Verdict.CONFLICT, key.job, same="key")
        verdict = Verdict.DUPLICATE if is_same else Verdict.CONFLICT
        return Inserted(verdict, key.job, there.seq, there.state, "key", code=there.spec.code)

    def _find_victim(self, spec: JobSpec, crowded: list[str]) -> Entry | None:
        """The job that makes room for this one: of the queued and blocked jobs of its queue the last in rank, if it is
        less urgent. At a crowded resource only a job that waits for it makes room; at two of them no job can."""
        if len(crowded) > 1:
            return None
        waiting = [self.blocked.get(crowded[0])] if crowded else [self.ready, self.parked]
        lasts = [last for ready in waiting if ready is not None and (last := ready.tail(spec.queue)) is not None]
        entry = self.jobs[max(lasts).seq] if lasts else None
        return entry if entry is not None and entry.priority > spec.priority else None

    def _crowded_resources(self, spec: JobSpec) -> list[str]:
        """The resources of a job for which as many jobs wait as `max_waiting` allows."""
        crowded = []
        for need in spec.options.resources:
            limit = self.gauge(need.resource).settings.max_waiting
            if limit is not None and len(self.blocked.get(need.resource, ())) >= limit:
                crowded.append(need.resource)
        return crowded

    def _keep_holder(self, holder: Entry, spec: JobSpec, now: Now) -> Inserted:
        if spec.on_conflict == "refuse":
            return Inserted(Verdict.CONFLICT, holder.spec.id, holder.seq, holder.state, "unique")
        if spec.on_conflict == "raise" and spec.priority < holder.priority and holder.state in WAITING:
            self._rerank(holder, spec.priority, now, by=spec.by)
        if spec.key is not None:  # the key belongs to the holder from now on, even after the holder ends
            self._assign_key(spec.key, spec.digest, holder, now.steady)
        return Inserted(Verdict.DUPLICATE, holder.spec.id, holder.seq, holder.state, "unique")

    def _accept(self, spec: JobSpec, settings: QueueSettings, now: Now) -> Entry:
        self.seq += 1
        entry = Entry(
            spec=spec,
            lane=(spec.queue, spec.task, spec.version),
            needs=spec.options.resources,
            seq=self.seq,
            state=State.QUEUED,
            rank=rank_of(settings, spec.priority, now.steady, self.seq),
            priority=spec.priority,
            created=now.wall,
            arrived=now.steady,
        )
        if spec.run_at is not None:
            entry.due = ("wall", span(spec.run_at - moment(0)))
        elif spec.delay is not None:
            entry.due = ("steady", now.steady + span(spec.delay))
        note = ""
        if spec.options.expires_in is not None:
            limit = span(spec.options.expires_in)
            shorter = shortened_wait(limit, spec.priority, self.unfinished[spec.queue], settings.capacity)
            if shorter < limit:
                note = SHORTENED_NOTE
                self._count(entry, "shortened")
            entry.expires = now.steady + shorter
            self.expiring.add(entry.expires, entry.seq)
        if self._is_early(entry, now):
            entry.state = State.SCHEDULED
        else:
            entry.state, entry.due = self._first_state(entry, now), None
        self.jobs[entry.seq] = self.ids[spec.id] = entry
        if spec.key is not None:
            self._assign_key(spec.key, spec.digest, entry, entry.arrived)
        if spec.unique is not None:
            self.uniques[spec.unique] = entry
        self.unfinished[spec.queue] += 1
        self._enter(entry)
        self._count(entry, "submitted")
        self._record_event(entry, events.submitted(spec, entry.state, moment(now.wall), due_at(entry), note), now)
        return entry

    def _assign_key(self, key: str, digest: str, entry: Entry, at: int) -> None:
        self.keys[key] = Key(digest, entry.spec.id, at)
        entry.keys += (key,)

    # -- from another store --------------------------------------------------------------------------------------------

    def pack(self, entry: Entry, now: Now) -> Moved:
        """A job for another store. Its times are wall time: another store has another steady time."""
        job, jumped = entry.as_job(), clock_jump(now.wall, now.steady)
        if entry.expires is not None and jumped:
            job = replace(job, expires_at=moment(entry.expires + jumped))
        if entry.due is not None and entry.state in (State.SCHEDULED, State.SUSPENDED):
            hand, due = entry.due
            job = replace(job, run_at=moment(due + jumped if hand == "steady" else due))
        keys = {key: self.keys[key].digest for key in entry.keys}
        unique = job.spec.unique
        gave_up = unique is not None and not job.is_final and self.uniques.get(unique) is not entry
        return Moved(job, list(entry.history), keys, holds_name=not gave_up)

    def adopt(self, moved: Moved, by: str, now: Now) -> Inserted:
        job, spec = moved.job, moved.job.spec
        if known := self.ids.get(spec.id):
            return Inserted(Verdict.DUPLICATE, spec.id, known.seq, known.state, "id")
        others = (key.job for name in moved.keys if (key := self.known_key(name, now)) and key.job != spec.id)
        if (other := next(others, None)) is not None:
            there = self.ids.get(other)
            return Inserted(Verdict.CONFLICT, other, there.seq if there else 0, there.state if there else None, "key")
        is_open = job.state in UNFINISHED
        unique = spec.unique if is_open and moved.holds_name else None
        if unique is not None and (holder := self.uniques.get(unique)):
            return Inserted(Verdict.CONFLICT, holder.spec.id, holder.seq, holder.state, "unique")
        self.seq += 1
        entry = self._entry_of(moved, now)
        self.jobs[entry.seq] = self.ids[spec.id] = entry
        for name, digest in moved.keys.items():  # including one that was left here when the job moved away
            self._assign_key(name, digest, entry, entry.arrived)
        if is_open:
            self.unfinished[spec.queue] += 1
            if unique is not None:
                self.uniques[unique] = entry
            if entry.expires is not None:
                self.expiring.add(entry.expires, entry.seq)
        else:
            self.topics.add(job_topic(spec.id))
        if entry.state is State.BLOCKED:  # this store decides for which resource
            entry.state = self._first_state(entry, now)
        self._enter(entry)
        changes = {"state": entry.state, "reason": entry.reason, "fence": entry.fence, "run_at": due_at(entry)}
        self._record(entry, "moved", now, by, **changes)
        return Inserted(Verdict.NEW, spec.id, entry.seq, entry.state)

    def _entry_of(self, moved: Moved, now: Now) -> Entry:
        """The entry of an adopted job. Its waiting time counts from its first submit."""
        job, created = moved.job, micros(moved.job.created_at)
        arrived = now.steady - max(0, now.wall - created)
        expires = None
        if job.expires_at is not None and job.state in UNFINISHED:
            expires = now.steady + max(0, micros(job.expires_at) - now.wall)
        return Entry(
            spec=job.spec,
            lane=(job.spec.queue, job.spec.task, job.spec.version),
            needs=job.spec.options.resources,
            seq=self.seq,
            state=job.state,
            rank=rank_of(self.settings(job.spec.queue), job.priority, arrived, self.seq),
            priority=job.priority,
            created=created,
            arrived=arrived,
            due=("wall", micros(job.run_at)) if job.run_at and job.state in _MAY_BE_EARLY else None,
            expires=expires,
            reason=job.reason,
            attempt=job.attempt,
            fence=job.fence + 1,
            n=job.revision,
            lost=job.lost,
            timeouts=job.timeouts,
            started=None if job.started_at is None else micros(job.started_at),
            finished=None if job.finished_at is None else micros(job.finished_at),
            purge_at=keep_until(job, now.wall, now.steady) if job.is_final else None,
            progress=job.progress,
            message=job.message,
            note=job.note,
            checkpoint=job.checkpoint,
            result=job.result,
            failure=job.failure,
            history=list(moved.history),
        )
