"""Bugs in how the SQLite store treats schema versions. Each is a context in which the store has the bug."""

from __future__ import annotations

import contextlib

import pytest

from daybreak.core.errors import StoreTooNew
from daybreak.stores.sqlite import schema
from daybreak.stores.sqlite.cache import StoreCache
from daybreak.stores.sqlite.engine import Engine, data_version


@contextlib.contextmanager
def newer_schema_is_taken_for_ours():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "refuse_newer", lambda *_: None)
        yield


@contextlib.contextmanager
def every_version_shuts_out_the_one_before():
    migrate = schema.migrate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "migrate", lambda db, path, known: migrate(db, path, known._replace(needs=known.number)))
        yield


@contextlib.contextmanager
def newer_file_is_marked_as_ours():
    """The refused program has already written its own version into the file."""
    refuse = schema.refuse_newer

    def refuse_newer(db, path, known=schema.CURRENT):
        try:
            refuse(db, path, known)
        except StoreTooNew:
            db.execute("ROLLBACK")
            db.pragma("user_version", known.number)
            db.execute("BEGIN")
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "refuse_newer", refuse_newer)
        yield


@contextlib.contextmanager
def running_program_never_looks_again():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "refuse_if_migrated", lambda *_: None)
        yield


@contextlib.contextmanager
def running_program_is_refused_only_once():
    """The refused transaction forgets which version it saw, and the next one does not compare."""

    def forget_if_changed(self, db):
        version = data_version(db)
        if version != self._version:
            if self._version is not None:
                schema.refuse_if_migrated(db, self._place.path, self._place.known)
            self._cache, self._version = StoreCache(), version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_forget_if_changed", forget_if_changed)
        yield


@contextlib.contextmanager
def upgrade_starts_the_file_anew():
    """As if the next version were a schema of its own, and not a change of the one before."""
    migrate = schema.migrate

    def start_anew(db, path, known):
        before = db.pragma("user_version")
        migrate(db, path, known)
        if 0 < before < known.number:
            for table in ("ready", "lease", "done", "tally", "feed", "job"):
                db.execute(f"DELETE FROM {table}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "migrate", start_anew)
        yield
