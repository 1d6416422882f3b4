"""What one transaction knows and has changed: the store's clock, its lanes and settings, and what is written once, at
its end: tallies, totals, events and topics."""

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
from daybreak.stores.postgres.clock import HOW_LATE
from daybreak.stores.postgres.gauge_rows import Gauges
from daybreak.stores.postgres.rows import LaneName
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.totals import Totals

LINES_PER_ROW = 500
IN_LINE = frozenset({State.QUEUED, State.SCHEDULED})

Cell = tuple[int, int, str]  # lane, priority, state


class Runs(Protocol):
    """Whoever runs statements: a connection inside a transaction."""

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def run(self, statement: str, params: Sequence[Any] = ()) -> int: ...


class Lanes:
    """The lanes that a process has seen; one that exists never changes nor goes."""

    def __init__(self) -> None:
        self.numbers: dict[LaneName, int] = {}
        self.names: dict[int, LaneName] = {}

    def add(self, number: int, name: LaneName) -> None:
        self.numbers[name] = number
        self.names[number] = name

    def copy(self) -> Lanes:
        """For a transaction that makes new ones: they exist only once it has committed."""
        copied = Lanes()
        copied.numbers, copied.names = dict(self.numbers), dict(self.names)
        return copied

    def learn(self, other: Lanes) -> None:
        self.numbers.update(other.numbers)
        self.names.update(other.names)


