"""Forks: a child inherits what SQLite remembers of its locks, but not the locks.

SQLite counts in memory which locks this process has on a file, and asks the system for none twice. In a forked child
the counts are there and the locks are the parent's: whatever the child opened next would stand without any, and the
parent, to its knowledge the last to close, would throw away the log into which the child commits. So a fork waits
until no thread of ours is inside SQLite, and a child that opens a file first closes what it inherited, in a way that
touches nothing but its own memory and descriptors."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Protocol

import apsw

from daybreak.core.errors import StoreUnavailable

PATIENCE = 2.0  # seconds a fork waits for those who are inside SQLite


class Connected(Protocol):
    """One who has a connection; whoever uses it holds `using`."""

    using: threading.Lock

    def leave(self) -> apsw.Connection | None:
        """Let go of the connection without closing it."""
        ...


_connected: weakref.WeakSet[Connected] = weakref.WeakSet()
_listed = threading.Lock()
_inherited: list[apsw.Connection] = []
_torn = False  # this process was forked while a thread, which it does not have, was inside SQLite


class _Fork(threading.local):
    """The fork that this thread is at."""

    def __init__(self) -> None:
        self.held: list[threading.Lock] = []
        self.is_still = False


_fork = _Fork()


def watch(one: Connected) -> None:
    """Before it connects, so that no fork comes between."""
    with _listed:
        _connected.add(one)


def close_inherited() -> None:
    """To be called before a connection is opened."""
    if _torn:
        raise StoreUnavailable(
            "this process was forked while another thread was at work in a SQLite store, and cannot open one itself: "
            "fork before the store is in use, or start the process anew (multiprocessing: the spawn method)"
        )
    while _inherited:
        with contextlib.suppress(IndexError, apsw.Error):
            _inherited.pop().close(True)


def _before() -> None:
    """Stand still: nobody comes in any more, and all who are inside come out."""
    until = time.monotonic() + PATIENCE
    _fork.is_still = _hold(_listed, until) and all(_hold(one.using, until) for one in _connected)


def _hold(lock: threading.Lock, until: float) -> bool:
    if lock.acquire(timeout=max(0.0, until - time.monotonic())):
        _fork.held.append(lock)
        return True
    return False


def _after() -> None:
    while _fork.held:
        _fork.held.pop().release()


def _after_in_child() -> None:
    global _listed, _torn  # noqa: PLW0603
    _after()
    _listed = threading.Lock()
    for one in list(_connected) if _fork.is_still else ():
        if (db := one.leave()) is not None:
            # Without this, a last close would empty the log and remove it: that is for those who have real locks.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            _inherited.append(db)
    _torn = _torn or not _fork.is_still
    _connected.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
