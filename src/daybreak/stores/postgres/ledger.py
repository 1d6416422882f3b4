"""The state of one transaction: the store's clock, lanes and queue settings, and what is written once, at the end:
tallies, totals, events and topics."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from daybreak.core.events import Event
from daybreak.core.model import DEFAULT_QUEUE, QueueSettings, State
from daybreak.core.units import moment
from daybreak.store.protocol import EVENTS_TOPIC
from daybreak.stores.postgres import event_lines, faults
from daybreak.stores.postgres.arrays import Bigints, Ints, Smallints, Texts
from daybreak.stores.postgres.clock import SERVER_TIME
from daybreak.stores.postgres.gauge_rows import Gauges
from daybreak.stores.postgres.rows import LaneName
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.totals import Totals

EVENTS_PER_FEED_ROW = 500
READY_OR_DELAYED = frozenset({State.QUEUED, State.SCHEDULED})

Cell = tuple[int, int, str]  # lane, priority, state


class StatementRunner(Protocol):
    """Runs statements: a connection inside a transaction."""

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def run(self, statement: str, params: Sequence[Any] = ()) -> int: ...


class Lanes:
    """The lanes that this process has seen. A lane never changes and is never deleted."""

    def __init__(self) -> None:
        self.numbers: dict[LaneName, int] = {}
        self.names: dict[int, LaneName] = {}

    def add(self, number: int, name: LaneName) -> None:
        self.numbers[name] = number
        self.names[number] = name

    def copy(self) -> Lanes:
        """A copy for a transaction that adds lanes: they exist only after its commit."""
        copied = Lanes()
        copied.numbers, copied.names = dict(self.numbers), dict(self.names)
        return copied

    def update(self, other: Lanes) -> None:
        self.numbers.update(other.numbers)
        self.names.update(other.names)


class SequenceCache:
    """Numbers that a transaction has drawn from sequences. A rollback does not return them to the sequence, so a
    transaction that starts over uses them first."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._unused: dict[str, list[int]] = {}

    def take(self, statement: str, count: int, rows: Callable[..., list[Any]]) -> list[int]:
        unused = self._unused.setdefault(statement, [])
        if (missing := count - len(unused)) > 0:
            fresh = [number for (number,) in rows(statement, (missing,))]
            self._numbers.setdefault(statement, []).extend(fresh)
            unused += fresh
        taken, self._unused[statement] = unused[:count], unused[count:]
        return taken

    def rewind(self) -> None:
        self._unused = {statement: list(numbers) for statement, numbers in self._numbers.items()}


