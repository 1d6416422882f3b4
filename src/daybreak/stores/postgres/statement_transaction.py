"""What all parts of a transaction share: its statements, its time, the numbers of lanes, and what it has locked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from daybreak.stores.kernel.row import LaneName
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.postgres.lanes import Lanes
from daybreak.stores.postgres.sequences import SequenceCache
from daybreak.stores.postgres.statements import Statements


class StatementRunner(Protocol):
    """Runs statements: a connection inside a transaction."""

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def run(self, statement: str, params: Sequence[Any] = ()) -> int: ...


class StatementTransaction(Transaction):
    """`wall` is the server's time; steady time is `wall` minus `offset`. `is_given`: the caller passed the time in, so
    it stands still."""

    def __init__(
        self,
        db: StatementRunner,
        sql: Statements,
        lanes: Lanes,
        time: int,
        *,
        offset: int = 0,
        is_given: bool = False,
        sequences: SequenceCache | None = None,
    ) -> None:
        super().__init__(time, time - offset)
        self.sql = sql
        self.rows = db.rows
        self.run = db.run
        self.lanes = lanes
        self._is_given = is_given
        self._offset = offset
        self._sequences = sequences or SequenceCache()
        self._count_new: Callable[[], int] | None = None
        self._locked: set[int] = set()  # jobs that no other transaction can move until this one ends
        self._are_lanes_loaded = False
        self._locked_queues: set[str] = set()
        self._has_resource_lock = False
        self._waiting: Counter[str] = Counter()  # jobs blocked on each loaded resource
        self._recounted: set[str] = set()  # resources whose count of waiting jobs must be written
        self._spent_keys: list[tuple[str, int, int | None, int]] = []
        self._freed_keys: list[str] = []

    def value(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        found = self.rows(statement, params)
        return found[0][0] if found else None

    def seqs(self, statement: str, *params: object) -> list[int]:
        """A column of job numbers."""
        return [seq for (seq,) in self.rows(statement, params)]

    def _advance_time(self, wall: int) -> None:
        wall = max(self.wall, wall)
        self.set_time(wall, wall - self._offset)

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def lane(self, name: LaneName) -> int:
        """The number of a lane, which is created if it does not exist."""
        if (number := self.lanes.numbers.get(name)) is None:
            self._load_lanes()
            if (number := self.lanes.numbers.get(name)) is None:
                self.lanes = self.lanes.copy()
                self.run(self.sql.insert_lane, name)
                self._are_lanes_loaded = False
                self._load_lanes()
                number = self.lanes.numbers[name]
        return number

    def name_of(self, lane: int) -> LaneName:
        if lane not in self.lanes.names:
            self._are_lanes_loaded = False
            self._load_lanes()
        return self.lanes.names[lane]

    def lanes_of(
        self, queue: str | None, tasks: frozenset[tuple[str, int]] | None = None, task: str | None = None
    ) -> list[int]:
        """The lanes of a queue, of some tasks, or of one task in all its versions."""
        self._load_lanes()
        return [
            number
            for (of_queue, of_task, version), number in list(
                self.lanes.numbers.items()
            )  # a copy, because other threads add to it
            if queue in (None, of_queue) and task in (None, of_task) and (tasks is None or (of_task, version) in tasks)
        ]

    def _load_lanes(self) -> None:
        """Load the lanes as this transaction sees them: other processes may have added some."""
        if not self._are_lanes_loaded:
            for number, *name in self.rows(self.sql.all_lanes):
                self.lanes.add(number, tuple(name))
            self._are_lanes_loaded = True
