"""Queues on SQLite that others wrote, each driven in one process as its documentation shows; huey with its defaults.

None has a bulk call or an async face. The task gives its number back: huey keeps that result, as Daybreak does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from benchmarks.watch import Timed, warm_up


class Peer(Protocol):
    """`once` takes a job, runs it and ends it; False when there is none."""

    def enqueue(self, n: int) -> object: ...

    def once(self) -> bool: ...

    def pragma(self, name: str) -> str: ...


def noop(n: int) -> int:
    return n


class Huey:
    def __init__(self, place: Path) -> None:
        from huey import SqliteHuey

        logging.getLogger("huey").setLevel(logging.WARNING)
        self._huey = SqliteHuey("bench", filename=str(place / "huey.db"))
        self.enqueue = self._huey.task()(noop)

    def once(self) -> bool:
        if (task := self._huey.dequeue()) is None:
            return False
        self._huey.execute(task)
        return True

    def pragma(self, name: str) -> str:
        return str(self._huey.storage.sql(f"PRAGMA {name}", results=True)[0][0])


class LiteQueue:
    def __init__(self, place: Path) -> None:
        from litequeue import LiteQueue as Queue

        self._queue = Queue(str(place / "lite.db"))

    def enqueue(self, n: int) -> object:
        return self._queue.put(str(n))

    def once(self) -> bool:
        if (message := self._queue.pop()) is None:
            return False
        noop(int(message.data))
        self._queue.done(message.message_id)
        return True

    def pragma(self, name: str) -> str:
        return str(self._queue.conn.execute(f"PRAGMA {name}").fetchone()[0])


class PersistAck:
    def __init__(self, place: Path) -> None:
        from persistqueue import SQLiteAckQueue

        self._queue = SQLiteAckQueue(str(place))

    def enqueue(self, n: int) -> object:
        return self._queue.put({"n": n})

    def once(self) -> bool:
        if not self._queue.size:
            return False
        item = self._queue.get(block=False)
        noop(**item)
        self._queue.ack(item)
        return True

    def pragma(self, name: str) -> str:
        return str(self._queue._putter.execute(f"PRAGMA {name}").fetchone()[0])


class PersistPriority:
    """Takes a job out for good when it is got: nothing is acknowledged, and a crash loses it."""

    def __init__(self, place: Path) -> None:
        from persistqueue import PriorityQueue

        self._queue = PriorityQueue(str(place))

    def enqueue(self, n: int) -> object:
        return self._queue.put({"n": n}, priority=n % 5)

    def once(self) -> bool:
        if not self._queue.size:
            return False
        noop(**self._queue.get(block=False))
        return True

    def pragma(self, name: str) -> str:
        return str(self._queue._putter.execute(f"PRAGMA {name}").fetchone()[0])


PEERS: dict[str, Callable[[Path], Peer]] = {
    "huey": Huey,
    "litequeue": LiteQueue,
    "persist-ack": PersistAck,
    "persist-priority": PersistPriority,
}


def enqueue(peer: str, place: Path, jobs: int) -> Timed:
    timed = Timed(jobs=jobs)
    queue = PEERS[peer](place)
    for n in range(warm_up(jobs)):
        queue.enqueue(n)
    with timed.timing():
        for n in range(jobs):
            queue.enqueue(n)
    timed.facts = _settings(queue)
    return timed


def drain(peer: str, place: Path, jobs: int) -> Timed:
    """Of `jobs` waiting, the last four fifths are timed."""
    queue = PEERS[peer](place)
    for n in range(jobs):
        queue.enqueue(n)
    warm = warm_up(jobs)
    timed = Timed(jobs=jobs - warm)
    assert all(queue.once() for _ in range(warm))
    with timed.timing():
        ran = sum(queue.once() for _ in range(jobs - warm))
    assert ran == jobs - warm, f"{ran} jobs came back where {jobs - warm} were waiting"
    assert not queue.once()
    timed.facts = _settings(queue)
    return timed


def _settings(queue: Peer) -> dict[str, str]:
    return {name: queue.pragma(name) for name in ("journal_mode", "synchronous")}
