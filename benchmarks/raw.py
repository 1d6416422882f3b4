"""The floor: bare apsw, a bare heap and queue, bare threads. The difference between these and a row is the cost of
Daybreak."""

from __future__ import annotations

import heapq
import queue
import threading
from pathlib import Path

from benchmarks.watch import Timed, warm_up

PAYLOAD = b"x" * 100


def commit(place: Path, jobs: int, batch: int) -> Timed:
    """Insert rows of 100 bytes, `batch` of them in each durable commit."""
    import apsw

    database = apsw.Connection(str(place / "raw.db"))
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE job(id INTEGER PRIMARY KEY, data BLOB)")
    timed = Timed()
    _insert(database, warm_up(jobs) // batch + 1, batch)
    commits = jobs // batch
    with timed.timing():
        _insert(database, commits, batch)
    timed.jobs = commits * batch
    [(synchronous,)] = database.execute("PRAGMA synchronous")
    timed.facts["synchronous"] = str(synchronous)
    database.close()
    return timed


def _insert(database, commits: int, batch: int) -> None:
    insert = "INSERT INTO job(data) VALUES(?)"
    for _ in range(commits):
        if batch == 1:
            database.execute(insert, (PAYLOAD,))
        else:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(insert, ((PAYLOAD,) for _ in range(batch)))
            database.execute("COMMIT")


def heap(place: Path, jobs: int) -> Timed:
    """Plain Python, small enough for the processor's cache: how fast this machine computes today."""
    timed = Timed(jobs=jobs)
    waiting = [(n % 5, n, PAYLOAD) for n in range(1000)]
    heapq.heapify(waiting)
    with timed.timing():
        for n in range(1000, 1000 + jobs):
            heapq.heappushpop(waiting, (n % 5, n, PAYLOAD))
    return timed


def priorities(place: Path, jobs: int) -> Timed:
    """The standard library's queue in one thread, filled and emptied."""
    timed = Timed(jobs=jobs)
    waiting: queue.PriorityQueue[tuple[int, int, bytes]] = queue.PriorityQueue()
    with timed.timing():
        for n in range(jobs):
            waiting.put((n % 5, n, PAYLOAD))
        for _ in range(jobs):
            waiting.get()
    return timed


def threads(place: Path, jobs: int, callers: int) -> Timed:
    """Several threads send requests to one other thread and wait for its replies; requests that arrive meanwhile are
    answered together. Nothing else is done, so this is the cost of the interpreter's thread switches."""
    timed = Timed(jobs=jobs // callers * callers)
    asked: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()

    def answer() -> None:
        while (waiting := asked.get()) is not None:
            waiting.release()

    def ask() -> None:
        for _ in range(jobs // callers):
            waiting = threading.Lock()
            waiting.acquire()
            asked.put(waiting)
            waiting.acquire()

    answering = threading.Thread(target=answer)
    asking = [threading.Thread(target=ask) for _ in range(callers)]
    answering.start()
    with timed.timing():
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    asked.put(None)
    answering.join()
    return timed
