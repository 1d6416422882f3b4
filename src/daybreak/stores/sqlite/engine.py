"""The writing connection and its transactions. All waiting requests share one commit; each succeeds or fails alone."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import apsw
from msgspec import Struct

from daybreak.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.core.units import micros
from daybreak.stores.kernel.exchange import finish
from daybreak.stores.kernel.insert import insert
from daybreak.stores.sqlite import forks, schema
from daybreak.stores.sqlite.cache import StoreCache
from daybreak.stores.sqlite.changes import Changes
from daybreak.stores.sqlite.commit import write_changes
from daybreak.stores.sqlite.faults import Translated, translate
from daybreak.stores.sqlite.transaction import SqliteTransaction
from daybreak.stores.sqlite.wal import WriteAheadLog
from daybreak.stores.sqlite.write_lock import WriteLock
from daybreak.system.ports import World


class Request(Struct, frozen=True):
    """Work for one transaction: `run` does it and returns the answer. A plain insert also names its `specs`, so that it
    can be merged with other inserts."""

    run: Callable[[SqliteTransaction], Any]
    now: datetime | None = None
    weight: int = 1
    specs: Sequence[JobSpec] = ()

    @classmethod
    def insert(cls, specs: Sequence[JobSpec], now: datetime | None = None) -> Self:
        mergeable: Sequence[JobSpec] = () if now else specs
        return cls(lambda tx: insert(tx, specs), now, len(specs), mergeable)


SYNCHRONOUS: Final = "full"  # every commit is on disk before it is acknowledged


@dataclass(frozen=True, slots=True)
class Place:
    """Where the file is, how it is opened, and which schema this program knows."""

    path: Path
    vfs: str | None
    boot: str
    known: schema.SchemaVersion

    def identity(self) -> tuple[int, int]:
        about = os.stat(self.path)  # noqa: PTH116 - not Path.stat, which is slower: this runs at every commit
        return about.st_dev, about.st_ino


class Engine:
    """The writing connection. Any thread may use it, one at a time, while it holds `using`."""

    def __init__(self, place: Place, write_lock: WriteLock, world: World, *, fast_path: bool = True) -> None:
        self.using = threading.Lock()
        self.translated = Translated(place.path)
        self._place = place
        self._write_lock = write_lock
        self._world = world
        self._fast_path = fast_path
        self._anchor = 0
        self._identity = (0, 0)
        self._cache = StoreCache()
        self._version: int | None = None
        self._log = WriteAheadLog(place.path, write_lock, may_preallocate=place.vfs is None)
        self._db: apsw.Connection | None = None
        self._is_clean = True
        forks.watch(self)
        with self.using, self.translated:
            self._connect()

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connect(self) -> apsw.Connection:
        place = self._place
        forks.close_inherited()
        with self._write_lock.in_process, self._write_lock:
            schema.create(place.path)
        db = schema.connect(place.path, place.vfs)
        try:
            schema.prepare(db, place.path, place.known)
            db.pragma("synchronous", SYNCHRONOUS)
            with self._write_lock.in_process, self._write_lock:
                schema.migrate(db, place.path, place.known)
                db.execute("BEGIN IMMEDIATE")
                self._anchor = schema.anchor(db, self._world.wall(), self._world.steady(), place.boot)
                db.execute("COMMIT")
            self._log.watch(db)
        except BaseException:
            db.close(True)
            raise
        self._db = db
        self._identity = place.identity()
        self._cache, self._version = StoreCache(), None
        return db

    def _check_still_there(self) -> None:
        """Refuse to commit into a file that was deleted while it was open; reopen one that was replaced."""
        if self._db is None:
            return
        try:
            identity = self._place.identity()
        except FileNotFoundError:
            raise StoreUnavailable(
                f"{self._place.path} was deleted while it was in use: put it back, or restart with an empty store"
            ) from None
        if identity != self._identity:  # replaced, for example by a backup
            self._abandon(self._db)

    def close(self) -> None:
        with self.using:
            self.recover()
            if self._db is not None:
                # The last connection to close empties the log and locks the file for it: nobody may write meanwhile.
                with self._write_lock.in_process, self._write_lock:
                    self._db.close()
                self._db = None

    def leave(self) -> apsw.Connection | None:
        db, self._db = self._db, None
        return db

    def times(self, now: datetime | None) -> tuple[int, int]:
        """The store's wall and steady time."""
        if now is not None:
            return micros(now), micros(now)
        return self._world.wall(), self.steady_at(self._world.steady())

    def steady_at(self, local: int) -> int:
        """The store's steady time at a local monotonic time, in microseconds."""
        return self._anchor + local

    # -- transactions --------------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request]) -> tuple[list[Any], set[str]]:
        """Run requests in one transaction. Returns their answers or errors in order and the topics to wake, once the
        transaction is durable."""
        self.recover()
        try:
            with self.translated:
                return self._run(requests)
        except StoreError as error:
            return [error] * len(requests), set()

    def _run(self, requests: Sequence[Request]) -> tuple[list[Any], set[str]]:
        self._check_still_there()
        self._is_clean = False
        db = self._db or self._connect()
        with self._write_lock.in_process, self._write_lock:
            answers, topics = self._transact(db, requests)
        self._is_clean = True
        return answers, topics

    def run_if_free(self, request: Request) -> tuple[list[Any], set[str]] | None:
        """Like `run`, if no other thread or process must be waited for; else None, and nothing was done."""
        db = self._db
        if not self._is_clean or db is None or not self._write_lock.in_process.acquire(blocking=False):
            return None
        try:
            if not self._write_lock.enter_if_free():
                return None
            try:
                with self.translated:
                    self._check_still_there()
                    return None if self._db is None else self._transact(db, [request])
            except StoreError as error:
                return [error], set()
            finally:
                self._write_lock.__exit__()
        finally:
            self._write_lock.in_process.release()

    def _transact(self, db: apsw.Connection, requests: Sequence[Request]) -> tuple[list[Any], set[str]]:
        try:
            db.execute("BEGIN IMMEDIATE")
            self._forget_if_changed(db)
            answers, parts, last = self._answer(db, requests)
            topics = write_changes(last, parts) if parts else set()
        except BaseException:
            self._roll_back(db)
            raise
        self._commit(db)
        return answers, topics

    def _begin(self, db: apsw.Connection, now: datetime | None, before: list[Changes]) -> SqliteTransaction:
        return SqliteTransaction(db, self._cache, *self.times(now), before, fast_path=self._fast_path)

    def _answer(
        self, db: apsw.Connection, requests: Sequence[Request]
    ) -> tuple[list[Any], list[Changes], SqliteTransaction]:
        answers: list[Any] = []
        parts: list[Changes] = []
        groups = _grouped(requests)
        while groups:
            group = groups.pop(0)
            tx = self._begin(db, group[0].now, parts)
            if len(requests) > 1:
                db.execute("SAVEPOINT request")
            try:
                answered = _run_group(group, tx)
                finish(tx)
                parts.append(tx.changes())
                tx.close()
                answers += answered  # last: whatever fails before has only its error for an answer
            except Exception as error:
                if isinstance(error, _FATAL) or len(requests) == 1 or not db.in_transaction:
                    raise
                # A bad request fails alone: undo only its own changes.
                db.execute("ROLLBACK TO request")
                self._cache = tx.cache = StoreCache()
                if len(group) == 1:
                    answers.append(self.translate(error))
                else:
                    groups[:0] = [[request] for request in group]
            if len(requests) > 1:
                db.execute("RELEASE request")
        return answers, parts, tx

    def _commit(self, db: apsw.Connection) -> None:
        try:
            db.execute("COMMIT")
        except apsw.IOError as error:
            # The commit may or may not survive. A later sync of the same descriptor may report success although data
            # was lost, so the file is opened anew, and the callers repeat their requests.
            self._abandon(db)
            raise OutcomeUnknown(
                f"{self._place.path}: the disk failed during a commit ({error}), which may or may not have been "
                "written; repeat the call, repeating is safe"
            ) from error
        except BaseException:
            self._roll_back(db)
            raise

    def _roll_back(self, db: apsw.Connection) -> None:
        self._cache, self._version = StoreCache(), None
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except apsw.Error:
            self._abandon(db)

    def _abandon(self, db: apsw.Connection) -> None:
        self._db, self._cache, self._version = None, StoreCache(), None
        with contextlib.suppress(apsw.Error):
            db.close(True)

    def recover(self) -> None:
        """Roll back a transaction whose thread was interrupted, for example by Ctrl-C, and release its locks."""
        if not self._is_clean:
            if self._db is not None:
                self._roll_back(self._db)
            self._write_lock.release_after_interrupt()
            self._is_clean = True

    def _forget_if_changed(self, db: apsw.Connection) -> None:
        version = data_version(db)
        if version != self._version:
            schema.refuse_if_migrated(db, self._place.path, self._place.known)
            self._cache, self._version = self._cache.refreshed(db), version

    # -- the write-ahead log -------------------------------------------------------------------------------------------

    @property
    def needs_maintenance(self) -> bool:
        return self._log.needs_maintenance

    def maintain(self) -> None:
        """Maintain the write-ahead log. Called after the answers are out, so that no caller waits for it."""
        if self._db is not None:
            self._log.maintain(self._db, lambda: self._place.identity() == self._identity)

    # -- errors --------------------------------------------------------------------------------------------------------

    def translate(self, error: Exception) -> Exception:
        return translate(self._place.path, error)


def _grouped(requests: Sequence[Request]) -> list[list[Request]]:
    """Merge adjacent inserts, which halves their cost; every other request is a group of its own."""
    groups: list[list[Request]] = []
    for request in requests:
        if request.specs and groups and groups[-1][0].specs:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


def _run_group(group: list[Request], tx: SqliteTransaction) -> list[Any]:
    if len(group) == 1:
        return [group[0].run(tx)]
    inserted = iter(insert(tx, [spec for request in group for spec in request.specs]))
    return [list(itertools.islice(inserted, len(request.specs))) for request in group]


_FATAL = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.ReadOnlyError, apsw.NoMemError)


def data_version(db: apsw.Connection) -> int:
    """A number that changes whenever another connection has committed."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])  # type: ignore[index]
