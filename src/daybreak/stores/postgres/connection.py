"""One connection, used by one thread at a time and replaced when it breaks.

Behind a pooler it keeps nothing in the session (no SET, no LISTEN, no session locks), because every transaction may run
in another process of the server. Statements are prepared only on a direct connection.

Every transaction that writes is READ COMMITTED, whatever the server's default: after it has waited for a lock it must
see what was written meanwhile."""

from __future__ import annotations

import contextlib
import logging
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.backoff import Backoff
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.clock import SERVER_TIME, ServerClock
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.prepared_calls import Call, Calls, Packed
from daybreak.stores.postgres.session import (
    READ_COMMITTED,
    Answer,
    ServerInfo,
    connect,
    identify_server,
    query_together,
)
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.watchdog import AnswerTimer
from daybreak.system import patience

T = TypeVar("T")
_log = logging.getLogger("daybreak.postgres")

# SQLSTATE read_only_sql_transaction: a new connection may reach a server, or a session, that can write.
READ_ONLY_ERRORS: Final = frozenset({"25006"})
# These settings hold for one transaction. The timeouts free the locks of a process that is stopped in the middle of it.
# Where a scan cannot be avoided, enable_seqscan = off makes it look so expensive that the server would JIT-compile the
# statement first. That takes longer than a reaper may be silent, so jit is off.
BEGIN: Final = (
    "BEGIN{mode}; SELECT set_config('lock_timeout', '{lock}', true), "
    "set_config('statement_timeout', '{answer}', true), "
    "set_config('idle_in_transaction_session_timeout', '{answer}', true), set_config('enable_seqscan', 'off', true), "
    f"set_config('jit', 'off', true), ({SERVER_TIME})"
)


