"""Wakes waiting processes with LISTEN and NOTIFY. A process registers the topics it waits for in a table, and after a
commit only the registered processes are notified.

PostgreSQL serializes all commits that contain a NOTIFY. So a commit notifies by itself only if none has done so for a
while and it sees a registered waiter; a job then starts at once. All other notices are sent after the commit, by a
thread, together for all that changed meanwhile. A process that begins to wait is woken once more when its registration
is committed, so that it sees what was committed before that. A slow poll makes up for notices that were lost with their
sender.

Where LISTEN does not work (a pooler that gives every transaction another server process) the thread polls more often,
but only while someone waits."""

from __future__ import annotations

import contextlib
import math
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from daybreak.core.errors import StoreError
from daybreak.stores.backoff import Backoff
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.arrays import Texts
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.session import connect, identify_server
from daybreak.stores.postgres.statements import Statements, quoted
from daybreak.stores.postgres.transactional_submit import channel_of
from daybreak.stores.postgres.watchdog import AnswerTimer, Watchdog
from daybreak.stores.wakeups import ANY, Wakeups
from daybreak.system import patience

SLOW_POLL: Final = 10.0  # seconds; a broken connection is noticed at once anyway
QUICK_POLL: Final = 0.15
TOPIC_LINGER: Final = 5.0  # seconds a topic stays registered after its last waiter: most come back
RENEW_INTERVAL: Final = 20.0
NOTIFY_INTERVAL: Final = (
    0.005  # between notices, which are collected meanwhile; also the delay of notices that may wait
)
COMMIT_NOTICE_INTERVAL: Final = 0.02  # between two commits that notify by themselves
IDLE_NOTIFY_INTERVAL: Final = 0.02  # while nobody waits: a new waiter is woken by its own registration
REGISTRATION_TTL: Final = 60  # seconds after which a registration that was not renewed is ignored
LISTEN_TEST_TIMEOUT: Final = 1.0
NEVER: Final = float("inf")


class ListenedHub(Wakeups):
    """Wake-ups inside the process that can list the watched topics."""

    def topics(self) -> set[str]:
        with self._lock:
            return set(self._watches)


