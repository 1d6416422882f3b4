"""The entries of the cache that a transaction has loaded, and who leads a flight.

A flight is all jobs that would compute the same result. One of them leads it and runs; those that follow wait for its
result, in the same queue. Locks are taken in this order: jobs, then flights by name, then other jobs of these flights,
but only if nobody else has them locked (`Transaction.load_free`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from daybreak.core.flights import flight_cause, flight_of
from daybreak.core.model import JobSpec, State
from daybreak.stores.kernel.port import FlightEntry
from daybreak.stores.kernel.row import Row

if TYPE_CHECKING:
    from daybreak.stores.kernel.transaction import Transaction

Counted = tuple[bool, int]  # whether a result takes up room, and how much


class Flights:
    """Loads entries on demand and writes the changed ones in `save`."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._by_flight: dict[str, FlightEntry | None] = {}
        self._by_number: dict[int, FlightEntry] = {}
        self._counted: dict[int, Counted] = {}  # as the store has counted it
        self._changed: dict[int, FlightEntry] = {}
        self._leaders: dict[int, Row | None] = {}

    def load(self, flights: Iterable[str | None]) -> None:
        """Lock flights by name, and read them together."""
        wanted = sorted({flight for flight in flights if flight is not None and flight not in self._by_flight})
        if not wanted:
            return
        self._tx.lock_names("flight", wanted)
        self._read(wanted)

    def load_free(self, flights: Iterable[str]) -> set[str]:
        """Lock and read those that nobody else has locked, and return all that this transaction has locked."""
        wanted = set(flights)
        unknown = sorted(wanted - self._by_flight.keys())
        if unknown and (free := self._tx.lock_free_flights(unknown)):
            self._read(free)
        return wanted & self._by_flight.keys()

    def _read(self, flights: Sequence[str]) -> None:
        found = self._tx.read_flights(flights)
        for flight in flights:
            entry = found.get(flight)
            self._by_flight[flight] = None if entry is None else self._keep(entry)

    def load_entries(self, numbers: Iterable[int | None]) -> None:
        """Read the entries that jobs point to together."""
        wanted = sorted({number for number in numbers if number is not None and number not in self._by_number})
        if wanted:
            for entry in self._tx.read_entries(wanted):
                self._keep(entry)

    def _keep(self, entry: FlightEntry) -> FlightEntry:
        known = self._by_number.setdefault(entry.number, entry)
        self._counted.setdefault(entry.number, (entry.counts, entry.size))
        return known

    def __getitem__(self, flight: str) -> FlightEntry | None:
        """The entry of a flight."""
        self.load((flight,))
        return self._by_flight[flight]

    def add(self, row: Row, *, leader: int | None) -> FlightEntry:
        """A new entry for the flight of a job, which has none."""
        assert row.flight is not None
        _, task, version = row.name
        now = self._tx.steady
        entry = FlightEntry(
            number=self._tx.next_entry(), flight=row.flight, task=task, version=version, created=now, used=now,
            leader=leader,
        )  # fmt: skip
        self._by_flight[row.flight] = self._by_number[entry.number] = self._changed[entry.number] = entry
        self._counted[entry.number] = (False, 0)
        return entry

    def leader(self, entry: FlightEntry) -> Row | None:
        """The job that leads a flight, not to be changed. Its priority may have changed since it was read."""
        assert entry.leader is not None
        if (row := self._tx.loaded(entry.leader)) is not None:
            return row
        if entry.leader not in self._leaders:
            self._leaders[entry.leader] = self._tx.peek(entry.leader)
        return self._leaders[entry.leader]

    def change(self, entry: FlightEntry) -> None:
        """Mark an entry as changed."""
        self._changed[entry.number] = entry

    def drop(self, entry: FlightEntry) -> None:
        """Drop an entry from the cache. Its result lives until no job points to it."""
        assert entry.flight is not None
        self._by_flight[entry.flight] = None
        entry.flight = None
        self.change(entry)

    def point(self, row: Row, entry: FlightEntry) -> None:
        """Let a job have its result from an entry."""
        row.result, row.result_of = None, entry.number
        entry.refs += 1
        self.change(entry)

    def release(self, row: Row) -> FlightEntry | None:
        """Let a job have no result any more. Returns the entry that it had it from."""
        number, row.result, row.result_of, row.cached_from = row.result_of, None, None, None
        if number is None:
            return None
        self.load_entries((number,))
        entry = self._by_number[number]
        entry.refs -= 1
        self.change(entry)
        return entry

    def save(self) -> None:
        """Write what has changed."""
        if not self._changed:
            return
        entries, self._changed = [self._changed[number] for number in sorted(self._changed)], {}
        rooms: dict[str, tuple[int, int]] = {}
        for entry in entries:
            before, after = self._counted[entry.number], (entry.counts, entry.size)
            if before != after:
                more, bytes_more = rooms.get(entry.task, (0, 0))
                more += after[0] - before[0]
                bytes_more += after[0] * after[1] - before[0] * before[1]
                rooms[entry.task] = (more, bytes_more)
                self._counted[entry.number] = after
        self._tx.write_entries(entries)
        for entry in entries:
            entry.has_new_result = False
        for task, (more, bytes_more) in sorted(rooms.items()):
            self._tx.add_room(task, more, bytes_more)


def lock(tx: Transaction, rows: Iterable[Row], specs: Iterable[JobSpec] = ()) -> None:
    """Lock the flights of these jobs together: one after the other could be a deadlock."""
    flown = [row.flight for row in rows if row.flight is not None]
    flown += [flight for spec in specs if (flight := flight_of(spec)) is not None]
    if flown:
        tx.flights.load(flown)


def free(tx: Transaction, rows: Collection[Row]) -> Collection[Row]:
    """Those of these jobs that may be changed now: their flights are locked, if they have any. The others wait for the
    next transaction: this one has other locks, and to wait for more could be a deadlock."""
    flown = [row.flight for row in rows if row.flight is not None]
    if not flown:
        return rows
    locked = tx.flights.load_free(flown)
    return [row for row in rows if row.flight is None or row.flight in locked]


def leave(tx: Transaction, row: Row) -> None:
    """A job neither waits nor runs any more. If it led its flight, the best-ranked follower does now."""
    if row.flight is None:
        return
    entry = tx.flights[row.flight]
    if entry is not None and entry.leader == row.seq:
        entry.leader = None
        hand_over(tx, entry)


def hand_over(tx: Transaction, entry: FlightEntry) -> None:
    """Let the best-ranked follower lead a flight that has no result and no leader; without followers it is over."""
    assert entry.flight is not None
    cause = flight_cause(entry.flight)
    tx.write()
    firsts = [seq for seqs in tx.waiting_by_lane(cause, 1) for seq in seqs]
    rows = tx.load_free(firsts).values()
    best = min((row for row in rows if is_blocked_on(row, cause)), key=lambda row: row.rank, default=None)
    entry.landing = best is None and bool(firsts)  # others have them locked: whoever looks next lets one lead
    tx.flights.change(entry)
    if best is None:
        if not entry.landing:
            tx.flights.drop(entry)
        return
    entry.leader = best.seq
    best.state, best.cause = State.QUEUED, None
    tx.record(best, "unblocked", "", state=State.QUEUED)
    tx.change(best)


def is_blocked_on(row: Row, cause: str) -> bool:
    """Whether a job waits for this."""
    return row.state is State.BLOCKED and row.cause == cause