class Connection:
    """A connection that opens on first use and reopens after it was lost."""

    def __init__(self, address: Address, clock: ServerClock) -> None:
        self.address = address
        self._clock = clock
        self._db: psycopg.Connection[Any] | None = None
        self._calls: Calls | None = None
        self._may_be_committed = False
        self._backoff = Backoff()
        self._is_abandoned = threading.Event()
        self.has_been_connected = False
        self.answer_timer = AnswerTimer()
        self._sql = Statements("sql", address.schema)
        self._within = address.answer_within.total_seconds()
        millis = int(address.answer_within.total_seconds() * 1000)
        self._is_read_committed = True
        self._begin_sql = BEGIN.format(mode=f" {READ_COMMITTED}", lock=max(1, millis // 4), answer=max(1, millis // 2))
        self._begin_reading_sql = BEGIN.format(
            mode=" ISOLATION LEVEL REPEATABLE READ READ ONLY", lock=max(1, millis // 4), answer=max(1, millis // 2)
        )

    # -- the connection ------------------------------------------------------------------------------------------------

    def _ensure_connected(self) -> psycopg.Connection[Any]:
        db = self._db
        if db is None or not self._is_alive(db):
            db = self._connect_anew()
        if self._clock.must_be_read():
            self._read_clock(db)
        return db

    def _connect_anew(self) -> psycopg.Connection[Any]:
        """Connect; read the clock in the same round trip if that is due."""
        also = (self._sql.read_clock,) if self._clock.must_be_read() else ()
        server, sent_at, answers = self._connect(also)
        match answers:
            case [list(reading)]:
                self._note_clock(reading, sent_at)
            case _:  # if reading the clock failed, the caller reads it again and gets the error
                self._clock.note(server.time, sent_at)
        assert self._db is not None
        return self._db

    def _connect(self, also: Sequence[str]) -> tuple[ServerInfo, int, list[Answer]]:
        """Connect; returns what the connection leads to, when the server was asked, and its answers to `also`."""
        self.close()
        if self.has_been_connected:
            self._back_off()
        began = monotonic()
        try:
            db, server, sent_at, answers = self._open_session(also)
        except StoreUnavailable:
            self._backoff.failed(monotonic() - began)
            raise
        self._backoff.connected()
        if not server.is_direct:
            db.prepare_threshold = None  # behind a pooler the next statement may run in another process
        self._db, self._calls, self._is_read_committed = db, Calls(db), server.is_read_committed
        return server, sent_at, answers

    def _back_off(self) -> None:
        """Wait before reconnecting, so that the clients of a restarted server do not all reconnect at once."""
        self._backoff.lost()
        pause = self._backoff.pause(patience.wanted_within())
        if pause is None:
            raise faults.unsent_error(self.address.name)
        if pause and self._is_abandoned.wait(pause):
            raise closed_error(self.address)

    def _open_session(self, also: Sequence[str]) -> tuple[psycopg.Connection[Any], ServerInfo, int, list[Answer]]:
        if patience.is_over():
            raise faults.unsent_error(self.address.name)
        db = connect(self.address)
        self.has_been_connected = True
        sent_at = self._clock.steady()
        try:
            with self.answer_timer.running(db, self._time_left()):
                server, answers = identify_server(db, also)
        except psycopg.Error as error:
            db.close()
            raise faults.connect_error(self.address.name, error) from None
        return db, server, sent_at, answers

    def abandon(self) -> None:
        """The owner closes: end a wait for a reconnect at once."""
        self._is_abandoned.set()

    # -- the server's clock --------------------------------------------------------------------------------------------

    def read_clock(self) -> None:
        """Read the clock's offset if that is due, so that the next query uses the current one."""
        with self._translating_errors():
            self._ensure_connected()

    def _read_clock(self, db: psycopg.Connection[Any]) -> None:
        """Read the offset of steady time. If this process saw the clock jump and nobody has corrected that
        yet, correct it."""
        clock = self._clock
        with self.answer_timer.running(db, self._time_left()):
            self._ask_clock(db)
            if (jump := clock.jump) is None:
                return
            try:
                params = (jump.offset, jump.corrected, jump.since, jump.seen)
                [(done,)] = db.execute(self._sql.correct_clock, params).fetchall()
            except psycopg.Error as error:
                if db.closed or db.broken:
                    raise
                why = faults.without_password(str(error))
                _log.warning("%s: could not correct a jump of the server's clock: %s", self.address.name, why)
                clock.believe()
                return
            self._ask_clock(db)
        if done:
            _log.warning(
                "%s: the server's clock jumped by %.0f s; delays, expiry and retention are not affected",
                self.address.name, jump.by / 1e6,
            )  # fmt: skip
        if clock.jump is not None:
            clock.believe()

    def _ask_clock(self, db: psycopg.Connection[Any]) -> None:
        sent_at = self._clock.steady()
        self._note_clock(db.execute(self._sql.read_clock, binary=True).fetchall(), sent_at)

    def _note_clock(self, rows: list[Any], sent_at: int) -> None:
        """Note the server's answer to `read_clock`."""
        [(time, offset, version, needs)] = rows
        if needs is not None and needs > self.address.known.number:
            raise faults.too_new(self.address.name, version, self.address.known.number)
        self.note_clock(time, sent_at, offset)

    def note_clock(self, time: int, sent_at: int, offset: int) -> None:
        self._clock.note(time, sent_at, offset)
        self._clock.was_read()

    @staticmethod
    def _is_alive(db: psycopg.Connection[Any]) -> bool:
        """Whether the connection is still open. An idle connection is readable only if it broke or has a notice."""
        if db.closed:
            return False
        if sys.platform == "win32":
            is_readable = bool(select.select([db.fileno()], [], [], 0)[0])
        else:
            poll = select.poll()
            poll.register(db.fileno(), select.POLLIN)
            is_readable = bool(poll.poll(0))
        if is_readable:
            with contextlib.suppress(psycopg.Error):
                db.pgconn.consume_input()
                if db.pgconn.status == psycopg.pq.ConnStatus.OK:
                    return True
            return False
        return True

    def _time_left(self) -> float:
        """Seconds until an answer must have come."""
        return patience.left(self._within)

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def server_version(self) -> int:
        return self._ensure_connected().info.server_version

    @property
    def has_pooler(self) -> bool:
        return self._ensure_connected().prepare_threshold is None

    @property
    def is_read_committed(self) -> bool:
        """Whether a single statement is READ COMMITTED by default. If not, it is wrapped in a transaction."""
        self._ensure_connected()
        return self._is_read_committed

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(psycopg.Error):
                db.close()

    # -- queries -------------------------------------------------------------------------------------------------------

    def query(self, statement: str, params: Sequence[Any] = ()) -> list[Any]:
        """Run one statement as its own transaction."""
        with (
            self._translating_errors(),
            self.answer_timer.running(self._ensure_connected(), self._time_left()),
            self._in_read_committed(),
        ):
            self._may_be_committed = self._is_read_committed
            return self.rows(statement, params)

    def query_together(self, statements: Sequence[str]) -> tuple[list[Answer], int]:
        """Run statements without parameters as one transaction, in one round trip: a new connection's first, if there
        is none yet. Returns their answers (see session.query_together), and when they were sent."""
        with self._translating_errors():
            if self._db is None:
                _, sent_at, answers = self._connect(statements)
                return answers, sent_at
            db, sent_at = self._ensure_connected(), self._clock.steady()
            with self.answer_timer.running(db, self._time_left()):
                return query_together(db, statements), sent_at

    def execute(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> None:
        """Run one statement that returns no rows, outside of any transaction (VACUUM demands that)."""
        with self._translating_errors(), self.answer_timer.running(self._ensure_connected(), self._time_left()):
            self.run(statement, params)

    def call(self, call: Call, params: Packed) -> list[Any]:
        """Run one prepared call as its own transaction. Cheaper than `query`."""
        with (
            self._translating_errors(),
            self.answer_timer.running(self._ensure_connected(), self._time_left()),
            self._in_read_committed(),
        ):
            assert self._calls is not None
            try:
                return self._call(self._calls, call, params)
            except psycopg.errors.InvalidSqlStatementName:
                # The driver drops its prepared statements when a transaction is rolled back. Nothing was executed.
                self._calls.forget()
                return self._call(self._calls, call, params)

    def _call(self, calls: Calls, call: Call, params: Packed) -> list[Any]:
        self._may_be_committed = self._is_read_committed
        assert self._db is not None
        if self._db.prepare_threshold is None:
            return calls.run_unprepared(call, params)
        return calls.run(call, params)

    @contextlib.contextmanager
    def _in_read_committed(self) -> Iterator[None]:
        """Wrap a single statement in a READ COMMITTED transaction where a pooler is in between and the server's default
        is another isolation level: only BEGIN can set the level there."""
        if self._is_read_committed:
            yield
            return
        db = self._db
        assert db is not None
        db.execute(f"BEGIN {READ_COMMITTED}")
        try:
            yield
        except BaseException:
            self._roll_back(db)
            raise
        self._may_be_committed = True
        db.execute("COMMIT")

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        assert self._db is not None
        return self._db.execute(statement, params or None, binary=True).fetchall()

    def run(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> int:
        assert self._db is not None
        return self._db.execute(statement, params or None).rowcount

    def transaction(self, do: Callable[[int], T], *, reading: bool = False) -> T:
        """Run `do`, which gets the server's time, and commit. If this raises anything but OutcomeUnknown, nothing was
        written."""
        with self._translating_errors():
            db = self._ensure_connected()
            self._may_be_committed = False
            with self.answer_timer.running(db, self._time_left()):
                return self._transaction(db, do, reading=reading)

    def _transaction(self, db: psycopg.Connection[Any], do: Callable[[int], T], *, reading: bool) -> T:
        try:
            time = self._begin_transaction(db, reading=reading)
            if self._clock.jump is not None and self._clock.is_shared:  # decide nothing by a clock that jumped
                self._roll_back(db)
                self._read_clock(db)
                self.answer_timer.start(db, self._time_left())
                time = self._begin_transaction(db, reading=reading)
            answer = do(time)
        except BaseException:
            self._roll_back(db)
            raise
        self._may_be_committed = not reading
        db.execute("COMMIT")
        return answer

    def _begin_transaction(self, db: psycopg.Connection[Any], *, reading: bool) -> int:
        """Begin a transaction; returns the server's time."""
        sent_at = self._clock.steady()
        began = db.execute(self._begin_reading_sql if reading else self._begin_sql)
        while began.nextset():  # two statements in one query: the last one returns the time
            pass
        time: int
        [(*_, time)] = began.fetchall()
        self._clock.note(time, sent_at)
        return time

    def renew_timeout(self) -> None:
        """Inside a transaction: give the next statement the full answer timeout again."""
        assert self._db is not None
        self.answer_timer.start(self._db, self._within)

    def reading(self, do: Callable[[int], T]) -> T:
        """Run `do` on one snapshot."""
        return self._repeat_if_lost(lambda: self.transaction(do, reading=True))

    def read(self, statement: str) -> list[Any]:
        """Run one statement that changes nothing, in one round trip."""

        def run() -> list[Any]:
            [answer], _ = self.query_together([statement])
            if isinstance(answer, psycopg.Error):
                with self._translating_errors():
                    raise answer
            return answer

        return self._repeat_if_lost(run)

    def _repeat_if_lost(self, do: Callable[[], T]) -> T:
        """Run `do`, which changes nothing, and repeat it on a new connection if the old one was lost."""
        try:
            return do()
        except StoreUnavailable:
            if self._db is not None or patience.is_over():
                raise
            return do()

    def _roll_back(self, db: psycopg.Connection[Any]) -> None:
        try:
            if not db.closed:
                db.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    @contextlib.contextmanager
    def _translating_errors(self) -> Iterator[None]:
        self._may_be_committed = False
        try:
            yield
        except psycopg.Error as error:
            db = self._db
            lost = db is None or db.closed or db.broken
            if lost or error.sqlstate in READ_ONLY_ERRORS:
                self.close()
            elif faults.is_retryable(error):
                raise
            late = self.answer_timer.expired_after
            raise faults.call_error(
                self.address.name, error, sent=self._may_be_committed, lost=lost, late=late
            ) from None
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self.close()  # interrupted while reading an answer: its rest must not be taken for the next one
            raise


def closed_error(address: Address) -> StoreUnavailable:
    return StoreUnavailable(f"{address.name}: the store was closed; open it again")
