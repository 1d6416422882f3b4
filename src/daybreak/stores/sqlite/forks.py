"""Forks: a child inherits what SQLite remembers of its locks, but not the locks themselves.

SQLite counts in memory which locks this process holds on a file, and never asks the system for the same lock twice. A
forked child has the counts, but the locks belong to the parent: a connection that the child opened next would work
without locks, and the parent, which believes that it is the last to close the file, would delete the log into which the
child commits. So a fork waits until no thread of this process is inside SQLite, and a child that opens a file first
closes the inherited connections, in a way that touches only its own memory and descriptors."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Protocol

import apsw

from daybreak.core.errors import StoreUnavailable

PATIENCE = 2.0  # seconds that a fork waits for threads that are inside SQLite


class Connected(Protocol):
    """The owner of a connection. A thread that uses the connection holds `using`."""

    using: threading.Lock

    def leave(self) -> apsw.Connection | None:
        """Give up the connection without closing it."""
        ...


_owners: weakref.WeakSet[Connected] = weakref.WeakSet()
_owners_lock = threading.Lock()
_inherited: list[apsw.Connection] = []
_is_unusable = False  # this process was forked while a thread of its parent was inside SQLite


class _Fork(threading.local):
    """The fork that the current thread performs."""

    def __init__(self) -> None:
        self.held: list[threading.Lock] = []
        self.is_quiet = False


_fork = _Fork()


def watch(owner: Connected) -> None:
    """Register the owner of a connection, before it connects: a fork in between would miss it."""
    with _owners_lock:
        _owners.add(owner)


def close_inherited() -> None:
    """Close the connections that a fork left in this process. Call this before a connection is opened."""
    if _is_unusable:
        raise StoreUnavailable(
            "this process was forked while another thread was using a SQLite store, and cannot open one itself: "
            "fork before the store is in use, or start a new process (multiprocessing: the spawn method)"
        )
    while _inherited:
        with contextlib.suppress(IndexError, apsw.Error):
            _inherited.pop().close(True)


def _before() -> None:
    """Wait until no thread is inside SQLite, and keep all threads out."""
    until = time.monotonic() + PATIENCE
    _fork.is_quiet = _hold(_owners_lock, until) and all(_hold(owner.using, until) for owner in _owners)


def _hold(lock: threading.Lock, until: float) -> bool:
    if lock.acquire(timeout=max(0.0, until - time.monotonic())):
        _fork.held.append(lock)
        return True
    return False


def _after() -> None:
    while _fork.held:
        _fork.held.pop().release()


def _after_in_child() -> None:
    global _owners_lock, _is_unusable  # noqa: PLW0603
    _after()
    _owners_lock = threading.Lock()
    if _fork.is_quiet:
        for owner in list(_owners):
            db = owner.leave()
            if db is not None:
                # Else the last close would empty and delete the log, which only a process with real locks may do.
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                _inherited.append(db)
    else:
        _is_unusable = True
    _owners.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
