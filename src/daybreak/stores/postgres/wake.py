"""Waking other processes: who waits says so in a table, and whoever has committed tells those, and only those.

A NOTIFY inside a commit makes all such commits stand in one line, so only a new job that comes after a while without
any is told of by its own commit, at once, if that sees anyone who waits; else it is told after the commit, by a thread
of its own, for all that changed meanwhile. Who begins to wait is told once more when his wish has become known: what
was committed before that, he then sees. A notice that is lost with its sender is made good by a slow look.

Where LISTEN does not work (a pooler that gives every transaction another process) one looks more often, but only
while someone waits."""

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
from daybreak.stores.postgres.link import connect, meet
from daybreak.stores.postgres.statements import Statements, quoted
from daybreak.stores.postgres.transactional_submit import channel_of
from daybreak.stores.postgres.watchdog import Waiting, Watchdog
from daybreak.stores.wakeups import ANY, Wakeups
from daybreak.system import patience

SLOW_LOOK: Final = 10.0  # seconds; a broken connection is noticed at once
QUICK_LOOK: Final = 0.15
LINGER: Final = 5.0  # how long a wish is kept that nobody has at the moment: most come back
RENEW: Final = 20.0
BREATH: Final = 0.005  # between notices; what changes meanwhile goes together. Also what nobody is known to wait for
WITHIN: Final = 0.02  # between two commits that tell by themselves
LONG_BREATH: Final = 0.02  # while nobody waits: who begins to is woken by his own wish
KEEP: Final = 60  # seconds; after that a wish is forgotten by everyone
TRIAL: Final = 1.0
NEVER: Final = float("inf")


class ListenedHub(Wakeups):
    """A hub that can say what is watched."""

    def topics(self) -> set[str]:
        with self._lock:
            return set(self._watches)


