"""What one transaction has read and changed: the store's wall and steady time, its lanes and settings, and the tallies,
totals, events and topics, which are written once, at its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import apsw
import msgspec

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import DEFAULT_QUEUE, UNFINISHED, QueueSettings, State
from daybreak.core.resource_gauge import Gauge
from daybreak.core.units import moment
from daybreak.store.protocol import EVENTS_TOPIC, MAXIMA
from daybreak.stores.sqlite.rows import LaneName, Totals, Values, pack_totals, unpack_totals
from daybreak.stores.sqlite.statements import sql

LINES_PER_ROW = 500

Cell = tuple[int, int, str]  # lane, priority, state


class StoreCache:
    """What a process caches of the file between transactions; valid until another connection commits."""

    def __init__(self) -> None:
        self.lanes: dict[LaneName, int] = {}
        self.names: dict[int, LaneName] = {}
        self.of_queue: dict[str, list[tuple[str, int, int]]] = {}
        self.settings: dict[str, QueueSettings] = {}
        self.revision: int | None = -1  # of the settings
        self.last_seq: int | None = None
        self.last_id: str | None = None
        self.last_pos: int | None = None
        self.tallies: Counter[Cell] | None = None
        self.totals: dict[tuple[int, int], Totals] = {}
        self.gauges: dict[str, Gauge] = {}

    def refreshed(self, db: apsw.Connection) -> StoreCache:
        """The part of this cache that is still valid after a commit of another connection."""
        known = StoreCache()
        found: Any = db.execute(sql.read_state).fetchone()
        known.last_seq, known.last_id, known.last_pos, lanes, known.revision = found
        if known.revision == self.revision:
            known.settings = self.settings
        if lanes == len(self.names):
            known.lanes, known.names, known.of_queue = self.lanes, self.names, self.of_queue
        return known

    def add_lane(self, number: int, name: LaneName) -> None:
        self.lanes[name] = number
        self.names[number] = name
        self.of_queue.setdefault(name[0], []).append((name[1], name[2], number))


@dataclass(slots=True)
class Changes:
    """What one request adds to the transaction; discarded if the request fails."""

    tallies: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))
    totals: list[tuple[int, int, Totals]] = field(default_factory=list)  # lane, priority, the additions
    lines: list[bytes] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)


class Ledger:
    """One request inside a transaction."""

    def __init__(
        self, db: apsw.Connection, known: StoreCache, wall: int, steady: int, before: list[Changes] | None = None
    ) -> None:
        self.db = db
        self.known = known
        self._before = before or []  # the changes of earlier requests in the same transaction
        self.wall = wall
        self.steady = steady
        self.at = moment(wall)
        self.changes = Changes()
        self.freed: set[str] = set()  # resources to offer to waiting jobs before this request ends
        self.gauged: set[str] = set()  # resources whose gauge must be written
        self.execute = db.execute
        self.executemany = db.executemany

    def rows(self, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        return self.db.execute(statement, bindings).fetchall()

    def value(self, statement: str, bindings: tuple[Any, ...] = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        row = self.db.execute(statement, bindings).fetchone()
        return None if row is None else row[0]

    # -- cached -------------------------------------------------------------------------------------------------------

    def lane(self, queue: str, task: str, version: int) -> int:
        name = (queue, task, version)
        self._load_lanes()
        if (number := self.known.lanes.get(name)) is None:
            number = self.value(sql.insert_lane, name)
            self.known.add_lane(number, name)
        return number

    def name_of(self, lane: int) -> LaneName:
        self._load_lanes()
        return self.known.names[lane]

    def lanes_of(self, queue: str, tasks: frozenset[tuple[str, int]] | None) -> list[int]:
        self._load_lanes()
        lanes = self.known.of_queue.get(queue, ())
        return [number for task, version, number in lanes if tasks is None or (task, version) in tasks]

    def _load_lanes(self) -> None:
        if not self.known.lanes:
            for number, *name in self.execute(sql.all_lanes):
                self.known.add_lane(number, tuple(name))

    def settings(self, queue: str) -> QueueSettings:
        if (settings := self.known.settings.get(queue)) is None:
            row = self.execute(sql.get_record, ("queue", queue)).fetchone()
            settings = msgspec.json.decode(row[1], type=QueueSettings) if row else DEFAULT_QUEUE
            self.known.settings[queue] = settings
        return settings

    def next_seqs(self, count: int) -> int:
        """The first of `count` new sequence numbers."""
        if self.known.last_seq is None:
            self.known.last_seq = self.value(sql.last_seq)
        first = self.known.last_seq + 1
        self.known.last_seq += count
        return first

    # -- counts --------------------------------------------------------------------------------------------------------

    def tally(self, lane: int, priority: int, state: str, by: int = 1) -> None:
        self.changes.tallies[lane, priority, state] += by

    def count(self, lane: int, priority: int, added: Totals) -> None:
        """Add to the totals of a lane and priority."""
        self.changes.totals.append((lane, priority, added))

    def tallied(self, queue: str, states: Iterable[State]) -> int:
        """How many jobs of a queue are in these states, including the changes of this transaction."""
        if self.known.tallies is None:
            self.known.tallies = Counter({(lane, p, s): n for lane, p, s, n in self.execute(sql.all_tallies)})
        lanes, names = set(self.lanes_of(queue, None)), {state.value for state in states}
        return sum(
            n
            for tallies in (self.known.tallies, *(part.tallies for part in self._before), self.changes.tallies)
            for (lane, _, state), n in tallies.items()
            if lane in lanes and state in names
        )

    def unfinished(self, queue: str) -> int:
        return self.tallied(queue, UNFINISHED)

    # -- events --------------------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> bytes:
        """Publish an event. Returns its line, which the job's history keeps."""
        line = events.encode(event)
        self.changes.lines.append(line)
        return line

    def wake(self, topic: str) -> None:
        self.changes.topics.add(topic)

    # -- the end -------------------------------------------------------------------------------------------------------

    def flush(self, parts: list[Changes]) -> set[str]:
        """Write the counts and events of all requests of this transaction. Returns the topics to wake after the
        commit."""
        whole = parts[0] if len(parts) == 1 else _merged(parts)
        lines, topics = whole.lines, whole.topics
        self._write_counts(whole)
        if lines:
            if self.known.last_pos is None:
                self.known.last_pos = self.value(sql.last_pos)
            # A follower decodes whole rows, so a row must not grow with the size of the transaction.
            for start in range(0, len(lines), LINES_PER_ROW):
                self.known.last_pos += 1
                row = b"\n".join(lines[start : start + LINES_PER_ROW])
                self.execute(sql.insert_feed, (self.known.last_pos, self.steady, row))
            topics.add(EVENTS_TOPIC)
        return topics

    def _write_counts(self, changes: Changes) -> None:
        rows: list[Values] = [(*cell, n, None) for cell, n in changes.tallies.items() if n]
        changed = {}
        for lane, priority, added in changes.totals:
            changed[lane, priority] = totals = self._totals(lane, priority)
            _add(totals, added)
        rows += [(*where, "totals", 0, pack_totals(totals)) for where, totals in changed.items()]
        if rows:
            self.executemany(sql.add_tally, rows)
        if self.known.tallies is not None:
            self.known.tallies.update(changes.tallies)

    def _totals(self, lane: int, priority: int) -> Totals:
        if (totals := self.known.totals.get((lane, priority))) is None:
            packed = self.value(sql.load_totals, (lane, priority))
            totals = self.known.totals[lane, priority] = {} if packed is None else unpack_totals(packed)
        return totals


def _merged(parts: list[Changes]) -> Changes:
    whole = Changes()
    for part in parts:
        for cell, n in part.tallies.items():
            whole.tallies[cell] += n
        whole.totals += part.totals
        whole.lines += part.lines
        whole.topics |= part.topics
    return whole


def _add(totals: Totals, added: Totals) -> None:
    for what, (n, took) in added.items():
        if (there := totals.get(what)) is None:
            totals[what] = (n, took)
        elif what in MAXIMA:
            totals[what] = max(there, (n, took))
        else:
            totals[what] = (there[0] + n, there[1] + took)
