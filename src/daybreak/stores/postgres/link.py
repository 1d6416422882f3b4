"""One connection, used by one thread at a time: asked, and replaced when it breaks.

Behind a pooler it keeps nothing in the session (no SET, no LISTEN, no session locks): every transaction may meet
another process of the server. Statements are prepared only where no pooler stands between.

Every transaction that writes is READ COMMITTED, whatever the server's default: whoever waited for a lock must see what
was written meanwhile."""

from __future__ import annotations

import contextlib
import logging
import math
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from psycopg.generators import execute

from daybreak.core.errors import StoreUnavailable, StoreUnsuitable
from daybreak.stores.backoff import Backoff
from daybreak.stores.postgres import arrays, faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.clock import HOW_LATE, ServerClock
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.prepared_calls import Call, Calls, Packed
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.watchdog import Waiting
from daybreak.system import patience

T = TypeVar("T")
_log = logging.getLogger("daybreak.postgres")

SHORTEST: Final = 2  # seconds; libpq knows no shorter limit, and none between two whole ones

# libpq gives up on a network that swallows everything; what the URL says of these goes first.
NEVER_HANG: Final = {
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "daybreak",
}
# Whatever the URL or the environment says: texts are packed as UTF-8, and the server translates.
OURS: Final = {"client_encoding": "UTF8", "autocommit": True}
LEVEL: Final = "ISOLATION LEVEL READ COMMITTED"
STALE: Final = frozenset(
    {"25006"}
)  # read-only: after this a new connection may find a server, or a session, that is not
# Of one transaction. A process that was stopped in the middle of one lets go of its locks. Where a scan cannot be
# avoided, enable_seqscan = off makes a few rows look so dear that the server would compile the statement first, which
# takes longer than a reaper may be silent: so jit is off.
BEGIN: Final = (
    "BEGIN{mode}; SELECT set_config('lock_timeout', '{lock}', true), "
    "set_config('statement_timeout', '{answer}', true), "
    "set_config('idle_in_transaction_session_timeout', '{answer}', true), set_config('enable_seqscan', 'off', true), "
    f"set_config('jit', 'off', true), ({HOW_LATE})"
)


def connect(place: Address, **more: Any) -> psycopg.Connection[Any]:
    """A new connection, or an error that says what is wrong."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(place.conninfo)
        if "connect_timeout" in given:  # libpq's own, which is kept as it is written
            db = _connect_patiently({**NEVER_HANG, **given, **OURS, **more}, math.inf)
        else:
            db = _connect_within_limit(place, {**NEVER_HANG, **given, **OURS, **more})
    except psycopg.Error as error:
        if "conversion between" in str(error):
            raise StoreUnsuitable(
                f"{place.name}: the encoding of this database has no way to UTF8: use one that was made by "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            ) from None
        raise faults.connecting(place.name, error) from None
    arrays.register(db.adapters)
    return db


class ServerInfo(NamedTuple):
    """Whom a new connection has met. `is_direct`: no pooler stands between; `is_level`: its transactions are READ
    COMMITTED, also those that do not say so. `time` is the server's."""

    is_direct: bool
    is_level: bool
    time: int


def meet(db: psycopg.Connection[Any]) -> ServerInfo:
    [(pid, level, time)] = db.execute(
        f"SELECT pg_backend_pid(), current_setting('default_transaction_isolation'), ({HOW_LATE})"
    ).fetchall()
    is_direct, is_level = pid == db.info.backend_pid, level == "read committed"
    if is_direct and not is_level:
        db.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION {LEVEL}")
    return ServerInfo(is_direct, is_direct or is_level, time)


def _connect_within_limit(place: Address, params: dict[str, Any]) -> psycopg.Connection[Any]:
    limit, base = place.connect_limit, place.connect_within
    within, began = max(math.ceil(limit.seconds(base)), SHORTEST), monotonic()
    try:
        db = _connect_patiently({**params, "connect_timeout": within}, within)
    except _GivenUp:  # sooner than the limit: that says nothing of it
        raise
    except psycopg.errors.ConnectionTimeout:
        limit.took(base, within, late=True)
        raise
    # Each host of several has so long: with one that did not answer in time it took longer, which says nothing of them.
    if (took := monotonic() - began) <= within:
        limit.took(base, took)
    return db


class _GivenUp(psycopg.errors.ConnectionTimeout):
    """The caller's patience ended first."""


def _connect_patiently(params: dict[str, Any], takes: float) -> psycopg.Connection[Any]:
    """Connect, for no longer than the caller is patient. libpq cannot be interrupted while it connects, and `takes` up
    to so many seconds: where that is too long, it does it in a thread, which is left behind."""
    left = patience.left()
    if takes <= left:
        return psycopg.connect(**params)
    made: list[psycopg.Connection[Any] | psycopg.Error] = []
    lock, done = threading.Lock(), threading.Event()
    is_left = False

    def run() -> None:
        found: psycopg.Connection[Any] | psycopg.Error
        try:
            found = psycopg.connect(**params)
        except psycopg.Error as error:
            found = error
        with lock:
            made.append(found)
            if is_left and not isinstance(found, psycopg.Error):
                found.close()
        done.set()

    threading.Thread(target=run, name="daybreak-pg-connect", daemon=True).start()
    try:
        done.wait(max(left, 0))
    finally:
        with lock:
            is_left = not made
    if is_left:
        raise _GivenUp("connection timeout expired")
    [found] = made
    if isinstance(found, psycopg.Error):
        raise found
    return found


