"""What becomes of jobs with a flight: they lead it, follow, or are completed with a known result.

All of it belongs to the transaction in which a job is inserted, falls due, comes back or ends. What would be too much
for one is marked in the entry (`FlightEntry.landing`), and `land_due` takes it up."""

from __future__ import annotations

from collections.abc import Iterator

from daybreak.core.flights import (
    DROPPED_PER_COMMIT,
    FIRST_TO_DROP,
    FOLLOWERS_PER_COMMIT,
    flight_cause,
    has_room,
    result_note,
    room_of,
    until_of,
)
from daybreak.core.model import WAITING, Settlement, State
from daybreak.core.units import span
from daybreak.store.protocol import Uncache, Uncached, Verdict
from daybreak.stores.kernel import flights, moves
from daybreak.stores.kernel.port import FlightEntry
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.transaction import Transaction

# -- where a job belongs -----------------------------------------------------------------------------------------------


def join(tx: Transaction, row: Row) -> Verdict:
    """Decide what a queued job with a flight does: it has its result at once, follows the leader or leads. The event
    that brought it here is recorded already."""
    if row.flight is None or row.state is not State.QUEUED:
        return Verdict.NEW
    entry = tx.flights[row.flight]
    if entry is not None and entry.is_usable(tx.steady):
        _complete(tx, row, entry, "cached")
        return Verdict.CACHED
    if entry is not None and entry.is_known and not entry.landing:
        tx.flights.drop(entry)  # its time is over
        entry = None
    if entry is None:
        tx.flights.add(row, leader=row.seq)
        return Verdict.NEW
    if entry.leader is None or entry.leader == row.seq:
        return Verdict.NEW
    return _follow(tx, row, entry)


def _follow(tx: Transaction, row: Row, entry: FlightEntry) -> Verdict:
    leader = tx.flights.leader(entry)
    if leader is None:
        entry.leader = row.seq
        tx.flights.change(entry)
        return Verdict.NEW
    if leader.queue != row.queue:  # that queue may be paused, or have no worker
        return Verdict.NEW
    row.state, row.cause = State.BLOCKED, flight_cause(row.flight or "")
    tx.record(row, "blocked", "", state=State.BLOCKED, note=row.cause)
    tx.change(row)
    urge(tx, row, by=row.spec.by)
    return Verdict.FOLLOWS


def urge(tx: Transaction, row: Row, *, by: str) -> None:
    """If a follower is more urgent than a leader that waits, the leader gets its priority."""
    if row.flight is None or not flights.is_blocked_on(row, flight_cause(row.flight)):
        return
    entry = tx.flights[row.flight]
    if entry is None or entry.leader is None:
        return
    leader = tx.flights.leader(entry)
    if leader is None or leader.state not in WAITING or leader.priority <= row.priority:
        return
    leader = tx.load_free((entry.leader,)).get(entry.leader)
    if leader is not None and leader.state in WAITING and leader.priority > row.priority:
        moves.rerank(tx, leader, row.priority, by=by)


def is_known(tx: Transaction, flight: str) -> bool:
    """Whether a job of this flight would be completed at once."""
    entry = tx.flights[flight]
    return entry is not None and entry.is_usable(tx.steady)


# -- results -----------------------------------------------------------------------------------------------------------


def deliver(tx: Transaction, row: Row, settlement: Settlement) -> None:
    """A job of a flight has completed: the flight has its result now, whoever leads it. If it has one already, the job
    keeps its own."""
    if row.flight is None:
        return
    entry = tx.flights[row.flight]
    if entry is not None and (entry.is_usable(tx.steady) or (entry.is_known and entry.landing)):
        return
    if entry is not None and entry.is_known:
        tx.flights.drop(entry)
        entry = None
    if entry is None:
        entry = tx.flights.add(row, leader=row.seq)
    leader, entry.leader = entry.leader, None
    _fill(tx, row, entry, settlement)
    if leader is not None and leader != row.seq:
        other = tx.load_free((leader,)).get(leader)
        if other is not None and other.state in WAITING and other.flight == row.flight:
            moves.release_offers(tx, other)
            _complete(tx, other, entry, "followed")
    _land(tx, entry)
    _make_room(tx, row, entry)


def _fill(tx: Transaction, row: Row, entry: FlightEntry, settlement: Settlement) -> None:
    assert row.options.cache is not None
    entry.is_known, entry.has_new_result = True, True
    entry.result, entry.size = row.result, room_of(row.result or b"")
    entry.job, entry.parts, entry.ran = row.id, row.spec.flight_parts, settlement.ran
    entry.created = entry.used = tx.steady
    entry.until = until_of(row.options.cache, tx.steady)
    tx.flights.point(row, entry)