class Wake:
    def __init__(self, place: Address, hub: ListenedHub, watchdog: Watchdog) -> None:
        self._place = place
        self._hub = hub
        self._waiting = Waiting()
        self._within = place.answer_within.total_seconds()
        watchdog.watch(self._waiting)
        self._sql = Statements("sql", place.schema)
        self._channel = channel_of(place)
        self._who = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}  # when each was last wished for
        self._known: set[str] = set()
        self._fresh: set[str] = set()  # wished for, and the server does not know yet
        self._changed: set[str] = set()
        self._renewed = self._looked = self._next_send = self._next_within = 0.0
        self._tell_at = NEVER  # when what changed is to be told, unless a breath must be taken first
        self._snapshot: str | None = None  # of the last look
        self._others: list[int] | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._is_listening = False  # on the present connection
        self._is_direct = False
        self.listens: bool | None = None  # whether that works; None: nobody has waited yet

    # -- from any thread -----------------------------------------------------------------------------------------------

    def tell(self, topics: Iterable[str], *, soon: bool = False) -> None:
        """At once, or with whatever else changes within a breath."""
        due = time.monotonic() + (BREATH if soon else 0.0)
        with self._lock:
            alarm = max(self._tell_at, self._next_send) if self._changed else NEVER
            self._changed.update(filter(_can_be_told, topics))
            self._tell_at = min(self._tell_at, due)
            is_earlier = max(due, self._next_send) < alarm
            self._start()
        if is_earlier:  # else the thread has its alarm set: to wake it would take the interpreter from our caller
            self._ring()

    def within(self) -> tuple[str, str] | None:
        """The channel and our name there, if a commit should tell by itself."""
        now = time.monotonic()
        with self._lock:
            if now < self._next_within:
                return None
            self._next_within = now + WITHIN
        return self._channel, self._who

    def want(self, topics: Iterable[str]) -> None:
        now = time.monotonic()
        with self._lock:
            for topic in filter(_can_be_told, topics):
                self._wanted[topic] = now
                if topic not in self._known:
                    self._fresh.add(topic)
            self._start()
            is_new = bool(self._fresh)
        if is_new:
            self._ring()

    def _start(self) -> None:
        if self._thread is None and not self._is_closed:
            self._bell = socket.socketpair()
            for end in self._bell:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, name="daybreak-pg-wake", daemon=True)
            self._thread.start()

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # full: it rings already
                bell[1].send(b"\0")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._ring()
        if thread is not None:
            thread.join()
        if self._bell is not None:
            for end in self._bell:
                end.close()
            self._bell = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        patience.unbound()
        backoff = Backoff()
        while not self._is_closed:
            began = time.monotonic()
            try:
                with contextlib.closing(connect(self._place, prepare_threshold=None)) as db, self._both(db) as both:
                    with self._waiting.on(db, self._within):
                        self._is_direct = meet(db).is_direct
                    backoff.connected()
                    began = -math.inf
                    self._is_listening = False
                    with self._lock:
                        self._known.clear()
                        self._fresh.update(self._wanted)
                    while not self._is_closed:
                        self._serve(db, both)
                    with self._waiting.on(db, self._within):
                        self._say_goodbye(db)
            except (psycopg.Error, StoreError, OSError):
                # Trouble with the server is for those who ask something of it; here one tries again.
                self._hub.wake([ANY])
                if began == -math.inf:
                    backoff.lost()
                else:
                    backoff.failed(time.monotonic() - began)
                self._pause(backoff.pause() or 0.0)

    @contextlib.contextmanager
    def _both(self, db: psycopg.Connection[Any]) -> Iterator[selectors.BaseSelector]:
        """What is said to the thread, by ours and by the server."""
        assert self._bell is not None
        with selectors.DefaultSelector() as both:  # select() knows no descriptor above 1023
            both.register(self._bell[0], selectors.EVENT_READ)
            both.register(db.fileno(), selectors.EVENT_READ)
            yield both

    def _listen(self, db: psycopg.Connection[Any]) -> None:
        """From when someone waits: who only submits is not woken by his own notices."""
        if not self._is_listening and self._wanted:
            self.listens = self.listens is not False and self._can_listen(db)
            self._is_listening = True

    def _can_listen(self, db: psycopg.Connection[Any]) -> bool:
        """Whether a notice of someone else arrives. Behind a pooler in transaction mode only our own do, and only
        while we ask something."""
        db.execute(f"LISTEN {quoted(self._channel)}")
        if self._is_direct:
            return True
        token = f"?{secrets.token_hex(8)}"
        with contextlib.closing(connect(self._place, prepare_threshold=None)) as other:
            other.execute("SELECT pg_notify(%s, %s)", (self._channel, token))
            until = time.monotonic() + TRIAL
            while (left := until - time.monotonic()) > 0 and not self._is_closed:
                if any(notice.payload == token for notice in db.notifies(timeout=left, stop_after=1)):
                    return True
        return False

    def _serve(self, db: psycopg.Connection[Any], both: selectors.BaseSelector) -> None:
        is_told = self._wait(db, both)
        if self._is_closed:
            return
        with self._waiting.on(db, self._within):
            if is_told:
                self._hear_at_once(db)
            self._listen(db)
            has_asked = self._send(db)
            if self.listens:
                has_asked = self._make_known(db) or has_asked
            has_asked = self._look(db) or has_asked
            if has_asked:
                self._hear(db)  # what came with the answers: nothing on the wire will say that it is there

    def _wait(self, db: psycopg.Connection[Any], both: selectors.BaseSelector) -> bool:
        """Whether the server has said something."""
        assert self._bell is not None
        with self._lock:
            if self._fresh and self.listens is not False:
                return False
            wait = SLOW_LOOK if self.listens or not self._hub.is_watched else QUICK_LOOK
            if self._changed:
                wait = min(wait, max(0.0, self._tell_at - time.monotonic(), self._next_send - time.monotonic()))
        ready = {key.fd for key, _ in both.select(wait)}
        if self._bell[0].fileno() in ready:
            with contextlib.suppress(OSError):
                self._bell[0].recv(4096)
        return db.fileno() in ready

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_closed and time.monotonic() < until:
            time.sleep(0.05)

    def _hear_at_once(self, db: psycopg.Connection[Any]) -> None:
        """What is on the wire. The driver's own way is made for waiting, and idle workers hear of each job so."""
        topics: set[str] = set()
        db.pgconn.consume_input()
        while (notice := db.pgconn.notifies()) is not None:
            topics.add(notice.extra.decode())
        self._wake(topics)

    def _hear(self, db: psycopg.Connection[Any]) -> None:
        self._wake({notice.payload for notice in db.notifies(timeout=0)})

    def _wake(self, topics: set[str]) -> None:
        if topics := {topic for topic in topics if not topic.startswith("?")}:
            self._hub.wake(topics)

    def _send(self, db: psycopg.Connection[Any]) -> bool:
        """Whether the server was asked, as for the others."""
        now = time.monotonic()
        with self._lock:
            if not self._changed or (now < max(self._tell_at, self._next_send) and not self._is_closed):
                return False
            changed, self._changed, self._tell_at = self._changed, set(), NEVER
        try:
            told = db.execute(self._sql.notify, (self._channel, Texts(sorted(changed)), self._who))
        except psycopg.Error:
            with self._lock:
                self._changed |= changed  # told on the next connection
                self._tell_at = now
            raise
        self._next_send = time.monotonic() + (BREATH if told.rowcount else LONG_BREATH)
        return True

    def _make_known(self, db: psycopg.Connection[Any]) -> bool:
        now = time.monotonic()
        with self._lock:
            fresh, self._fresh = self._fresh, set()
            if fresh or self._hub.is_watched:
                self._wanted.update(dict.fromkeys(filter(_can_be_told, self._hub.topics()), now))
            stale = {topic for topic, since in self._wanted.items() if now - since > LINGER}
            for topic in stale:
                del self._wanted[topic]
            is_due = now - self._renewed > RENEW and bool(self._wanted)
            known = set(self._wanted) if is_due else fresh & set(self._wanted)
            gone = stale & self._known
        if known:
            db.execute(self._sql.want, {"topics": Texts(sorted(known)), "who": self._who, "keep": KEEP})
            self._renewed = now if is_due else self._renewed
        if gone:
            db.execute(self._sql.want_no_more, (Texts(sorted(gone)), self._who))
        with self._lock:
            self._known = (self._known | known) - gone
            # Someone may have wished again for what was just withdrawn.
            self._fresh.update(gone & set(self._wanted))
        if fresh:
            self._hub.wake(fresh)
        return bool(known or gone)

    def _look(self, db: psycopg.Connection[Any]) -> bool:
        """The net under the notices: whatever was committed by others is noticed here at the latest."""
        now = time.monotonic()
        if not self._hub.is_watched or now - self._looked < (SLOW_LOOK if self.listens else QUICK_LOOK):
            return False
        self._looked = now
        told, others, snapshot = db.execute(self._sql.has_changed, (self._snapshot,)).fetchone() or (True, None, None)
        if told or others != self._others:
            self._hub.wake([ANY])
        self._snapshot, self._others = snapshot, others
        return True

    def _say_goodbye(self, db: psycopg.Connection[Any]) -> None:
        with contextlib.suppress(psycopg.Error):
            self._send(db)
            if self._known:
                db.execute(self._sql.want_no_more, (Texts(sorted(self._known)), self._who))


def _can_be_told(topic: str) -> bool:
    """PostgreSQL keeps no other names, so nothing by such a name can ever change."""
    return "\0" not in topic and not any("\ud800" <= c <= "\udfff" for c in topic)
