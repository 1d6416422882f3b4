"""The tables of the cache, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from daybreak.stores.kernel.port import FlightEntry
from daybreak.stores.sqlite.rows import Values
from daybreak.stores.sqlite.side_tables import SideTables
from daybreak.stores.sqlite.statements import sql

unpack_parts = msgspec.json.Decoder(dict[str, str]).decode


class FlightTables(SideTables):
    """One request in a transaction: flights and known results."""

    _last_entry: int | None = None

    def read_flights(self, flights: Sequence[str]) -> dict[str, FlightEntry]:
        rows = (self.execute(sql.load_flight, (flight,)).fetchone() for flight in flights)
        return {row[1]: _entry(row) for row in rows if row is not None}

    def read_entries(self, numbers: Sequence[int]) -> list[FlightEntry]:
        return [_entry(row) for number in numbers for row in self.execute(sql.load_entry, (number,))]

    def next_entry(self) -> int:
        if self._last_entry is None:
            self._last_entry = int(self.value(sql.last_flight))
        self._last_entry += 1
        return self._last_entry

    def write_entries(self, entries: Sequence[FlightEntry]) -> None:
        self._next_due = None
        if gone := [(entry.number,) for entry in entries if entry.is_gone]:
            self.executemany(sql.delete_flight, gone)
            self.executemany(sql.delete_result, gone)
        # First those that have lost their flight: another entry may have it now.
        kept = sorted((entry for entry in entries if not entry.is_gone), key=lambda entry: entry.flight is not None)
        self.executemany(sql.put_flight, [_values(entry) for entry in kept])
        if results := [(entry.number, entry.result) for entry in kept if entry.has_new_result]:
            self.executemany(sql.insert_result, results)

    def add_room(self, task: str, entries: int, size: int) -> None:
        self.execute(sql.add_room, (task, entries, size))

    def read_room(self, task: str) -> tuple[int, int]:
        return self.execute(sql.read_room, (task,)).fetchone() or (0, 0)

    def least_used(self, task: str, limit: int) -> list[str]:
        return self.column(sql.least_used_flights, (task, limit))

    def known_flights(self, task: str | None, limit: int) -> list[str]:
        return self.column(sql.known_flights, (task, self.steady, limit))

    def lapsed_flights(self, limit: int) -> list[str]:
        return self.column(sql.lapsed_flights, (self.steady, limit))

    def landing_flights(self, limit: int) -> list[str]:
        return self.column(sql.landing_flights, (limit,))


def _values(entry: FlightEntry) -> Values:
    return (
        entry.number, entry.flight, entry.task, entry.version, entry.created, entry.used, entry.leader, entry.landing,
        entry.is_known, entry.job, msgspec.json.encode(entry.parts).decode(), entry.size, entry.ran, entry.until,
        entry.hits, entry.refs,
    )  # fmt: skip


def _entry(row: Values) -> FlightEntry:
    (number, flight, task, version, created, used, leader, landing, is_known, job, parts, size, ran, until, hits,
     refs) = row  # fmt: skip
    return FlightEntry(
        number=number, flight=flight, task=task, version=version, created=created, used=used, leader=leader,
        landing=bool(landing), is_known=bool(is_known), job=job, parts=unpack_parts(parts), size=size, ran=ran,
        until=until, hits=hits, refs=refs,
    )  # fmt: skip