class Link:
    def __init__(self, place: Address, clock: ServerClock) -> None:
        self.place = place
        self._clock = clock
        self._db: psycopg.Connection[Any] | None = None
        self._calls: Calls | None = None
        self._sent = False
        self._backoff = Backoff()
        self._left_for_good = threading.Event()
        self.has_been_connected = False
        self.waiting = Waiting()
        self._within = place.answer_within.total_seconds()
        millis = int(place.answer_within.total_seconds() * 1000)
        self._is_level = True
        self._begin = BEGIN.format(mode=f" {LEVEL}", lock=max(1, millis // 4), answer=max(1, millis // 2))
        self._begin_reading = BEGIN.format(
            mode=" ISOLATION LEVEL REPEATABLE READ READ ONLY", lock=max(1, millis // 4), answer=max(1, millis // 2)
        )

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connected(self) -> psycopg.Connection[Any]:
        db = self._db
        if db is not None:
            if self._is_alive(db):
                if self._clock.must_be_read():
                    self._read_clock(db)
                return db
            self.close()
        if self.has_been_connected:
            self._rest()
        began = monotonic()
        try:
            db, met, asked = self._connect()
        except StoreUnavailable:
            self._backoff.failed(monotonic() - began)
            raise
        self._backoff.connected()
        if not met.is_direct:
            db.prepare_threshold = None  # the next statement may meet another process
        self._clock.note(met.time, asked)
        self._db, self._calls, self._is_level = db, Calls(db), met.is_level
        if self._clock.must_be_read():
            self._read_clock(db)
        return db

    def _rest(self) -> None:
        """Not all who lost this server connect again at once."""
        self._backoff.lost()
        pause = self._backoff.pause(patience.wanted_within())
        if pause is None:
            raise faults.unsent(self.place.name)
        if pause and self._left_for_good.wait(pause):
            raise refused(self.place)

    def _connect(self) -> tuple[psycopg.Connection[Any], ServerInfo, int]:
        if patience.is_over():
            raise faults.unsent(self.place.name)
        db = connect(self.place)
        self.has_been_connected = True
        asked = self._clock.steady()
        try:
            with self.waiting.on(db, self._left()):
                return db, meet(db), asked
        except psycopg.Error as error:
            db.close()
            raise faults.connecting(self.place.name, error) from None

    def leave(self) -> None:
        """Its owner ends: whoever waits to connect again hears of it at once."""
        self._left_for_good.set()

    # -- the server's clock --------------------------------------------------------------------------------------------

    def read_clock(self) -> None:
        """If it is time to: what is asked next knows the offset that holds."""
        with self._translated():
            self._connected()

    def _read_clock(self, db: psycopg.Connection[Any]) -> None:
        """Read the offset of steady time; if the clock was seen to jump and nobody has corrected it yet, do that."""
        sql, clock = Statements("sql", self.place.schema), self._clock
        with self.waiting.on(db, self._left()):
            self._note_clock(db, sql.read_clock)
            if (jump := clock.jump) is None:
                return
            try:
                said = (jump.offset, jump.corrected, jump.since, jump.seen)
                [(done,)] = db.execute(sql.correct_clock, said).fetchall()
            except psycopg.Error as error:
                if db.closed or db.broken:
                    raise
                why = faults.without_password(str(error))
                _log.warning("%s: could not correct a jump of the clock: %s", self.place.name, why)
                clock.believe()
                return
            self._note_clock(db, sql.read_clock)
        if done:
            _log.warning(
                "%s: the server's clock jumped by %.0f s; delays, expiry and retention go on as if it had not",
                self.place.name, jump.by / 1e6,
            )  # fmt: skip
        if clock.jump is not None:
            clock.believe()

    def _note_clock(self, db: psycopg.Connection[Any], statement: str) -> None:
        asked = self._clock.steady()
        [(time, offset)] = db.execute(statement, binary=True).fetchall()
        self._clock.note(time, asked, offset)
        self._clock.was_read()

    @staticmethod
    def _is_alive(db: psycopg.Connection[Any]) -> bool:
        """Whether the server has not hung up since. A connection that nobody uses has nothing to say."""
        if db.closed:
            return False
        if sys.platform == "win32":
            speaks = bool(select.select([db.fileno()], [], [], 0)[0])
        else:
            poll = select.poll()
            poll.register(db.fileno(), select.POLLIN)
            speaks = bool(poll.poll(0))
        if speaks:
            with contextlib.suppress(psycopg.Error):
                db.pgconn.consume_input()
                if db.pgconn.status == psycopg.pq.ConnStatus.OK:
                    return True
            return False
        return True

    def _left(self) -> float:
        """Seconds in which an answer has to come."""
        return patience.left(self._within)

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def server_version(self) -> int:
        return self._connected().info.server_version

    @property
    def has_pooler(self) -> bool:
        return self._connected().prepare_threshold is None

    @property
    def is_level(self) -> bool:
        """Whether what is asked alone is READ COMMITTED by itself; else it is asked within a transaction."""
        self._connected()
        return self._is_level

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(psycopg.Error):
                db.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, statement: str, params: Sequence[Any] = ()) -> list[Any]:
        """One statement, which is its own transaction."""
        with self._translated(), self.waiting.on(self._connected(), self._left()), self._leveled():
            self._sent = self._is_level
            return self.rows(statement, params)

    def order(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> None:
        """The same of what answers nothing and may be no part of a transaction."""
        with self._translated(), self.waiting.on(self._connected(), self._left()):
            self.run(statement, params)

    def call(self, call: Call, params: Packed) -> list[Any]:
        """The same, by the short way."""
        with self._translated(), self.waiting.on(self._connected(), self._left()), self._leveled():
            assert self._calls is not None
            try:
                return self._call(self._calls, call, params)
            except psycopg.errors.InvalidSqlStatementName:
                # The driver drops all that was prepared when a transaction was rolled back. Nothing was done.
                self._calls.forget()
                return self._call(self._calls, call, params)

    def _call(self, calls: Calls, call: Call, params: Packed) -> list[Any]:
        assert self._db is not None
        is_prepared = self._db.prepare_threshold is not None
        if is_prepared:
            calls.prepare(call)
        self._sent = self._is_level
        (calls.send if is_prepared else calls.send_unprepared)(call, params)
        return calls.rows(self._db.wait(execute(self._db.pgconn)))

    @contextlib.contextmanager
    def _leveled(self) -> Iterator[None]:
        """For what is its own transaction: where a pooler stands between and the server's default is another level,
        only a transaction can say which it is."""
        if self._is_level:
            yield
            return
        db = self._db
        assert db is not None
        db.execute(f"BEGIN {LEVEL}")
        try:
            yield
        except BaseException:
            self._roll_back(db)
            raise
        self._sent = True
        db.execute("COMMIT")

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        assert self._db is not None
        return self._db.execute(statement, params or None, binary=True).fetchall()

    def run(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> int:
        assert self._db is not None
        return self._db.execute(statement, params or None).rowcount

    def transaction(self, do: Callable[[int], T], *, reading: bool = False) -> T:
        """`do` gets the server's time. Unless the commit itself was sent, nothing was written when this raises."""
        with self._translated():
            db = self._connected()
            self._sent = False
            with self.waiting.on(db, self._left()):
                return self._transaction(db, do, reading=reading)

    def _transaction(self, db: psycopg.Connection[Any], do: Callable[[int], T], *, reading: bool) -> T:
        try:
            time = self._begin_at(db, reading=reading)
            if self._clock.jump is not None and self._clock.is_shared:  # nothing is decided by a clock that jumped
                self._roll_back(db)
                self._read_clock(db)
                self.waiting.begin(db, self._left())
                time = self._begin_at(db, reading=reading)
            answer = do(time)
        except BaseException:
            self._roll_back(db)
            raise
        self._sent = not reading
        db.execute("COMMIT")
        return answer

    def _begin_at(self, db: psycopg.Connection[Any], *, reading: bool) -> int:
        """Begin a transaction; answers the server's time."""
        asked = self._clock.steady()
        began = db.execute(self._begin_reading if reading else self._begin)
        while began.nextset():  # the last of two statements in one question tells the time
            pass
        time: int
        [(*_, time)] = began.fetchall()
        self._clock.note(time, asked)
        return time

    def go_on(self) -> None:
        """Within a transaction: what comes next has as much time as an answer ever has."""
        assert self._db is not None
        self.waiting.begin(self._db, self._within)

    def reading(self, do: Callable[[int], T]) -> T:
        """One snapshot. Nothing is changed, so it is repeated on a new connection if the old one was lost."""
        try:
            return self.transaction(do, reading=True)
        except StoreUnavailable:
            if self._db is not None or patience.is_over():
                raise
            return self.transaction(do, reading=True)

    def _roll_back(self, db: psycopg.Connection[Any]) -> None:
        try:
            if not db.closed:
                db.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        self._sent = False
        try:
            yield
        except psycopg.Error as error:
            db = self._db
            lost = db is None or db.closed or db.broken
            if lost or error.sqlstate in STALE:
                self.close()
            elif faults.is_passing(error):
                raise
            late = self.waiting.given_up_after
            raise faults.working(self.place.name, error, sent=self._sent, lost=lost, late=late) from None
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self.close()  # in the middle of an answer: what is left of it must not be taken for the next
            raise


def refused(place: Address) -> StoreUnavailable:
    return StoreUnavailable(f"{place.name}: the store was closed; open it again")
