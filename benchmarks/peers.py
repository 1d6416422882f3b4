"""How fast others accept a job: one process, one call after another, each library as its documentation shows.

Only taskito has a bulk call, none an async face. How they drain stands in workers.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.watch import Timed, warm_up


class Peer(Protocol):
    def enqueue(self, n: int) -> object: ...

    def facts(self) -> dict[str, str]:
        """Its settings, read back from it."""
        ...


class Huey:
    def __init__(self, place: Path) -> None:
        from benchmarks.workers import Huey as Runner

        runner = Runner(place)
        self.enqueue, self.facts = runner.submit, runner.facts


class LiteQueue:
    def __init__(self, place: Path) -> None:
        from litequeue import LiteQueue as Queue

        self._queue = Queue(str(place / "lite.db"))

    def enqueue(self, n: int) -> object:
        return self._queue.put(str(n))

    def facts(self) -> dict[str, str]:
        return _synchronous(self._queue.conn)


class PersistAck:
    def __init__(self, place: Path) -> None:
        from benchmarks.workers import PersistAck as Runner

        runner = Runner(place)
        self.enqueue, self.facts = runner.submit, runner.facts


class PersistPriority:
    def __init__(self, place: Path) -> None:
        from persistqueue import PriorityQueue

        self._queue = PriorityQueue(str(place))

    def enqueue(self, n: int) -> object:
        return self._queue.put({"n": n}, priority=n % 5)

    def facts(self) -> dict[str, str]:
        return _synchronous(self._queue._putter)


class Taskito:
    def __init__(self, place: Path) -> None:
        from benchmarks.workers import Taskito as Runner

        runner = Runner(place)
        self.enqueue, self.fill, self.facts = runner.submit, runner.fill, runner.facts


PEERS: dict[str, Callable[[Path], Peer]] = {
    "huey": Huey,
    "litequeue": LiteQueue,
    "persist-ack": PersistAck,
    "persist-priority": PersistPriority,
    "taskito": Taskito,
}


def enqueue(peer: str, place: Path, jobs: int) -> Timed:
    timed = Timed(jobs=jobs)
    queue = PEERS[peer](place)
    for n in range(warm_up(jobs)):
        queue.enqueue(n)
    with timed.timing():
        for n in range(jobs):
            queue.enqueue(n)
    timed.facts = queue.facts()
    return timed


def bulk(peer: str, place: Path, jobs: int) -> Timed:
    assert peer == "taskito", "only taskito has a bulk call"
    timed = Timed(jobs=jobs)
    queue = Taskito(place)
    queue.fill(warm_up(jobs))
    with timed.timing():
        queue.fill(jobs)
    timed.facts = queue.facts()
    return timed


def _synchronous(database: Any) -> dict[str, str]:
    return {"synchronous": str(database.execute("PRAGMA synchronous").fetchone()[0])}
