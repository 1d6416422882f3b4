"""The write-ahead log beside the file: how long it is, and that it may be any length."""

from __future__ import annotations

import errno
import shutil
import time

from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore
from daybreak.stores.sqlite import wal as wal_module


def log_of(store):
    return store._opened._engine._log


def queued(portal, client):
    return sum(tally.n for tally in portal.run(client.store.count()))


def until(true):
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_log_in_use_has_its_length_from_early_on_and_a_small_one_stays_small(store, client, tmp_path):
    wal = tmp_path / "jobs.db-wal"
    store.insert_now([client.spec("t")])
    assert wal.stat().st_size < wal_module.PREALLOCATE_AT * 4120
    while log_of(store)._pages < wal_module.PREALLOCATE_AT:
        store.insert_now([client.spec("t")])
    until(lambda: wal.stat().st_size == wal_module.PREALLOCATED_BYTES)
    written = log_of(store)._pages
    store.insert_now([client.spec("t")])
    assert log_of(store)._pages > written
    assert wal.stat().st_size == wal_module.PREALLOCATED_BYTES


def test_a_file_whose_log_was_lengthened_is_whole_after_a_death(store, client, portal, tmp_path):
    wal, copied = tmp_path / "jobs.db-wal", tmp_path / "after" / "jobs.db"
    accepted = 0
    while not (wal.exists() and wal.stat().st_size == wal_module.PREALLOCATED_BYTES):
        accepted += len(store.insert_now([client.spec("t")]))
    accepted += len(store.insert_now([client.spec("t") for _ in range(10)]))
    copied.parent.mkdir()
    for name in ("jobs.db", "jobs.db-wal"):  # as a machine finds them that lost its power
        shutil.copy(tmp_path / name, copied.parent / name)
    other = portal.run(SqliteStore(copied).open())
    assert queued(portal, Client(other)) == accepted
    portal.run(other.close())


def test_a_disk_without_room_for_a_longer_log_keeps_it_short(store, client, tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(wal_module.os, "fsync", full)
    while log_of(store)._preallocate_at is not None:
        store.insert_now([client.spec("t")])
    assert (tmp_path / "jobs.db-wal").stat().st_size < wal_module.PREALLOCATED_BYTES
    store.insert_now([client.spec("t")])
