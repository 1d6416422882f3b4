"""One transaction, as the state machine sees it: the jobs that it has read, and what it will write.

A transition reads the jobs that it needs, changes them, and marks them with `change`. The transaction writes all marked
jobs together: before the store is asked for anything that their places could affect, and at the end. What follows from
a move (tallies, wake-ups) is worked out here, once, by comparing where a job was with where it belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from daybreak.core.events import Event
from daybreak.core.model import FINAL, JobSpec, Lease, Need, QueueSettings, Settlement, State
from daybreak.core.units import clean, moment
from daybreak.store.protocol import Claim, Inserted, job_topic, work_topic
from daybreak.stores.kernel.flights import Flights
from daybreak.stores.kernel.gauges import Gauges
from daybreak.stores.kernel.history import may_shorten
from daybreak.stores.kernel.port import Head, KeyEntry, Mate, NameChange, NewKey, Tables
from daybreak.stores.kernel.row import LaneName, Place, Row
from daybreak.stores.kernel.totals import Totals

QUEUED, SCHEDULED, RUNNING = State.QUEUED, State.SCHEDULED, State.RUNNING
Cell = tuple[LaneName, int, State]


class Mark(NamedTuple):
    """What a transaction has collected up to a point, for `Transaction.rewind`."""

    tallies: Counter[Cell]
    totals: Totals
    published: int
    topics: set[str]
    freed: set[str]
    left_calls: dict[int, tuple[Need, ...]]


class Transaction(Tables):
    """One transaction. A store derives its own from this and implements `Tables`."""

    def __init__(self, wall: int, steady: int) -> None:
        self.set_time(wall, steady)
        self.tallies: Counter[Cell] = Counter()
        self.totals = Totals()
        self.published: list[tuple[Event, Any]] = []  # each with its line
        self.topics: set[str] = set()
        self.gauges = Gauges(self)
        self._flights: Flights | None = None
        self.left_calls: dict[int, tuple[Need, ...]] = {}  # batch calls of which a lease has ended, and their needs
        self._rows: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._dropped: list[Row] = []
        self._keys: list[NewKey] = []
        self._names: dict[str, NameChange] = {}
        self._settings: dict[str, QueueSettings] = {}

    def set_time(self, wall: int, steady: int) -> None:
        self.wall, self.steady, self.at = wall, steady, moment(wall)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def load(self, seqs: Iterable[int]) -> dict[int, Row]:
        """Jobs that this transaction may change, in the order asked for; those that do not exist are left out."""
        wanted = list(dict.fromkeys(seqs))
        known = self._rows
        if unknown := [seq for seq in wanted if seq not in known]:
            self._write_dropped()
            for row in self.read_rows(unknown):
                known[row.seq] = row
        return {seq: known[seq] for seq in wanted if seq in known}

    def load_one(self, seq: int) -> Row | None:
        """One job that this transaction may change."""
        return self._rows.get(seq) or self.load((seq,)).get(seq)

    def loaded(self, seq: int) -> Row | None:
        """A job that this transaction has loaded already."""
        return self._rows.get(seq)

    def load_id(self, job: str) -> Row | None:
        """The job with this id, which this transaction may change."""
        self._write_dropped()
        seq = self.seqs_of([job]).get(job)
        return None if seq is None else self.load_one(seq)

    def peek(self, seq: int) -> Row | None:
        """A job as it is, not to be changed."""
        if (row := self._rows.get(seq)) is not None:
            return row
        self._write_dropped()
        return next(iter(self.peek_rows((seq,))), None)

    def _write_dropped(self) -> None:
        """Delete dropped jobs, so that they are not read again."""
        if self._dropped:
            self.write()

    def keep(self, row: Row) -> None:
        """Count a row that a statement of the store has read and locked as loaded."""
        self._rows[row.seq] = row

    def change(self, row: Row) -> None:
        """Mark a job as changed: its row is written before the transaction ends."""
        self._changed[row.seq] = row

    def add(self, row: Row) -> None:
        """Add a new job."""
        self._rows[row.seq] = self._changed[row.seq] = row

    def drop(self, row: Row) -> None:
        """Delete a job. What it holds must be released already."""
        self._changed.pop(row.seq, None)
        self._rows.pop(row.seq, None)
        if row.stored is not None:
            self.tallies[row.name, row.stored.priority, row.stored.state] -= 1
            self._dropped.append(row)

    def write(self) -> None:
        """Write all that was changed so far, so that the store's own reads see it."""
        if self._flights is not None:
            self._flights.save()
        if self._changed:
            rows, self._changed = list(self._changed.values()), {}
            places = [row.place for row in rows]
            for row, place in zip(rows, places, strict=True):
                self._note_move(row, row.stored, place)
            self.write_rows(rows)
            for row, place in zip(rows, places, strict=True):
                row.stored = place
        if self._names:
            names, self._names = list(self._names.values()), {}
            self.write_names(names)
        if self._keys:
            keys, self._keys = self._keys, []
            self.write_keys(keys)
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            self.delete_rows(dropped)

    def _note_move(self, row: Row, before: Place | None, after: Place) -> None:
        """Count the job where it belongs now, and wake those who wait for such a move."""
        state = after.state
        if before is None:
            self.tallies[row.name, after.priority, state] += 1
        elif before.state is not state or before.priority != after.priority:
            self.tallies[row.name, before.priority, before.state] -= 1
            self.tallies[row.name, after.priority, state] += 1
            if before.state is RUNNING and self.settings(row.queue).max_running is not None:
                self.topics.add(work_topic(row.queue))
        if state is QUEUED or state is SCHEDULED:  # an idle worker must compute its sleep again
            self.topics.add(work_topic(row.queue))
        elif state in FINAL and (before is None or before.state not in FINAL):
            self.topics.add(job_topic(row.id))

    @property
    def flights(self) -> Flights:
        """The entries of the cache."""
        if self._flights is None:
            self._flights = Flights(self)
        return self._flights

    # -- keys, unique names, settings, counts --------------------------------------------------------------------------

    def assign_key(self, key: str, digest: str, job: str, at: int | None = None) -> None:
        """Have an idempotency key stand for a job from now on."""
        self._keys.append(NewKey(key, digest, job, at))

    def keys_of(self, keys: Sequence[str]) -> dict[str, KeyEntry]:
        """What these keys stand for; a key that is unknown or free again is left out."""
        if self._keys:
            self.write()
        return {key: entry for key, entry in self.read_keys(keys).items() if not entry.is_free(self.steady)}

    def write_pending_keys(self) -> None:
        """Write keys that this transaction assigned, so that the store can free or spend them."""
        if self._keys:
            self.write()

    def take_name(self, name: str, seq: int) -> None:
        """Give a unique name to a job."""
        self._names[name] = NameChange(name, seq, "take")

    def release_name(self, row: Row) -> None:
        """Free the unique name of a job, if it has one, and still has it."""
        if row.unique is not None:
            self.release_name_of(row.seq, row.unique)

    def release_name_of(self, seq: int, name: str) -> None:
        """Free a unique name, if the job with this number still has it."""
        pending = self._names.get(name)
        if pending is None:
            self._names[name] = NameChange(name, seq, "release")
        elif pending.kind == "take" and pending.seq == seq:
            self._names[name] = NameChange(name, seq, "free")
        elif pending.kind == "release" and pending.seq != seq:
            self.write()  # one of them has the name, and only the store knows which
            self._names[name] = NameChange(name, seq, "release")

    def holders_of(self, names: Sequence[str]) -> dict[str, int]:
        """The jobs that have these unique names."""
        if self._names:
            self.write()
        return self.read_holders(names)

    def settings(self, queue: str) -> QueueSettings:
        """The settings of a queue."""
        if (known := self._settings.get(queue)) is None:
            self.load_settings((queue,))
            known = self._settings[queue]
        return known

    def load_settings(self, queues: Iterable[str]) -> None:
        """Read the settings of queues together."""
        self._settings.update(self.read_settings(list(queues)))

    def forget_settings(self, queue: str) -> None:
        self._settings.pop(queue, None)

    def tallied(self, queues: Sequence[str], states: Iterable[State]) -> dict[str, int]:
        """How many jobs of these queues are in these states, with the changes of this transaction."""
        self.write()
        wanted = frozenset(states)
        counts = dict.fromkeys(queues, 0) | self.read_tallies(queues, wanted)
        for ((queue, _, _), _, state), n in self.tallies.items():
            if state in wanted and queue in counts:
                counts[queue] += n
        return counts

    def count(self, row: Row, what: str, took: int | None = None) -> None:
        """Add one to a total."""
        self.totals.count(row.name, row.priority, what, took=took)

    def count_settled(self, row: Row, settlement: Settlement) -> None:
        """Add an accepted settlement to the totals."""
        self.totals.settle(row.name, row.priority, settlement, self.wall)

    # -- events --------------------------------------------------------------------------------------------------------

    def record(self, row: Row, kind: str, by: str, **changed: Any) -> None:
        """Publish an event of a job and keep it in its history."""
        self.record_event(row, Event(n=row.n + 1, kind=kind, job=row.id, at=self.at, by=by, **changed))

    def record_event(self, row: Row, event: Event) -> None:
        """Publish an event of a job and keep it in its history, which is shortened when it gets too long."""
        row.n = event.n
        line = row.lines.write(event)
        self.published.append((event, line))
        row.history = row.lines.joined(row.history, line)
        if may_shorten(event.n):
            row.history = row.lines.shorten(row.first_event(), row.history)

    def publish(self, event: Event) -> None:
        """Publish an event that no history keeps."""
        self.published.append((event, self.row_type.lines.write(event)))

    def wake(self, topic: str) -> None:
        """Wake the watchers of a topic after the commit."""
        self.topics.add(topic)

    # -- savepoints ----------------------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Write all that was changed so far, and note what was collected, so that `rewind` can return to here."""
        self.write()
        self.gauges.save()
        tallies, totals, topics = Counter(self.tallies), self.totals.copy(), set(self.topics)
        return Mark(tallies, totals, len(self.published), topics, set(self.gauges.freed), dict(self.left_calls))

    def rewind(self, mark: Mark) -> None:
        """Return to a mark, after the store has undone what was written since. What was read is read again."""
        self.tallies, self.totals, _, self.topics, _, self.left_calls = mark
        del self.published[mark.published :]
        self.gauges.forget()
        self.gauges.freed.update(mark.freed)
        self._flights = None
        self._rows.clear()
        self._changed.clear()
        self._dropped.clear()
        self._keys.clear()
        self._names.clear()
        self._settings.clear()

    # -- what a store may do better -----------------------------------------------------------------------------------

    def take_heads(self, heads: Sequence[Head]) -> dict[int, Row]:
        """Lock these jobs and read the rest of them; those that another claim has taken meanwhile are left out."""
        return self.load([head.seq for head in heads])

    def load_free(self, seqs: Iterable[int]) -> dict[int, Row]:
        """`load`, without the jobs that another transaction has locked: to wait for them could be a deadlock."""
        return self.load(seqs)

    def take_mates(self, mates: Sequence[Mate]) -> dict[int, Row]:
        """Lock these jobs, which a batch call takes along, and read them; those that another transaction has taken
        meanwhile are left out."""
        return self.load([mate.seq for mate in mates])

    def fail_fast_among(self, seqs: Sequence[int]) -> set[int]:
        """Those of these jobs that ask not to wait for an open breaker."""
        return {seq for seq, row in self.load(seqs).items() if row.options.fail_fast}

    def clean_id(self, job: str) -> str:
        """The id as the store can look it up: most cannot store every character."""
        return clean(job)

    def max_waiting(self, resource: str) -> int | None:
        """How many jobs may wait for a resource; None is unlimited."""
        return self.gauges[resource].settings.max_waiting

    # -- the fast path of a store: it may refuse, it may never differ --------------------------------------------------

    def insert_plain(self, specs: Sequence[JobSpec], *, bounded: bool) -> list[Inserted] | None:  # noqa: ARG002
        """Insert jobs that need nothing special; None, with nothing changed, if one of them does."""
        return None

    def find_plain(self, settlements: Sequence[Settlement]) -> Container[int]:  # noqa: ARG002
        """The jobs, by number, that `complete_plain` may end with these settlements."""
        return ()

    def complete_plain(self, settlement: Settlement) -> None:
        """Write the settlement of one of these jobs."""
        raise NotImplementedError

    def lease_plain(self, heads: Sequence[Head], claim: Claim, begin: int | None) -> list[Lease] | None:  # noqa: ARG002
        """Lease jobs whose resources are taken already; None, with nothing changed, if one of them needs more. Those
        after the first `begin` are leased ahead of time."""
        return None