class SequenceCache:
    """Numbers that a transaction has drawn. A sequence does not roll back: if it begins again, it uses these first."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._left: dict[str, list[int]] = {}

    def take(self, statement: str, count: int, rows: Callable[..., list[Any]]) -> list[int]:
        left = self._left.setdefault(statement, [])
        if (lacking := count - len(left)) > 0:
            fresh = [number for (number,) in rows(statement, (lacking,))]
            self._numbers.setdefault(statement, []).extend(fresh)
            left += fresh
        taken, self._left[statement] = left[:count], left[count:]
        return taken

    def begin_again(self) -> None:
        self._left = {statement: list(numbers) for statement, numbers in self._numbers.items()}


class Ledger:
    """`time` is wall time, steady time is that minus `offset`. `is_given`: it was brought along, and does not pass."""

    def __init__(
        self,
        db: Runs,
        sql: Statements,
        lanes: Lanes,
        time: int,
        *,
        offset: int = 0,
        is_given: bool = False,
        drawn: SequenceCache | None = None,
    ) -> None:
        self.sql = sql
        self._drawn = drawn or SequenceCache()
        self.rows = db.rows
        self.run = db.run
        self._is_given = is_given
        self._offset = offset
        self._set_time(time)
        self.locked: dict[int, State] = {}  # jobs that nobody else can move until the end
        self.tallies: Counter[Cell] = Counter()
        self.totals = Totals()
        self.lines: list[tuple[str, str]] = []
        self.topics: set[str] = set()
        self.left = 0  # how many left the line of those that wait for their turn or their time
        self.lanes = lanes
        self._are_fresh = False
        self._settings: dict[str, QueueSettings] = {}
        self._limited: set[str] = set()
        self._gauges: Gauges | None = None

    def _set_time(self, time: int) -> None:
        self.wall, self.steady = time, time - self._offset
        self.at = moment(time)

    def value(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """The first column of the first row, None where there is none."""
        found = self.rows(statement, params)
        return found[0][0] if found else None

    def trying(self, do: Callable[[], None]) -> None:
        """Do it, or leave all as it was and raise."""
        before = Counter(self.tallies), list(self.lines), set(self.topics), dict(self.locked), self.lanes
        totals, gauges = self.totals.copy(), self._gauges and self._gauges.copy()
        self.run("SAVEPOINT tried")
        try:
            do()
        except Exception as error:
            with contextlib.suppress(Exception):  # of a connection that is gone
                self.run("ROLLBACK TO SAVEPOINT tried")
            self.tallies, self.lines, self.topics, self.locked, self.lanes = before
            self.totals, self._gauges = totals, gauges
            self._are_fresh = False
            raise error from None
        self.run("RELEASE SAVEPOINT tried")

    # -- what is known -------------------------------------------------------------------------------------------------

    def lane(self, queue: str, task: str, version: int) -> int:
        name = (queue, task, version)
        if (number := self.lanes.numbers.get(name)) is None:
            self._know_lanes()
            if (number := self.lanes.numbers.get(name)) is None:
                self.lanes = self.lanes.copy()
                self.run(self.sql.insert_lane, name)
                self._are_fresh = False
                self._know_lanes()
                number = self.lanes.numbers[name]
        return number

    def name_of(self, lane: int) -> LaneName:
        if lane not in self.lanes.names:
            self._are_fresh = False
            self._know_lanes()
        return self.lanes.names[lane]

    def lanes_of(
        self, queue: str | None, tasks: frozenset[tuple[str, int]] | None = None, task: str | None = None
    ) -> list[int]:
        self._know_lanes()
        return [
            number
            for (of_queue, of_task, version), number in list(self.lanes.numbers.items())  # others add to it meanwhile
            if queue in (None, of_queue) and task in (None, of_task) and (tasks is None or (of_task, version) in tasks)
        ]

    def _know_lanes(self) -> None:
        """As they are in this transaction: others may have made some since."""
        if not self._are_fresh:
            for number, *name in self.rows(self.sql.all_lanes):
                self.lanes.add(number, tuple(name))
            self._are_fresh = True

    def settings(self, queue: str) -> QueueSettings:
        if queue not in self._settings:
            self.know_settings([queue])
        return self._settings[queue]

    def know_settings(self, queues: Iterable[str]) -> None:
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
        """Be alone with these queues until the end. Counts asked afterwards are right, those of before may be old."""
        wanted = [queue for queue in queues if queue not in self._limited]
        if wanted:
            self.rows(self.sql.lock_queues, (Texts(wanted),))
            if not self._is_given:  # one may have waited for the lock: a lease counts from when it is given
                self._set_time(max(self.wall, self.value(HOW_LATE)))
            self._limited.update(wanted)
            self.know_settings(wanted)

    def be_alone(self) -> None:
        """Be alone with all resources until the end. The first lock of a transaction, or none."""
        time = self.value(self.sql.lock_gauges)
        if not self._is_given:
            self._set_time(max(self.wall, time))
        self._gauges = Gauges(self.sql, self.rows, self.run)

    @property
    def is_alone(self) -> bool:
        return self._gauges is not None

    @property
    def gauges(self) -> Gauges:
        """Who asks for them and is not alone begins again."""
        if self._gauges is None:
            raise faults.MustBeAlone
        return self._gauges

    def must_be_alone(self) -> None:
        if self._gauges is None:
            raise faults.MustBeAlone

    def next_seqs(self, count: int) -> list[int]:
        return self._drawn.take(self.sql.next_seqs, count, self.rows)

    def next_revision(self) -> int:
        [revision] = self._drawn.take(self.sql.next_revisions, 1, self.rows)
        return revision

    # -- what is counted -----------------------------------------------------------------------------------------------

    def tally(self, lane: int, priority: int, state: State, by: int = 1) -> None:
        self.tallies[lane, priority, state] += by
        if by < 0 and state in IN_LINE:
            self.left -= by

    def tallied(self, queues: Sequence[str], states: Iterable[State]) -> dict[str, int]:
        """How many jobs of these queues are in these states, what this transaction did included."""
        wanted = [state.value for state in states]
        counts = dict.fromkeys(queues, 0)
        counts.update(self.rows(self.sql.tallied, (Texts(list(queues)), Texts(wanted))))
        for (lane, _, state), n in self.tallies.items():
            if state in wanted and (queue := self.name_of(lane)[0]) in counts:
                counts[queue] += n
        return counts

    # -- what is told --------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> str:
        """Publish an event; its line is what the job's history keeps."""
        line = event_lines.write(event)
        self.lines.append((event.job, line))
        return line

    def wake(self, topic: str) -> None:
        self.topics.add(topic)

    # -- the end -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what all of it has in common. The feed last: its place in the order is drawn under all our locks."""
        if self._gauges is not None:
            self._gauges.save()
        moved = [(lane, priority, str(state), n) for (lane, priority, state), n in self.tallies.items() if n]
        if moved:
            lane, priority, state, n = zip(*moved, strict=True)
            self.run(self.sql.add_tally, (Ints(lane), Smallints(priority), Texts(state), Bigints(n)))
        self.tallies.clear()
        if self.totals:
            self.run(self.sql.add_total, self.totals.take_columns())
        for start in range(0, len(self.lines), LINES_PER_ROW):
            ids, runs, texts = event_lines.feed_row(self.lines[start : start + LINES_PER_ROW])
            self.run(self.sql.insert_feed, (self.steady, ids, Ints(runs), texts))
        if self.lines:
            self.topics.add(EVENTS_TOPIC)
        self.lines.clear()
