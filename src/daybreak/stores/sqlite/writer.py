"""The writer thread: requests that arrive during a commit share the next one (group commit).

A thread that would only wait for its answer writes by itself if no other thread is writing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.sqlite.engine import Engine, Request

_log = logging.getLogger("daybreak.sqlite")

ITEMS_PER_COMMIT = 2000  # items of work in one transaction, so that no request waits long behind others
MAX_TIME_ON_LOOP: Final = 0.01  # seconds that a transaction may block an event loop
SLOW_FOR: Final = 1.0  # seconds for which the thread does the work after a transaction that took longer
GATHER_INTERVAL: Final = 0.0002  # seconds between two checks for more requests
MAX_GATHER_CHECKS: Final = 20
# Seconds. Where a signal cannot interrupt a wait on a lock, Ctrl-C takes effect after at most this long.
SIGNAL_CHECK_INTERVAL: Final = 0.5


class Command(Enum):
    """An order to the writer thread itself."""

    MAINTAIN = "recover and maintain the engine"
    END = "serve everyone who asked before, then end"


class Reply:
    """The answer to a request of a blocking thread."""

    def __init__(self) -> None:
        self._answered = threading.Lock()
        self._answered.acquire()
        self._answer: Any = None
        self._given_up = False

    def cancelled(self) -> bool:
        return self._given_up

    def set(self, answer: Any) -> None:
        self._answer = answer
        self._answered.release()

    def wait(self) -> Any:
        try:
            while not self._answered.acquire(timeout=SIGNAL_CHECK_INTERVAL):
                pass
        except BaseException:
            self._given_up = True
            raise
        return self._answer


Asked = tuple[Request, "asyncio.Future[Any] | Reply"]


class Writer:
    """Runs requests on the engine: in its own thread, in the caller's thread, or on the caller's loop."""

    def __init__(self, engine: Engine, wake: Callable[[set[str]], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._asked: queue.SimpleQueue[Asked | Command] = queue.SimpleQueue()
        self._is_waiting = False  # the thread has requests, and waits for the engine
        self._closing = threading.Lock()
        self._closed = False
        self.on_loop = False  # short transactions may run on the caller's event loop
        self._slow_until = 0.0
        self._last_group = 0  # how many threads waited for the last commit
        self._thread = threading.Thread(target=self._run, name="daybreak-writer", daemon=True)
        self._thread.start()

    async def ask(self, request: Request) -> Any:
        if self.on_loop and (answered := self._write_on_loop(request)) is not None:
            if isinstance(answered[0], BaseException):
                raise answered[0]
            return answered[0]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(request, future)
        return await future

    def ask_now(self, request: Request) -> Any:
        """Run a request for a blocking thread: in this thread if no other thread writes or waits to."""
        if self._is_waiting or self._engine.using.locked() or not self._asked.empty():
            reply = Reply()
            self._put(request, reply)
            answer = reply.wait()
        else:
            answer = self._write_here(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _put(self, request: Request, reply: asyncio.Future[Any] | Reply) -> None:
        with self._closing:
            self._refuse_if_closed()
            self._asked.put((request, reply))

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store was closed: open it again")

    def close(self) -> None:
        """Answer all requests, then end the thread. It ends with the engine held, so no caller writes in its own
        thread."""
        with self._closing:
            self._closed = True
        self._asked.put(Command.END)
        self._thread.join()

    # -- in the caller's thread ----------------------------------------------------------------------------------------

    def _write_here(self, request: Request) -> Any:
        with self._engine.using:
            self._refuse_if_closed()
            is_interrupted = True
            try:
                [answer], topics = self._engine.run([request])
                is_interrupted = False
            finally:
                # Ctrl-C, even a second one, may come anywhere, but not between an error and this first call. The writer
                # thread, which receives no signals, cleans up; else others would wait forever.
                if is_interrupted:
                    self._asked.put(Command.MAINTAIN)
            self._publish(topics)
            if self._engine.needs_maintenance:
                self._asked.put(Command.MAINTAIN)
        return answer

    # -- on the caller's loop ------------------------------------------------------------------------------------------

    def _write_on_loop(self, request: Request) -> list[Any] | None:
        """Run a request on the caller's loop, if no other thread or process holds the lock and the disk is fast: two
        thread switches cost as much as a small transaction. None: the writer thread must do it."""
        began = time.monotonic()
        if began < self._slow_until or self._is_waiting or self._closed or not self._asked.empty():
            return None
        if not self._engine.using.acquire(blocking=False):
            return None
        try:
            done = self._engine.run_if_free(request)
            if done is None:
                return None
            answers, topics = done
            if topics:  # after the caller has resumed, so that a job start is not delayed
                asyncio.get_running_loop().call_soon(self._publish, topics)
            if self._engine.needs_maintenance:
                self._asked.put(Command.MAINTAIN)
        finally:
            self._engine.using.release()
        if time.monotonic() - began > MAX_TIME_ON_LOOP:
            self._slow_until = began + SLOW_FOR
        return answers

    # -- in the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            first = self._asked.get()
            self._is_waiting = True
            self._wait_for_group()
            with self._engine.using:
                self._is_waiting = False
                batch, is_ending = self._gather(first)
                self._serve(batch)

    def _wait_for_group(self) -> None:
        """Wait while more threads arrive. Threads that were answered together ask again one after another, as the
        interpreter schedules them: a commit for the first few costs all of them more than a short wait for the rest."""
        for _ in range(MAX_GATHER_CHECKS):
            requests = self._asked.qsize() + 1
            if requests >= self._last_group * 0.9:
                return
            time.sleep(GATHER_INTERVAL)
            if self._asked.qsize() + 1 == requests:
                return

    def _gather(self, item: Asked | Command) -> tuple[list[Asked], bool]:
        """All requests that wait now, up to a bound; and whether the thread ends after them."""
        batch: list[Asked] = []
        weight = 0
        while item is not Command.END:
            if not isinstance(item, Command) and not item[1].cancelled():
                # A caller that was cancelled must not be given a job.
                batch.append(item)
                weight += item[0].weight
            if weight >= ITEMS_PER_COMMIT or self._asked.empty():
                return batch, False
            item = self._asked.get()
        return batch, True

    def _serve(self, batch: list[Asked]) -> None:
        topics: set[str] = set()
        if batch:
            self._last_group = sum(isinstance(reply, Reply) for _, reply in batch)
            try:
                answers, topics = self._engine.run([request for request, _ in batch])
                if len(answers) != len(batch):
                    raise AssertionError(f"{len(answers)} answers to {len(batch)} requests")  # noqa: TRY301
            except BaseException as error:  # noqa: BLE001 - raised in the callers, which would else wait forever
                answers = [error] * len(batch)
            deliver((reply, answer) for (_, reply), answer in zip(batch, answers, strict=True))
        self._publish(topics)
        try:
            self._engine.recover()
            self._engine.maintain()
        except Exception:  # noqa: BLE001 - the next commit tries again
            _log.exception("could not maintain the write-ahead log after a commit")

    def _publish(self, topics: set[str]) -> None:
        try:
            if topics:
                self._wake(topics)
        except Exception:  # noqa: BLE001 - the answers are out, and polling wakes those who missed this
            _log.exception("could not send wake-ups after a commit")


def deliver(answers: Iterable[tuple[asyncio.Future[Any] | Reply, Any]]) -> None:
    """Deliver answers to their callers, with one thread switch for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for reply, answer in answers:
        if isinstance(reply, Reply):
            reply.set(answer)
        else:
            by_loop.setdefault(reply.get_loop(), []).append((reply, answer))
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has closed, so nobody waits on it
            loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
