"""The writer thread: whoever asks while a commit is under way shares the next one.

A thread that would only wait for its answer writes itself if nobody else does."""

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

ITEMS_PER_COMMIT = 2000  # items of work in one transaction, so that nobody waits long behind others
QUICK: Final = 0.01  # seconds that a transaction may hold up a loop
SLOW_FOR: Final = 1.0  # after one that took longer, the thread does the work for so long
LOOK: Final = 0.0002  # seconds between two looks at who has come
LOOKS: Final = 20
GLANCE: Final = 0.5  # seconds; where a wait cannot be interrupted by a signal, Ctrl-C is heard this late


class Sign(Enum):
    """What is asked of the writer thread itself."""

    TEND = "look after the engine"
    END = "end, after everyone who asked"


class Reply:
    """An answer for which a thread waits."""

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
            while not self._answered.acquire(timeout=GLANCE):
                pass
        except BaseException:
            self._given_up = True
            raise
        return self._answer


Asked = tuple[Request, "asyncio.Future[Any] | Reply"]


class Writer:
    def __init__(self, engine: Engine, wake: Callable[[set[str]], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._asked: queue.SimpleQueue[Asked | Sign] = queue.SimpleQueue()
        self._is_waiting = False  # the thread has something to do, and waits for the engine
        self._closing = threading.Lock()
        self._closed = False
        self.on_loop = False  # whoever asks has a loop of their own, on which short work may be done
        self._slow_until = 0.0
        self._crowd = 0  # threads that waited for the last commit
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
        """The answer, in a thread that waits for it: written here and now if nobody writes or waits to."""
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
        """Answer everyone who asked, then end: with the engine in hand, so nobody writes in a thread of their own."""
        with self._closing:
            self._closed = True
        self._asked.put(Sign.END)
        self._thread.join()

    # -- in the caller's thread ----------------------------------------------------------------------------------------

    def _write_here(self, request: Request) -> Any:
        with self._engine.using:
            self._refuse_if_closed()
            is_torn = True
            try:
                [answer], topics = self._engine.run([request])
                is_torn = False
            finally:
                # Ctrl-C may come anywhere, a second one too, but not between an error and this first call. What it
                # left open is mended by a thread that hears no signals, lest others wait for ever.
                if is_torn:
                    self._asked.put(Sign.TEND)
            self._tell(topics)
            if self._engine.wants_tending:
                self._asked.put(Sign.TEND)
        return answer

    # -- on the caller's loop ------------------------------------------------------------------------------------------

    def _write_on_loop(self, request: Request) -> list[Any] | None:
        """The answer, if nobody need be waited for and the disk is quick: two hand-overs between threads are spared,
        which cost as much as a small transaction. None: ask the thread."""
        began = time.monotonic()
        if began < self._slow_until or self._is_waiting or self._closed or not self._asked.empty():
            return None
        if not self._engine.using.acquire(blocking=False):
            return None
        try:
            if (done := self._engine.run_if_free(request)) is None:
                return None
            answers, topics = done
            if topics:  # once whoever asked has made use of the answer: he may be about to start a job
                asyncio.get_running_loop().call_soon(self._tell, topics)
            if self._engine.wants_tending:
                self._asked.put(Sign.TEND)
        finally:
            self._engine.using.release()
        if time.monotonic() - began > QUICK:
            self._slow_until = began + SLOW_FOR
        return answers

    # -- in the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            first = self._asked.get()
            self._is_waiting = True
            self._let_them_come()
            with self._engine.using:
                self._is_waiting = False
                batch, is_ending = self._gather(first)
                self._serve(batch)

    def _let_them_come(self) -> None:
        """Threads that were answered together come back one after another, as the interpreter lets them. To commit for
        the first few of them each time would cost all of them more than to wait for the rest, while more come."""
        for _ in range(LOOKS):
            there = self._asked.qsize() + 1
            if there >= self._crowd * 0.9:
                return
            time.sleep(LOOK)
            if self._asked.qsize() + 1 == there:
                return

    def _gather(self, item: Asked | Sign) -> tuple[list[Asked], bool]:
        """Everyone who waits now, up to a bound; and whether these were the last."""
        batch: list[Asked] = []
        weight = 0
        while item is not Sign.END:
            if not isinstance(item, Sign) and not item[1].cancelled():
                # Who no longer waits for a job must not be given it.
                batch.append(item)
                weight += item[0].weight
            if weight >= ITEMS_PER_COMMIT or self._asked.empty():
                return batch, False
            item = self._asked.get()
        return batch, True

    def _serve(self, batch: list[Asked]) -> None:
        topics: set[str] = set()
        if batch:
            self._crowd = sum(isinstance(reply, Reply) for _, reply in batch)
            try:
                answers, topics = self._engine.run([request for request, _ in batch])
            except BaseException as error:  # noqa: BLE001 - a bug must reach its callers, not hang them
                answers = [error] * len(batch)
            deliver((reply, answer) for (_, reply), answer in zip(batch, answers, strict=True))
        self._tell(topics)
        try:
            self._engine.mend()
            self._engine.tend()
        except Exception:  # noqa: BLE001
            _log.exception("after a commit")  # the log waits for the next turn

    def _tell(self, topics: set[str]) -> None:
        try:
            if topics:
                self._wake(topics)
        except Exception:  # noqa: BLE001
            # The answers are out; whoever sleeps on is woken by the slow look.
            _log.exception("after a commit")


def deliver(answers: Iterable[tuple[asyncio.Future[Any] | Reply, Any]]) -> None:
    """One hand-over for each loop, not one for each caller."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for reply, answer in answers:
        if isinstance(reply, Reply):
            reply.set(answer)
        else:
            by_loop.setdefault(reply.get_loop(), []).append((reply, answer))
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