def _complete(tx: Transaction, row: Row, entry: FlightEntry, counts_as: str) -> None:
    """Complete a waiting job with a known result."""
    row.state, row.reason, row.note = State.COMPLETED, None, ""
    row.failure = row.checkpoint = None
    row.cached_from = entry.job
    tx.flights.point(row, entry)
    entry.hits += 1
    entry.used = tx.steady
    keep = row.options.keep_completed
    moves.close(tx, row, None if keep is None else span(keep))
    tx.count(row, counts_as, entry.ran)
    note = result_note(entry.job)
    tx.record(row, "completed", "", state=State.COMPLETED, attempt=row.attempt, note=note)


# -- followers ---------------------------------------------------------------------------------------------------------


def _land(tx: Transaction, entry: FlightEntry) -> None:
    """Complete the followers of a flight whose result is known, as many as one transaction may."""
    assert entry.flight is not None
    cause = flight_cause(entry.flight)
    tx.write()
    waiting = [seq for seqs in tx.waiting_by_lane(cause, FOLLOWERS_PER_COMMIT + 1) for seq in seqs]
    landed = 0
    for row in tx.load_free(waiting[:FOLLOWERS_PER_COMMIT]).values():
        if flights.is_blocked_on(row, cause):
            _complete(tx, row, entry, "followed")
            landed += 1
    entry.landing = landed < len(waiting)
    tx.flights.change(entry)
    if not entry.landing and not entry.is_usable(tx.steady):
        tx.flights.drop(entry)


def land_due(tx: Transaction, limit: int) -> None:
    """Look after followers that earlier transactions have left: about as many as the limit."""
    for flight in sorted(tx.flights.load_free(tx.landing_flights(1 + limit // FOLLOWERS_PER_COMMIT))):
        entry = tx.flights[flight]
        if entry is None or not entry.landing:
            continue
        if entry.is_known:
            _land(tx, entry)
        else:
            hand_over_again(tx, entry)


def hand_over_again(tx: Transaction, entry: FlightEntry) -> None:
    """Let a follower lead, if none could when the leader left."""
    entry.landing = False
    if entry.leader is None:
        flights.hand_over(tx, entry)
    tx.flights.change(entry)


# -- room --------------------------------------------------------------------------------------------------------------


def _make_room(tx: Transaction, row: Row, entry: FlightEntry) -> None:
    """Drop what was used longest ago, until the task has no more results than it may keep. A result that has no room at
    all is not kept, and no other makes room for it."""
    if entry.flight is None:  # its time was over as soon as its followers had the result
        return
    if not has_room(row.options.cache, 1, entry.size):
        entry.until = tx.steady
        if entry.flight is not None and not entry.landing:
            tx.flights.drop(entry)
        tx.flights.change(entry)
        return
    tx.write()
    count, size = tx.read_room(entry.task)
    if has_room(row.options.cache, count, size):
        return
    for old in _least_used(tx, entry):
        tx.flights.drop(old)
        count, size = count - 1, size - old.size
        if has_room(row.options.cache, count, size):
            return


def _least_used(tx: Transaction, entry: FlightEntry) -> Iterator[FlightEntry]:
    """The other results of a task that may make room, the one that was used longest ago first. Most often the first is
    enough, and all that are read are locked: so only a few are read at first."""
    seen: set[str] = set()
    for limit in (FIRST_TO_DROP, DROPPED_PER_COMMIT):
        keys = [flight for flight in tx.least_used(entry.task, limit) if flight not in seen]
        seen.update(keys)
        free = tx.flights.load_free(keys)
        for flight in keys:
            old = tx.flights[flight] if flight in free else None
            if old is not None and old is not entry and old.is_known and not old.landing:
                yield old
        if len(seen) < limit:
            return


def uncache(tx: Transaction, request: Uncache) -> Uncached:
    """Forget known results, one chunk. What still has followers is forgotten when they are completed."""
    keys = list(request.flights) or tx.known_flights(request.task, request.limit + 1)
    tx.flights.load(keys)
    dropped = 0
    for flight in keys:
        entry = tx.flights[flight]
        if entry is None or not entry.is_known or request.task not in (None, entry.task):
            continue
        if entry.landing and not entry.is_usable(tx.steady):
            continue
        if dropped == request.limit:
            return Uncached(dropped, again=True)
        forget(tx, entry)
        dropped += 1
    return Uncached(dropped, again=False)


def forget(tx: Transaction, entry: FlightEntry) -> None:
    """Let no later job have a known result. It is still for those that follow, if some do."""
    if not entry.landing:
        tx.flights.drop(entry)
    elif entry.is_usable(tx.steady):
        entry.until = tx.steady
        tx.flights.change(entry)


def drop_lapsed(tx: Transaction, limit: int) -> int:
    """Drop results that may not be used any more, up to a limit."""
    keys = tx.lapsed_flights(limit)
    for flight in tx.flights.load_free(keys):
        entry = tx.flights[flight]
        if entry is not None and entry.is_known and not entry.landing and not entry.is_usable(tx.steady):
            tx.flights.drop(entry)
    return len(keys)
