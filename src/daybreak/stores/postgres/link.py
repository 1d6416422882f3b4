"""One connection, used by one thread at a time: asked, and replaced when it breaks.

It keeps nothing in the session (no SET, no LISTEN, no session locks), so that a pooler may give every transaction
another server process. Statements are prepared only where no pooler stands between."""

from __future__ import annotations

import contextlib
import math
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

from psycopg.generators import execute

from daybreak.errors import StoreUnavailable
from daybreak.stores.postgres import arrays, faults
from daybreak.stores.postgres.calls import Call, Calls, Packed
from daybreak.stores.postgres.clock import HOW_LATE, ServerClock
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.place import Place
from daybreak.stores.postgres.watchdog import Waiting

T = TypeVar("T")

SHORTEST: Final = 2  # seconds; libpq knows no shorter limit, and none between two whole ones

# libpq gives up on a network that swallows everything; what the URL says of these goes first.
NEVER_HANG: Final = {
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "daybreak",
}
# Of one transaction. A process that was stopped in the middle of one lets go of its locks. Where a scan cannot be
# avoided, enable_seqscan = off makes a few rows look so dear that the server would compile the statement first, which
# takes longer than a reaper may be silent: so jit is off.
BEGIN: Final = (
    "BEGIN{mode}; SELECT set_config('lock_timeout', '{lock}', true), "
    "set_config('statement_timeout', '{answer}', true), "
    "set_config('idle_in_transaction_session_timeout', '{answer}', true), set_config('enable_seqscan', 'off', true), "
    f"set_config('jit', 'off', true), ({HOW_LATE})"
)


def connect(place: Place, **more: Any) -> psycopg.Connection[Any]:
    """A new connection, or an error that says what is wrong."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(place.conninfo)
        if "connect_timeout" in given:  # libpq's own, which is kept as it is written
            db = psycopg.connect(**{**NEVER_HANG, **given, "autocommit": True, **more})
        else:
            db = _connect_within_limit(place, {**NEVER_HANG, **given, "autocommit": True, **more})
    except psycopg.Error as trouble:
        raise faults.connecting(place.name, trouble) from None
    arrays.register(db.adapters)
    return db


def _connect_within_limit(place: Place, params: dict[str, Any]) -> psycopg.Connection[Any]:
    limit, base = place.connect_limit, place.connect_within
    within, began = max(math.ceil(limit.seconds(base)), SHORTEST), monotonic()
    try:
        db = psycopg.connect(**params, connect_timeout=within)
    except psycopg.errors.ConnectionTimeout:
        limit.took(base, within, late=True)
        raise
    # Each host of several has so long: with one that did not answer in time it took longer, which says nothing of them.
    if (took := monotonic() - began) <= within:
        limit.took(base, took)
    return db


class Link:
    def __init__(self, place: Place, clock: ServerClock) -> None:
        self.place = place
        self._clock = clock
        self._db: psycopg.Connection[Any] | None = None
        self._calls: Calls | None = None
        self._sent = False
        self.waiting = Waiting()
        millis = int(place.answer_within.total_seconds() * 1000)
        self._begin = BEGIN.format(mode="", lock=max(1, millis // 4), answer=max(1, millis // 2))
        self._begin_reading = BEGIN.format(
            mode=" ISOLATION LEVEL REPEATABLE READ READ ONLY", lock=max(1, millis // 4), answer=max(1, millis // 2)
        )

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connected(self) -> psycopg.Connection[Any]:
        db = self._db
        if db is not None:
            if self._is_alive(db):
                return db
            self.close()
        db = connect(self.place)
        asked = self._clock.steady()
        try:
            pid, time = db.execute(f"SELECT pg_backend_pid(), ({HOW_LATE})").fetchone()  # type: ignore[misc]
        except psycopg.Error as trouble:
            db.close()
            raise faults.connecting(self.place.name, trouble) from None
        if pid != db.info.backend_pid:
            db.prepare_threshold = None  # a pooler stands between: the next statement may meet another process
        self._clock.note(time, asked)
        self._db, self._calls = db, Calls(db)
        return db

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

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def server_version(self) -> int:
        return self._connected().info.server_version

    @property
    def has_pooler(self) -> bool:
        return self._connected().prepare_threshold is None

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(psycopg.Error):
                db.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, statement: str, params: Sequence[Any] = ()) -> list[Any]:
        """One statement, which is its own transaction."""
        with self._translated(), self.waiting.on(self._connected()):
            self._sent = True
            return self.rows(statement, params)

    def order(self, statement: str) -> None:
        """The same of what answers nothing and may be no part of a transaction."""
        with self._translated(), self.waiting.on(self._connected()):
            self.run(statement)

    def call(self, call: Call, params: Packed) -> list[Any]:
        """The same, by the short way."""
        with self._translated(), self.waiting.on(self._connected()):
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
        self._sent = True
        (calls.send if is_prepared else calls.send_unprepared)(call, params)
        return calls.rows(self._db.wait(execute(self._db.pgconn)))

    def rows(self, statement: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        assert self._db is not None
        return self._db.execute(statement, params or None, binary=True).fetchall()

    def run(self, statement: str, params: Sequence[Any] = ()) -> int:
        assert self._db is not None
        return self._db.execute(statement, params or None).rowcount

    def transaction(self, do: Callable[[int], T], *, reading: bool = False) -> T:
        """`do` gets the server's time. Unless the commit itself was sent, nothing was written when this raises."""
        with self._translated():
            db = self._connected()
            self._sent = False
            with self.waiting.on(db):
                return self._transaction(db, do, reading=reading)

    def _transaction(self, db: psycopg.Connection[Any], do: Callable[[int], T], *, reading: bool) -> T:
        asked = self._clock.steady()
        began = db.execute(self._begin_reading if reading else self._begin)
        try:
            while began.nextset():  # the last of two statements in one question tells the time
                pass
            [(*_, time)] = began.fetchall()
            self._clock.note(time, asked)
            answer = do(time)
        except BaseException:
            self._roll_back(db)
            raise
        self._sent = not reading
        db.execute("COMMIT")
        return answer

    def reading(self, do: Callable[[int], T]) -> T:
        """One snapshot. Nothing is changed, so it is repeated on a new connection if the old one was lost."""
        try:
            return self.transaction(do, reading=True)
        except StoreUnavailable:
            if self._db is not None:
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
        except psycopg.Error as trouble:
            db = self._db
            lost = db is None or db.closed or db.broken
            if lost:
                self.close()
            elif faults.is_passing(trouble):
                raise
            raise faults.working(self.place.name, trouble, sent=self._sent, lost=lost) from None
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self.close()  # in the middle of an answer: what is left of it must not be taken for the next
            raise


def refused(place: Place) -> StoreUnavailable:
    return StoreUnavailable(f"{place.name}: the store was closed; open it again")
