"""The tables of the cache: flights, their results, and the room that they take up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from daybreak.stores.kernel.port import FlightEntry
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Ints, Texts
from daybreak.stores.postgres.name_tables import LOCK_CLASSES, NameTables

MAX_RESERVED: Final = 256
unpack_parts = msgspec.json.Decoder(dict[str, str]).decode


class FlightTables(NameTables):
    """The tables `flight`, `result` and `room`."""

    _entry_numbers: Sequence[int] = ()
    _reserved = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rooms: dict[str, tuple[int, int]] = {}  # what this transaction adds

    def lock_free_flights(self, flights: Sequence[str]) -> list[str]:
        wanted = Texts(flights)
        found = self.rows(self.sql.lock_free_flights, (wanted, LOCK_CLASSES["flight"], wanted))
        return [flight for (flight,) in found]

    def read_flights(self, flights: Sequence[str]) -> dict[str, FlightEntry]:
        return {row[1]: _entry(row) for row in self.rows(self.sql.load_flights, (Texts(flights),))}

    def read_entries(self, numbers: Sequence[int]) -> list[FlightEntry]:
        """An entry that is dropped while this transaction waits for its name has none afterwards; it never gets another
        one."""
        wanted = Bigints(numbers)
        self.lock_names("flight", [flight for (flight,) in self.rows(self.sql.flights_of_entries, (wanted,))])
        return [_entry(row) for row in self.rows(self.sql.load_entries, (wanted,))]

    def next_entry(self) -> int:
        if not self._entry_numbers:
            self._reserved = min(max(1, 2 * self._reserved), MAX_RESERVED)
            self._entry_numbers = [number for (number,) in self.rows(self.sql.next_flights, (self._reserved,))]
        number, *self._entry_numbers = self._entry_numbers
        return number

    def write_entries(self, entries: Sequence[FlightEntry]) -> None:
        gone = [entry.number for entry in entries if entry.is_gone]
        if gone:
            self.run(self.sql.delete_flights, (Bigints(gone),))
            self.run(self.sql.delete_results, (Bigints(gone),))
        kept = [entry for entry in entries if not entry.is_gone]
        # First those that have lost their flight: another entry may have it now.
        for group in ([e for e in kept if e.flight is None], [e for e in kept if e.flight is not None]):
            if group:
                self.run(self.sql.put_flights, _columns(group))
        if results := [entry for entry in kept if entry.has_new_result]:
            numbers, values = Bigints([e.number for e in results]), Blobs([e.result for e in results])
            self.run(self.sql.insert_results, (numbers, values))

    def add_room(self, task: str, entries: int, size: int) -> None:
        """Written at the end: until then, nobody waits for the row of the task."""
        before = self._rooms.get(task, (0, 0))
        self._rooms[task] = (before[0] + entries, before[1] + size)

    def read_room(self, task: str) -> tuple[int, int]:
        found = self.rows(self.sql.read_room, (task,))
        count, size = found[0] if found else (0, 0)
        more = self._rooms.get(task, (0, 0))
        return count + more[0], size + more[1]

    def write_rooms(self) -> None:
        """Write what this transaction adds to the room of tasks."""
        for task, (entries, size) in sorted(self._rooms.items()):
            self.run(self.sql.add_room, (task, entries, size))
        self._rooms.clear()

    def least_used(self, task: str, limit: int) -> list[str]:
        return self._flights_of(self.sql.least_used_flights, task, limit)

    def known_flights(self, task: str | None, limit: int) -> list[str]:
        return self._flights_of(self.sql.known_flights, task, self.steady, limit)

    def lapsed_flights(self, limit: int) -> list[str]:
        return self._flights_of(self.sql.lapsed_flights, self.steady, limit)

    def landing_flights(self, limit: int) -> list[str]:
        return self._flights_of(self.sql.landing_flights, limit)

    def _flights_of(self, statement: str, *params: object) -> list[str]:
        return [flight for (flight,) in self.rows(statement, params)]


def _columns(entries: Sequence[FlightEntry]) -> tuple[Any, ...]:
    return (
        Bigints([e.number for e in entries]), Texts([e.flight for e in entries]), Texts([e.task for e in entries]),
        Ints([e.version for e in entries]), Bigints([e.created for e in entries]), Bigints([e.used for e in entries]),
        Bigints([e.leader for e in entries]), Bools([e.landing for e in entries]),
        Bools([e.is_known for e in entries]), Texts([e.job for e in entries]),
        Texts([msgspec.json.encode(e.parts).decode() for e in entries]), Bigints([e.size for e in entries]),
        Bigints([e.ran for e in entries]), Bigints([e.until for e in entries]), Bigints([e.hits for e in entries]),
        Bigints([e.refs for e in entries]),
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> FlightEntry:
    (number, flight, task, version, created, used, leader, landing, is_known, job, parts, size, ran, until, hits,
     refs) = row  # fmt: skip
    return FlightEntry(
        number=number, flight=flight, task=task, version=version, created=created, used=used, leader=leader,
        landing=landing, is_known=is_known, job=job, parts=unpack_parts(parts), size=size, ran=ran, until=until,
        hits=hits, refs=refs,
    )  # fmt: skip