class Wake:
    """Sends and receives notices between processes. Its thread starts with the first topic or notice."""

    def __init__(self, address: Address, hub: ListenedHub, watchdog: Watchdog) -> None:
        self._place = address
        self._hub = hub
        self._answer_timer = AnswerTimer()
        self._timeout = address.answer_within.total_seconds()
        watchdog.watch(self._answer_timer)
        self._sql = Statements("sql", address.schema)
        self._channel = channel_of(address)
        self._sender = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}  # by topic: when it was last waited for
        self._registered: set[str] = set()
        self._unregistered: set[str] = set()  # waited for, but not yet in the table
        self._changed: set[str] = set()
        self._renewed_at = self._polled_at = self._next_send = self._next_commit_notice = 0.0
        self._send_at = NEVER  # when to send notices of `_changed`, but not before `_next_send`
        self._snapshot: str | None = None  # of the last poll
        self._last_state: list[int] | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._interrupt_pair: tuple[socket.socket, socket.socket] | None = None
        self._listen_sql = f"LISTEN {quoted(self._channel)}"
        self._has_sent_listen = False  # on the present connection, and the same for the next two
        self._is_listening = False
        self._is_direct = False
        self.listens: bool | None = None  # whether LISTEN works; None: nobody has waited yet

    # -- from any thread -----------------------------------------------------------------------------------------------

    def notify(self, topics: Iterable[str], *, soon: bool = False) -> None:
        """Notify other processes: at once or, if `soon`, within NOTIFY_INTERVAL."""
        due = time.monotonic() + (NOTIFY_INTERVAL if soon else 0.0)
        with self._lock:
            alarm = max(self._send_at, self._next_send) if self._changed else NEVER
            self._changed.update(filter(_can_be_stored, topics))
            self._send_at = min(self._send_at, due)
            is_earlier = max(due, self._next_send) < alarm
            self._start()
        if is_earlier:  # else the thread wakes in time by itself, and interrupting it would cost the caller the GIL
            self._interrupt()

    def notice_in_commit(self) -> tuple[str, str] | None:
        """The channel and the sender's name, if the next commit should notify by itself."""
        now = time.monotonic()
        with self._lock:
            if now < self._next_commit_notice:
                return None
            self._next_commit_notice = now + COMMIT_NOTICE_INTERVAL
        return self._channel, self._sender

    def add_topics(self, topics: Iterable[str]) -> None:
        now = time.monotonic()
        with self._lock:
            for topic in filter(_can_be_stored, topics):
                self._wanted[topic] = now
                if topic not in self._registered:
                    self._unregistered.add(topic)
            self._start()
            is_new = bool(self._unregistered)
        if is_new:
            self._interrupt()

    def _start(self) -> None:
        if self._thread is None and not self._is_closed:
            self._interrupt_pair = socket.socketpair()
            for end in self._interrupt_pair:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, name="daybreak-pg-wake", daemon=True)
            self._thread.start()

    def _interrupt(self) -> None:
        pair = self._interrupt_pair
        if pair is not None:
            with contextlib.suppress(OSError):  # full: the thread is about to wake
                pair[1].send(b"\0")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._interrupt()
        if thread is not None:
            thread.join()
        if self._interrupt_pair is not None:
            for end in self._interrupt_pair:
                end.close()
            self._interrupt_pair = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        patience.unbound()
        backoff = Backoff()
        while not self._is_closed:
            began = time.monotonic()
            try:
                with (
                    contextlib.closing(connect(self._place, prepare_threshold=None)) as db,
                    self._selector(db) as selector,
                ):
                    with self._answer_timer.running(db, self._timeout):
                        self._begin(db)
                    backoff.connected()
                    began = -math.inf
                    with self._lock:
                        self._registered.clear()
                        self._unregistered.update(self._wanted)
                    while not self._is_closed:
                        self._serve(db, selector)
                    with self._answer_timer.running(db, self._timeout):
                        self._unregister(db)
            except (psycopg.Error, StoreError, OSError):
                # Callers report errors of the server; this thread only reconnects.
                self._hub.wake([ANY])
                if began == -math.inf:
                    backoff.lost()
                else:
                    backoff.failed(time.monotonic() - began)
                self._pause(backoff.pause() or 0.0)

    @contextlib.contextmanager
    def _selector(self, db: psycopg.Connection[Any]) -> Iterator[selectors.BaseSelector]:
        """Selects on the interrupts of other threads and on the server's connection."""
        assert self._interrupt_pair is not None
        with selectors.DefaultSelector() as selector:  # select() fails with descriptors above 1023
            selector.register(self._interrupt_pair[0], selectors.EVENT_READ)
            selector.register(db.fileno(), selectors.EVENT_READ)
            yield selector

    def _begin(self, db: psycopg.Connection[Any]) -> None:
        """Identify the server; LISTEN in the same round trip if someone waits already."""
        statements = [self._listen_sql] if self._wanted else []
        server, answers = identify_server(db, statements)
        for answer in answers:
            if isinstance(answer, psycopg.Error):
                raise answer
        self._is_direct, self._has_sent_listen, self._is_listening = server.is_direct, bool(statements), False

    def _listen(self, db: psycopg.Connection[Any]) -> None:
        """LISTEN as soon as someone waits: a process that only submits must not be woken by its own notices."""
        if not self._is_listening and self._wanted:
            self.listens = self.listens is not False and self._can_listen(db)
            self._is_listening = True

    def _can_listen(self, db: psycopg.Connection[Any]) -> bool:
        """Whether a notice from another connection arrives. Behind a pooler in transaction mode only this connection's
        own notices do, and only with the answer to a query."""
        if not self._has_sent_listen:
            db.execute(self._listen_sql)
        if self._is_direct:
            return True
        token = f"?{secrets.token_hex(8)}"
        with contextlib.closing(connect(self._place, prepare_threshold=None)) as other:
            other.execute("SELECT pg_notify(%s, %s)", (self._channel, token))
            until = time.monotonic() + LISTEN_TEST_TIMEOUT
            while (left := until - time.monotonic()) > 0 and not self._is_closed:
                if any(notice.payload == token for notice in db.notifies(timeout=left, stop_after=1)):
                    return True
        return False

    def _serve(self, db: psycopg.Connection[Any], selector: selectors.BaseSelector) -> None:
        is_readable = self._wait(db, selector)
        if self._is_closed:
            return
        with self._answer_timer.running(db, self._timeout):
            if is_readable:
                self._receive_ready(db)
            self._listen(db)
            has_queried = self._send(db)
            if self.listens:
                has_queried = self._register_topics(db) or has_queried
            has_queried = self._poll(db) or has_queried
            if has_queried:
                self._receive_buffered(
                    db
                )  # notices that came with the answers: the socket will not become readable for them

    def _wait(self, db: psycopg.Connection[Any], selector: selectors.BaseSelector) -> bool:
        """Wait for an interrupt, the server or the next deadline; returns whether the server sent something."""
        assert self._interrupt_pair is not None
        with self._lock:
            if self._unregistered and self.listens is not False:
                return False
            wait = SLOW_POLL if self.listens or not self._hub.is_watched else QUICK_POLL
            if self._changed:
                wait = min(wait, max(0.0, self._send_at - time.monotonic(), self._next_send - time.monotonic()))
        ready = {key.fd for key, _ in selector.select(wait)}
        if self._interrupt_pair[0].fileno() in ready:
            with contextlib.suppress(OSError):
                self._interrupt_pair[0].recv(4096)
        return db.fileno() in ready

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_closed and time.monotonic() < until:
            time.sleep(0.05)

    def _receive_ready(self, db: psycopg.Connection[Any]) -> None:
        """Handle notices that are on the socket. Faster than psycopg's `notifies`, which is made for waiting: an idle
        worker learns of each new job here."""
        topics: set[str] = set()
        db.pgconn.consume_input()
        while (notice := db.pgconn.notifies()) is not None:
            topics.add(notice.extra.decode())
        self._wake(topics)

    def _receive_buffered(self, db: psycopg.Connection[Any]) -> None:
        self._wake({notice.payload for notice in db.notifies(timeout=0)})

    def _wake(self, topics: set[str]) -> None:
        if topics := {topic for topic in topics if not topic.startswith("?")}:
            self._hub.wake(topics)

    def _send(self, db: psycopg.Connection[Any]) -> bool:
        """Send notices if they are due; returns whether the server was queried."""
        now = time.monotonic()
        with self._lock:
            if not self._changed or (now < max(self._send_at, self._next_send) and not self._is_closed):
                return False
            changed, self._changed, self._send_at = self._changed, set(), NEVER
        try:
            result = db.execute(self._sql.notify, (self._channel, Texts(sorted(changed)), self._sender))
        except psycopg.Error:
            with self._lock:
                self._changed |= changed  # sent on the next connection
                self._send_at = now
            raise
        self._next_send = time.monotonic() + (NOTIFY_INTERVAL if result.rowcount else IDLE_NOTIFY_INTERVAL)
        return True

    def _register_topics(self, db: psycopg.Connection[Any]) -> bool:
        now = time.monotonic()
        with self._lock:
            unregistered, self._unregistered = self._unregistered, set()
            if unregistered or self._hub.is_watched:
                self._wanted.update(dict.fromkeys(filter(_can_be_stored, self._hub.topics()), now))
            stale = {topic for topic, since in self._wanted.items() if now - since > TOPIC_LINGER}
            for topic in stale:
                del self._wanted[topic]
            is_due = now - self._renewed_at > RENEW_INTERVAL and bool(self._wanted)
            to_register = set(self._wanted) if is_due else unregistered & set(self._wanted)
            to_remove = stale & self._registered
        if to_register:
            db.execute(
                self._sql.register_topics,
                {"topics": Texts(sorted(to_register)), "who": self._sender, "keep": REGISTRATION_TTL},
            )
            self._renewed_at = now if is_due else self._renewed_at
        if to_remove:
            db.execute(self._sql.unregister_topics, (Texts(sorted(to_remove)), self._sender))
        with self._lock:
            self._registered = (self._registered | to_register) - to_remove
            # A new watch may have asked for a topic that was just removed.
            self._unregistered.update(to_remove & set(self._wanted))
        if unregistered:
            self._hub.wake(unregistered)
        return bool(to_register or to_remove)

    def _poll(self, db: psycopg.Connection[Any]) -> bool:
        """Check for commits of other processes, in case a notice was lost."""
        now = time.monotonic()
        if not self._hub.is_watched or now - self._polled_at < (SLOW_POLL if self.listens else QUICK_POLL):
            return False
        self._polled_at = now
        result, state, snapshot = db.execute(self._sql.has_changed, (self._snapshot,)).fetchone() or (True, None, None)
        if result or state != self._last_state:
            self._hub.wake([ANY])
        self._snapshot, self._last_state = snapshot, state
        return True

    def _unregister(self, db: psycopg.Connection[Any]) -> None:
        with contextlib.suppress(psycopg.Error):
            self._send(db)
            if self._registered:
                db.execute(self._sql.unregister_topics, (Texts(sorted(self._registered)), self._sender))


def _can_be_stored(topic: str) -> bool:
    """PostgreSQL cannot store other names, so nothing with such a name can ever change."""
    return "\0" not in topic and not any("\ud800" <= c <= "\udfff" for c in topic)
