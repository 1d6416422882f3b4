"""Accepting jobs: known already, in the way, full, or new."""

from __future__ import annotations

from daybreak import events
from daybreak.model import (
    WAITING,
    JobSpec,
    QueueSettings,
    State,
)
from daybreak.rank import place
from daybreak.store import (
    Inserted,
    Verdict,
)
from daybreak.stores.memory.book import Book, Key, Now, due_at
from daybreak.stores.memory.entry import Entry
from daybreak.units import moment, span


class Accepting(Book):
    __slots__ = ()

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
        self._tell(entry, events.submitted(spec, entry.state, moment(now.wall), due_at(entry)), now)
        return entry

    def _know_key(self, spec: JobSpec, entry: Entry) -> None:
        assert spec.key is not None
        self.keys[spec.key] = Key(spec.digest, entry.spec.id)
        entry.keys.append(spec.key)