class Ledger:
    """`time` is wall time; steady time is `time` minus `offset`. `is_given`: the caller passed the time in, so it
    stands still."""

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
        self.sql = sql
        self._sequences = sequences or SequenceCache()
        self.rows = db.rows
        self.run = db.run
        self._is_given = is_given
        self._offset = offset
        self._set_time(time)
        self.locked: dict[int, State] = {}  # jobs that no other transaction can move until this one ends
        self.tallies: Counter[Cell] = Counter()
        self.totals = Totals()
        self.published: list[tuple[str, str]] = []
        self.topics: set[str] = set()
        self.deleted_rows = 0  # rows deleted from the tables `ready` and `delayed`
        self.lanes = lanes
        self._are_lanes_loaded = False
        self._settings: dict[str, QueueSettings] = {}
        self._locked_queues: set[str] = set()
        self._gauges: Gauges | None = None

    def _set_time(self, time: int) -> None:
        self.wall, self.steady = time, time - self._offset
        self.at = moment(time)

    def value(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        found = self.rows(statement, params)
        return found[0][0] if found else None

    def in_savepoint(self, do: Callable[[], None]) -> None:
        """Run `do` in a savepoint. If it raises, everything is as before, here and in the database."""
        before = Counter(self.tallies), list(self.published), set(self.topics), dict(self.locked), self.lanes
        totals, gauges = self.totals.copy(), self._gauges and self._gauges.copy()
        self.run("SAVEPOINT tried")
        try:
            do()
        except Exception as error:
            with contextlib.suppress(Exception):  # the connection may be lost
                self.run("ROLLBACK TO SAVEPOINT tried")
            self.tallies, self.published, self.topics, self.locked, self.lanes = before
            self.totals, self._gauges = totals, gauges
            self._are_lanes_loaded = False
            raise error from None
        self.run("RELEASE SAVEPOINT tried")

    # -- lanes, settings, locks ----------------------------------------------------------------------------------------

    def lane(self, queue: str, task: str, version: int) -> int:
        name = (queue, task, version)
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

    def settings(self, queue: str) -> QueueSettings:
        if queue not in self._settings:
            self.load_settings([queue])
        return self._settings[queue]

    def load_settings(self, queues: Iterable[str]) -> None:
        names = list(queues)
        self._settings.update(dict.fromkeys(names, DEFAULT_QUEUE))
        for name, paused, max_running, capacity, sheds, aging, patience, weight in self.rows(
            self.sql.get_queues, (Texts(names),)
        ):
            self._settings[name] = QueueSettings(
                paused=paused,
                max_running=max_running,
                capacity=capacity,
                when_full="shed" if sheds else "refuse",
                discipline="aging" if aging else "fifo",
                patience=timedelta(microseconds=patience),
                weight=weight,
            )

    def forget_settings(self, queue: str) -> None:
        self._settings.pop(queue, None)

    def lock_limits(self, queues: Iterable[str]) -> None:
        """Lock these queues until the end of the transaction. Only counts that are read afterwards are exact."""
        wanted = [queue for queue in queues if queue not in self._locked_queues]
        if wanted:
            self.rows(self.sql.lock_queues, (Texts(wanted),))
            if not self._is_given:  # the wait for the lock took time, and a lease counts from when it is granted
                self._set_time(max(self.wall, self.value(SERVER_TIME)))
            self._locked_queues.update(wanted)
            self.load_settings(wanted)

    def lock_resources(self) -> None:
        """Take the lock on all resources until the end of the transaction. It must be the transaction's first lock."""
        time = self.value(self.sql.lock_gauges)
        if not self._is_given:
            self._set_time(max(self.wall, time))
        self._gauges = Gauges(self.sql, self.rows, self.run)

    @property
    def has_resource_lock(self) -> bool:
        return self._gauges is not None

    @property
    def gauges(self) -> Gauges:
        """The resources. Without the resource lock this raises NeedsResourceLock, and the transaction starts over."""
        if self._gauges is None:
            raise faults.NeedsResourceLock
        return self._gauges

    def require_resource_lock(self) -> None:
        if self._gauges is None:
            raise faults.NeedsResourceLock

    def next_seqs(self, count: int) -> list[int]:
        return self._sequences.take(self.sql.next_seqs, count, self.rows)

    def next_revision(self) -> int:
        [revision] = self._sequences.take(self.sql.next_revisions, 1, self.rows)
        return revision

    # -- counts --------------------------------------------------------------------------------------------------------

    def tally(self, lane: int, priority: int, state: State, by: int = 1) -> None:
        self.tallies[lane, priority, state] += by
        if by < 0 and state in READY_OR_DELAYED:
            self.deleted_rows -= by

    def tallied(self, queues: Sequence[str], states: Iterable[State]) -> dict[str, int]:
        """How many jobs of these queues are in these states, including the changes of this transaction."""
        wanted = [state.value for state in states]
        counts = dict.fromkeys(queues, 0)
        counts.update(self.rows(self.sql.tallied, (Texts(list(queues)), Texts(wanted))))
        for (lane, _, state), n in self.tallies.items():
            if state in wanted and (queue := self.name_of(lane)[0]) in counts:
                counts[queue] += n
        return counts

    # -- events --------------------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> str:
        """Publish an event at the end of the transaction; returns its line for the job's history."""
        line = event_lines.write(event)
        self.published.append((event.job, line))
        return line

    def wake(self, topic: str) -> None:
        self.topics.add(topic)

    # -- commit --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the whole transaction has in common. The feed comes last: its position is drawn while all locks
        are held."""
        if self._gauges is not None:
            self._gauges.save()
        changed = [(lane, priority, str(state), n) for (lane, priority, state), n in self.tallies.items() if n]
        if changed:
            lane, priority, state, n = zip(*changed, strict=True)
            self.run(self.sql.add_tally, (Ints(lane), Smallints(priority), Texts(state), Bigints(n)))
        self.tallies.clear()
        if self.totals:
            self.run(self.sql.add_total, self.totals.take_columns())
        for start in range(0, len(self.published), EVENTS_PER_FEED_ROW):
            ids, runs, texts = event_lines.feed_row(self.published[start : start + EVENTS_PER_FEED_ROW])
            self.run(self.sql.insert_feed, (self.steady, ids, Ints(runs), texts))
        if self.published:
            self.topics.add(EVENTS_TOPIC)
        self.published.clear()
