"""The reading connection. Each read has its own snapshot, blocks no writer, and ends with the call."""

from __future__ import annotations

import threading
from typing import Any

import apsw

from daybreak.stores.sqlite import forks, schema
from daybreak.stores.sqlite.cache import StoreCache
from daybreak.stores.sqlite.engine import Engine, Place, Request, data_version
from daybreak.stores.sqlite.transaction import SqliteTransaction


class Reader:
    """Runs read requests, one at a time."""

    def __init__(self, place: Place, engine: Engine) -> None:
        self.using = threading.Lock()
        self._place = place
        self._engine = engine
        self._db: apsw.Connection | None = None
        self._cache = StoreCache()
        self._version: int | None = None
        self._changes_seen: int | None = None
        self._identity = (0, 0)
        forks.watch(self)

    def run(self, request: Request) -> Any:
        with self.using, self._engine.translated:
            if self._db is not None and self._place.identity() != self._identity:
                self._close()  # the file was replaced, for example by a backup
            db = self._db or self._connect()
            db.execute("BEGIN")
            try:
                self._forget_if_changed(db)
                tx = SqliteTransaction(db, self._cache, *self._engine.times(request.now))
                answer = request.run(tx)
                tx.close()
                db.execute("ROLLBACK")
            except BaseException:
                # The error may keep a cursor alive, which would keep the snapshot open and the log from starting over.
                self._db, self._version = None, None
                db.close(True)
                raise
            return answer

    def _connect(self) -> apsw.Connection:
        self._identity = self._place.identity()
        self._db = schema.connect(self._place.path, self._place.vfs)
        self._db.set_busy_timeout(5000)
        self._db.pragma("query_only", True)
        self._db.pragma("trusted_schema", False)
        return self._db

    def _forget_if_changed(self, db: apsw.Connection) -> None:
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()  # a snapshot begins with its first read
        version = data_version(db)
        if version != self._version:
            schema.refuse_if_migrated(db, self._place.path, self._place.known)
            self._cache, self._version = StoreCache(), version

    def has_changed(self) -> bool:
        """Whether another connection has committed since the last call."""
        with self.using, self._engine.translated:
            seen = data_version(self._db or self._connect())
        changed, self._changes_seen = seen != self._changes_seen, seen
        return changed

    def close(self) -> None:
        with self.using:
            self._close()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def leave(self) -> apsw.Connection | None:
        db, self._db = self._db, None
        return db
