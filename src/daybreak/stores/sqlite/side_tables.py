"""The tables beside those of the jobs: lanes, settings, names, counts, gauges and records, in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import apsw
import msgspec

from daybreak.core.model import DEFAULT_QUEUE, NO_GATE, UNLIMITED, Gate, Put, QueueSettings, ResourceSettings, State
from daybreak.core.resource_gauge import Gauge, Reservation
from daybreak.stores.kernel.port import KeyEntry, NameChange, NewKey, NextDue
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.sqlite.cache import StoreCache
from daybreak.stores.sqlite.changes import Changes
from daybreak.stores.sqlite.rows import Values
from daybreak.stores.sqlite.statements import sql


class SideTables(Transaction):
    """One request in a transaction. `before` are the changes of earlier requests in the same transaction."""

    def __init__(
        self, db: apsw.Connection, cache: StoreCache, wall: int, steady: int, before: Sequence[Changes] = ()
    ) -> None:
        super().__init__(wall, steady)
        self.db = db
        self.cache = cache
        self.execute = db.execute
        self.executemany = db.executemany
        self._before = before
        self._next_due: NextDue | None = None

    def all(self, statement: str, bindings: Values = ()) -> list[Any]:
        """All rows of a statement."""
        return self.execute(statement, bindings).fetchall()

    def column(self, statement: str, bindings: Values = ()) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self.execute(statement, bindings)]

    def value(self, statement: str, bindings: Values = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        row = self.execute(statement, bindings).fetchone()
        return None if row is None else row[0]

    # -- lanes and settings --------------------------------------------------------------------------------------------

    def lane(self, name: LaneName) -> int:
        """The number of a lane, which is created if it is new."""
        if (number := self.cache.lanes.get(name)) is None:
            self.load_lanes()
            if (number := self.cache.lanes.get(name)) is None:
                number = int(self.value(sql.insert_lane, name))
                self.cache.add_lane(number, name)
        return number

    def name_of(self, lane: int) -> LaneName:
        self.load_lanes()
        return self.cache.names[lane]

    def lanes_of(self, queue: str, tasks: frozenset[tuple[str, int]] | None) -> list[int]:
        """The lanes of a queue, as far as they belong to these tasks."""
        self.load_lanes()
        lanes = self.cache.of_queue.get(queue, ())
        return [number for task, version, number in lanes if tasks is None or (task, version) in tasks]

    def load_lanes(self) -> None:
        if not self.cache.lanes:
            for number, *name in self.execute(sql.all_lanes):
                self.cache.add_lane(number, tuple(name))

    def read_settings(self, queues: Sequence[str]) -> Mapping[str, QueueSettings]:
        known = self.cache.settings
        for queue in queues:
            if queue not in known:
                row = self.execute(sql.get_record, ("queue", queue)).fetchone()
                known[queue] = msgspec.json.decode(row[1], type=QueueSettings) if row else DEFAULT_QUEUE
        return {queue: known[queue] for queue in queues}

    def write_settings(self, queue: str, settings: QueueSettings | None) -> None:
        self.cache.settings[queue] = settings or DEFAULT_QUEUE

    # -- keys and unique names -----------------------------------------------------------------------------------------

    def read_keys(self, keys: Sequence[str]) -> dict[str, KeyEntry]:
        found = {}
        for key in keys:
            if (entry := self.execute(sql.key_of, (key,)).fetchone()) is not None:
                found[key] = KeyEntry(*entry)
        return found

    def write_keys(self, keys: Sequence[NewKey]) -> None:
        self.executemany(sql.insert_key, keys)

    def free_keys(self, job: str) -> None:
        self.execute(sql.delete_keys, (job,))

    def spend_keys(self, row: Row, keys_for: int, since: int | None) -> None:
        self.execute(sql.spend_keys, (keys_for, since, row.arrived, row.id))

    def purge_keys(self, limit: int) -> int:
        self.execute(sql.purge_keys, (self.steady, limit))
        return self.db.changes()

    def read_holders(self, names: Sequence[str]) -> dict[str, int]:
        return {name: seq for name in names if (seq := self.value(sql.holder_of, (name,))) is not None}

    def write_names(self, changes: Sequence[NameChange]) -> None:
        for statement, kind in ((sql.insert_unique, "take"), (sql.delete_unique, "release")):
            if named := [change[:2] for change in changes if change.kind == kind]:
                self.executemany(statement, named)
        if freed := [(change.name,) for change in changes if change.kind == "free"]:
            self.executemany(sql.free_unique, freed)

    # -- counts --------------------------------------------------------------------------------------------------------

    def read_tallies(self, queues: Sequence[str], states: frozenset[State]) -> dict[str, int]:
        if self.cache.tallies is None:
            self.cache.tallies = Counter(
                {(self.name_of(lane), p, State(s)): n for lane, p, s, n in self.execute(sql.all_tallies)}
            )
        counts = dict.fromkeys(queues, 0)
        for tallies in (self.cache.tallies, *(part.tallies for part in self._before)):
            for ((queue, _, _), _, state), n in tallies.items():
                if state in states and queue in counts:
                    counts[queue] += n
        return counts

    # -- gauges --------------------------------------------------------------------------------------------------------

    def read_gauges(self, names: Sequence[str]) -> Mapping[str, Gauge]:
        known = self.cache.gauges
        for name in names:
            if name not in known:
                known[name] = self._read_gauge(name)
        return {name: known[name] for name in names}

    def _read_gauge(self, name: str) -> Gauge:
        settings = self.execute(sql.get_record, ("resource", name)).fetchone()
        gate = self.execute(sql.get_record, ("gate", name)).fetchone()
        gauge = Gauge(
            settings=msgspec.json.decode(settings[1], type=ResourceSettings) if settings else UNLIMITED,
            gate=msgspec.json.decode(gate[1], type=Gate) if gate else NO_GATE,
        )
        if (found := self.execute(sql.load_gauge, (name,)).fetchone()) is not None:
            gauge.used, gauge.tat, gauge.shut_until, gauge.look, *kept, gauge.fence = found[:8]
            gauge.kept = None if kept[0] is None else Reservation(*kept)
            gauge.sparing_until, gauge.credit, gauge.spare_at, gauge.taken_at = found[8:]
        return gauge

    def write_gauges(self, gauges: Mapping[str, Gauge]) -> None:
        self._next_due = None
        for name, gauge in gauges.items():
            kept = gauge.kept or (None, None, None)
            numbers = (gauge.used, gauge.tat, gauge.shut_until, gauge.look, *kept, gauge.fence)
            sparing = (gauge.sparing_until, gauge.credit, gauge.spare_at)
            self.execute(sql.put_gauge, (name, *numbers, *sparing, gauge.taken_at))
        self.cache.gauges.update(gauges)

    def gauges_to_look_at(self, limit: int) -> list[str]:
        return self.column(sql.gauges_to_look_at, (self.steady, limit))

    # -- records and the feed ------------------------------------------------------------------------------------------

    def read_revision(self, kind: str, name: str) -> int:
        return self.value(sql.get_record, (kind, name)) or 0

    def next_revision(self) -> int:
        revision: int = (self.value(sql.get_meta, ("revision",)) or 0) + 1
        self.execute(sql.set_meta, ("revision", revision))
        return revision

    def write_record(self, put: Put, revision: int) -> None:
        if put.value is None:
            self.execute(sql.delete_record, (put.kind, put.name))
        else:
            self.execute(sql.put_record, (put.kind, put.name, revision, put.value))

    def purge_feed(self, before: int, limit: int) -> tuple[int, bool]:
        # The oldest rows up to the first newer one, in the order of commits: a clock that was set back leaves no gap.
        stale = list(takewhile(lambda row: row[1] <= before, self.execute(sql.oldest_feed, (limit,))))
        if stale:
            self.execute(sql.purge_feed, (stale[-1][0],))
            self.execute(sql.empty_feed, (stale[-1][0],))
        return sum(lines.count(b"\n") + 1 for _, _, lines in stale), len(stale) == limit

    def keep_time(self) -> None:
        """Store the steady time, so that it does not go back over a boot, whatever the wall clock says then."""
        self.execute(sql.set_meta, ("steady", self.steady))

    def give_back_pages(self) -> None:
        """Return free pages to the disk, a few at a time, if there are many."""
        free, total = self.db.pragma("freelist_count"), self.db.pragma("page_count")
        if free > 1000 and free > total // 4:
            self.all("PRAGMA incremental_vacuum(1000)")
