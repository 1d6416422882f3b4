"""One transaction on the data of the memory store. It works on copies of jobs and gauges, which replace the originals
when they are written."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge

from daybreak.core.model import DEFAULT_QUEUE, Put, QueueSettings, Record, State
from daybreak.core.rank import Rank
from daybreak.core.resource_gauge import Gauge
from daybreak.store.protocol import EVENTS_TOPIC, Claim
from daybreak.stores.kernel.history import PLAIN_EVENTS
from daybreak.stores.kernel.port import FlightEntry, Head, HeldLease, KeyEntry, Mate, NameChange, NewKey, NextDue
from daybreak.stores.kernel.row import STEADY, WALL, Row
from daybreak.stores.kernel.totals import add_counter
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory.book import Book, Key


class MemoryRow(Row):
    """A job whose history is a tuple of events."""

    __slots__ = ()
    lines = PLAIN_EVENTS


class MemoryTransaction(Transaction):
    """One transaction. `commit` makes its counts and events visible; the rest is written as it goes."""

    row_type = MemoryRow

    def __init__(self, book: Book, wall: int, steady: int) -> None:
        super().__init__(wall, steady)
        self.book = book

    def commit(self) -> set[str]:
        """Write what is left, and return the topics to wake."""
        self.write()
        self.gauges.save()
        book = self.book
        book.tallies.update(self.tallies)
        for lane, priority, name, counter in self.totals.counters():
            counters = dict(book.totals.get((lane, priority), {}))
            add_counter(counters, name, counter)
            book.totals[lane, priority] = counters
        book.feed += [(self.steady, event) for event, _ in self.published]
        if self.published:
            self.topics.add(EVENTS_TOPIC)
        return self.topics

    def clean_id(self, job: str) -> str:
        return job

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_rows(self, seqs: Sequence[int]) -> Iterable[Row]:
        return [copy.copy(row) for seq in seqs if (row := self.book.jobs.get(seq)) is not None]

    def peek_rows(self, seqs: Sequence[int]) -> Iterable[Row]:
        return [row for seq in seqs if (row := self.book.jobs.get(seq)) is not None]

    def seqs_of(self, ids: Sequence[str]) -> dict[str, int]:
        return {job: seq for job in ids if (seq := self.book.ids.get(job)) is not None}

    def read_keys(self, keys: Sequence[str]) -> dict[str, KeyEntry]:
        found = {key: entry for key in keys if (entry := self.book.keys.get(key)) is not None}
        return {
            key: KeyEntry(entry.digest, entry.job, self.book.ids.get(entry.job), entry.until)
            for key, entry in found.items()
        }

    def read_holders(self, names: Sequence[str]) -> dict[str, int]:
        return {name: seq for name in names if (seq := self.book.uniques.get(name)) is not None}

    def read_settings(self, queues: Sequence[str]) -> Mapping[str, QueueSettings]:
        return {queue: self.book.queues.get(queue, DEFAULT_QUEUE) for queue in queues}

    def read_tallies(self, queues: Sequence[str], states: frozenset[State]) -> dict[str, int]:
        counts = dict.fromkeys(queues, 0)
        for ((queue, _, _), _, state), n in self.book.tallies.items():
            if queue in counts and state in states:
                counts[queue] += n
        return counts

    def heads(self, queues: Sequence[str], claim: Claim, limit: int, seen: Sequence[int]) -> dict[str, Iterator[Head]]:  # noqa: ARG002 - walks as far as needed
        if claim.job is not None:
            return self._chosen(queues, claim, claim.job)
        known = frozenset(seen)
        return {queue: self._walk(queue, claim.tasks, known) for queue in queues}

    def _chosen(self, queues: Sequence[str], claim: Claim, job: str) -> dict[str, Iterator[Head]]:
        row = self.book.jobs.get(self.book.ids.get(job, 0))
        if row is None or row.state is not State.QUEUED or row.queue not in queues:
            return {}
        is_known = claim.tasks is None or row.name[1:] in claim.tasks
        return {row.queue: iter((row,))} if is_known else {}

    def _walk(self, queue: str, tasks: frozenset[tuple[str, int]] | None, seen: frozenset[int]) -> Iterator[Head]:
        ranks: Iterator[Rank] = merge(*self.book.ready.walk(queue, tasks))
        return (self.book.jobs[rank.seq] for rank in ranks if rank.seq not in seen)

    def company(self, head: Head, limit: int, seen: Collection[int]) -> Iterator[Mate]:  # noqa: ARG002 - walks as far as needed
        ranks = self.book.company.get((head.name, head.batch or ""), ())
        return (self.book.jobs[rank.seq] for rank in ranks if rank.seq != head.seq and rank.seq not in seen)

    def last_in_rank(self, queue: str, cause: str | None) -> int | None:
        book = self.book
        waiting = [book.ready, book.parked] if cause is None else [book.blocked.get(cause)]
        lasts = [last for ready in waiting if ready is not None and (last := ready.tail(queue)) is not None]
        return max(lasts).seq if lasts else None

    def leases_of_call(self, worker: str, call: str) -> list[int]:
        rows = (self.book.jobs[seq] for seq in self.book.running)
        return sorted(row.seq for row in rows if (row.worker, row.call) == (worker, call))

    def leases_of_group(self, group: int) -> list[int]:
        return sorted(seq for seq in self.book.running if self.book.jobs[seq].group == group)

    def lapsed(self, until: int, longest: int, limit: int) -> list[int]:
        rows = (self.book.jobs[seq] for seq in self.book.running)
        found = sorted((row.until or 0, row.seq) for row in rows if (row.until or 0) <= until and row.term <= longest)
        return [seq for _, seq in found[:limit]]

    def due(self, clock: int, until: int, limit: int) -> list[int]:
        return self.book.due[clock].until(until, limit)

    def overdue(self, limit: int) -> list[int]:
        return self.book.expiring.until(self.steady, limit)

    def next_due(self) -> NextDue:
        looks = [gauge.look for gauge in self.book.gauges.values() if gauge.look is not None]
        first, landing = min(looks, default=None), bool(self.book.landing)
        return NextDue(self.book.due[STEADY].first(), self.book.due[WALL].first(), first, landing)

    def waiting(self, cause: str, limit: int) -> int:  # noqa: ARG002 - knows the number
        return self.book.waiting(cause)

    def waiting_by_lane(self, cause: str, limit: int) -> list[list[int]]:
        waiting = self.book.blocked.get(cause)
        return [] if waiting is None else [[rank.seq for rank in ranks] for ranks in waiting.firsts(limit)]

    def read_gauges(self, names: Sequence[str]) -> Mapping[str, Gauge]:
        known = self.book.gauges
        return {name: known[name] if name in known else Gauge() for name in names}

    def gauges_to_look_at(self, limit: int) -> list[str]:
        looks = ((gauge.look, name) for name, gauge in self.book.gauges.items() if gauge.look is not None)
        return [name for _, name in sorted((look, name) for look, name in looks if look <= self.steady)][:limit]

    def stale_jobs(self, limit: int) -> list[int]:
        found = sorted(
            (row.purge_at, seq)
            for seq, row in self.book.jobs.items()
            if row.purge_at is not None and row.purge_at <= self.steady
        )
        return [seq for _, seq in found[:limit]]

    def read_revision(self, kind: str, name: str) -> int:
        record = self.book.records.get((kind, name))
        return 0 if record is None else record.revision

    def read_leases(self, seqs: Sequence[int]) -> dict[int, HeldLease]:
        rows = [row for seq in seqs if seq in self.book.running and (row := self.book.jobs.get(seq)) is not None]
        return {
            row.seq: HeldLease(
                row.seq,
                row.id,
                row.fence,
                row.n,
                row.worker or "",
                row.cancelling is not None,
                row.suspending,
                row.detached,
            )
            for row in rows
        }

    # -- the cache -----------------------------------------------------------------------------------------------------

    def read_flights(self, flights: Sequence[str]) -> dict[str, FlightEntry]:
        found = {flight: self.book.flights[flight] for flight in flights if flight in self.book.flights}
        return {flight: copy.copy(self.book.entries[number]) for flight, number in found.items()}

    def read_entries(self, numbers: Sequence[int]) -> list[FlightEntry]:
        return [copy.copy(self.book.entries[number]) for number in numbers]

    def next_entry(self) -> int:
        self.book.last_entry += 1
        return self.book.last_entry

    def write_entries(self, entries: Sequence[FlightEntry]) -> None:
        book = self.book
        for entry in entries:
            before = book.entries.pop(entry.number, None)
            if before is not None and before.flight is not None and book.flights.get(before.flight) == entry.number:
                del book.flights[before.flight]
            book.landing.discard(entry.number)
            if entry.is_gone:
                continue
            book.entries[entry.number] = copy.copy(entry)
            if entry.flight is not None:
                book.flights[entry.flight] = entry.number
            if entry.landing:
                book.landing.add(entry.number)

    def add_room(self, task: str, entries: int, size: int) -> None:
        before = self.read_room(task)
        self.book.rooms[task] = (before[0] + entries, before[1] + size)

    def read_room(self, task: str) -> tuple[int, int]:
        return self.book.rooms.get(task, (0, 0))

    def least_used(self, task: str, limit: int) -> list[str]:
        found = [entry for entry in self._known() if entry.task == task and not entry.landing]
        return [entry.flight or "" for entry in sorted(found, key=lambda one: (one.used, one.number))[:limit]]

    def known_flights(self, task: str | None, limit: int) -> list[str]:
        found = [
            entry
            for entry in self._known()
            if task in (None, entry.task) and (not entry.landing or entry.is_usable(self.steady))
        ]
        return [entry.flight or "" for entry in sorted(found, key=lambda one: one.number)[:limit]]

    def lapsed_flights(self, limit: int) -> list[str]:
        found = [
            (entry.until, entry.number, entry.flight or "")
            for entry in self._known()
            if entry.until is not None and entry.until <= self.steady and not entry.landing
        ]
        return [flight for *_, flight in sorted(found)[:limit]]

    def landing_flights(self, limit: int) -> list[str]:
        return [self.book.entries[number].flight or "" for number in sorted(self.book.landing)[:limit]]

    def _known(self) -> Iterable[FlightEntry]:
        return (entry for entry in self.book.entries.values() if entry.counts)

    # -- writing -------------------------------------------------------------------------------------------------------

    def next_seq(self) -> int:
        self.book.seq += 1
        return self.book.seq

    def write_rows(self, rows: Sequence[Row]) -> None:
        book = self.book
        for row in rows:
            place = row.place
            if row.stored is None:
                book.ids[row.id] = row.seq
                book.place(row, place)
            elif row.stored != place:
                book.displace(row, row.stored)
                book.place(row, place)
            written = book.jobs[row.seq] = copy.copy(row)
            written.stored = place

    def delete_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            assert row.stored is not None
            self.book.displace(row, row.stored)
            del self.book.jobs[row.seq], self.book.ids[row.id]

    def write_names(self, changes: Sequence[NameChange]) -> None:
        uniques = self.book.uniques
        for name, seq, kind in changes:
            if kind == "take":
                uniques[name] = seq
            elif kind == "free" or uniques.get(name) == seq:
                uniques.pop(name, None)

    def write_keys(self, keys: Sequence[NewKey]) -> None:
        book = self.book
        for key, digest, job, at in keys:
            if (before := book.keys.get(key)) is not None:
                book.keys_of_job[before.job].remove(key)
            submitted = book.jobs[book.ids[job]].arrived if at is None else at
            book.keys[key] = Key(digest, job, submitted)
            book.keys_of_job.setdefault(job, []).append(key)

    def free_keys(self, job: str) -> None:
        for key in self.book.keys_of_job.pop(job, ()):
            del self.book.keys[key]

    def spend_keys(self, row: Row, keys_for: int, since: int | None) -> None:
        for name in self.book.keys_of_job.get(row.id, ()):
            key = self.book.keys[name]
            self.book.keys[name] = replace(key, until=(key.at if since is None else since) + keys_for)

    def write_gauges(self, gauges: Mapping[str, Gauge]) -> None:
        for name, gauge in gauges.items():
            self.book.gauges[name] = gauge

    def next_revision(self) -> int:
        self.book.revision += 1
        return self.book.revision

    def write_record(self, put: Put, revision: int) -> None:
        name = (put.kind, put.name)
        if put.value is None:
            self.book.records.pop(name, None)
        else:
            self.book.records[name] = Record(kind=put.kind, name=put.name, value=put.value, revision=revision)

    def write_settings(self, queue: str, settings: QueueSettings | None) -> None:
        if settings is None:
            self.book.queues.pop(queue, None)
        else:
            self.book.queues[queue] = settings

    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        for lease in leases:
            row = self.book.jobs[lease.seq] = copy.copy(self.book.jobs[lease.seq])
            row.term, row.until = lease.term, self.steady + lease.term
            if lease.alone is not None:
                row.alone = lease.alone
            if lease.ahead is not None:
                row.ahead = lease.ahead
            if lease.checkpoint is not None:
                row.checkpoint = lease.checkpoint
            if lease.progress is not None:
                row.progress, row.message = lease.progress, lease.message

    def purge_feed(self, before: int, limit: int) -> tuple[int, bool]:  # noqa: ARG002 - all at once
        feed = self.book.feed
        stale = next((i for i, (at, _) in enumerate(feed) if at > before), len(feed))
        del feed[:stale]
        self.book.feed_start += stale
        return stale, False

    def purge_keys(self, limit: int) -> int:
        book = self.book
        lapsed = sorted((k.until, name) for name, k in book.keys.items() if k.until is not None)
        over = [name for until, name in lapsed if until <= self.steady][:limit]
        for name in over:
            book.keys_of_job[book.keys.pop(name).job].remove(name)
        return len(over)
