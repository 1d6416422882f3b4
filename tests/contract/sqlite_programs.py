"""Programs of two schema versions on one SQLite file."""

from __future__ import annotations

from daybreak.stores.sqlite import SqliteStore, schema

NEXT_VERSION = """
ALTER TABLE job ADD COLUMN synthetic INTEGER;
ALTER TABLE lease ADD COLUMN synthetic INTEGER NOT NULL DEFAULT 0;
CREATE TABLE synthetic (seq INTEGER PRIMARY KEY);
"""


class SqlitePrograms:
    """Programs of today's schema and of a synthetic next one."""

    def __init__(self, path, **options):
        self._path = path
        self._options = options

    def current(self):
        return SqliteStore(self._path, **self._options)

    def newer(self, *, serves_older):
        store = self.current()
        today = schema.CURRENT
        store._known = schema.SchemaVersion((*today.scripts, NEXT_VERSION), today.number + (not serves_older))
        return store

    async def look_again(self, store):
        """Each transaction sees whether another program has committed."""
