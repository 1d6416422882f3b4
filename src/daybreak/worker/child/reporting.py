"""What a job says while it runs: progress, checkpoints and log lines, on their way to the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from daybreak.core.errors import DaybreakError, LeaseLost
from daybreak.core.units import clean
from daybreak.worker.wire import Keep, Progress, Said, Work, frame

PROGRESS_EVERY: Final = 0.1
LINE_LIMIT: Final = 16_000


class Reporting:
    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._tokens = itertools.count(1)
        self._asked: dict[tuple[int, int], Callable[[bool], None]] = {}
        self._late: dict[int, Progress] = {}
        self._sent_at: dict[int, float] = {}
        self._wake: threading.Event | None = None

    def of(self, work: Work) -> _Voice:
        return _Voice(self, work)

    def forget(self, seq: int) -> None:
        if self._sent_at:  # whoever is late has also been heard
            self._late.pop(seq, None)
            self._sent_at.pop(seq, None)

    def progress(self, said: Progress) -> None:
        now = time.monotonic()
        if now - self._sent_at.get(said.seq, -1.0) >= PROGRESS_EVERY:
            self._sent_at[said.seq] = now
            self._late.pop(said.seq, None)
            self._send(frame(said))
            return
        self._late[said.seq] = said
        if self._wake is None:
            self._wake = threading.Event()
            threading.Thread(target=self._say_late, name="daybreak-child-progress", daemon=True).start()
        self._wake.set()

    def _say_late(self) -> None:
        """The last of many in a row would otherwise stay unsaid until the next."""
        assert self._wake is not None
        with contextlib.suppress(OSError, RuntimeError):
            while self._wake.wait():
                self._wake.clear()
                time.sleep(PROGRESS_EVERY)
                while self._late:
                    with contextlib.suppress(KeyError):
                        _, said = self._late.popitem()
                        self._send(frame(said))

    def keep(self, seq: int, checkpoint: bytes, answer: Callable[[bool], None]) -> None:
        token = next(self._tokens)
        self._asked[seq, token] = answer
        self._send(frame(Keep(seq, token, checkpoint)))

    def give_up(self) -> None:
        """Nobody will answer any more."""
        while self._asked:
            with contextlib.suppress(KeyError):
                self._asked.popitem()[1](False)

    def kept(self, seq: int, token: int, *, held: bool) -> None:
        if (answer := self._asked.pop((seq, token), None)) is not None:
            answer(held)


class _Voice:
    def __init__(self, voices: Reporting, work: Work) -> None:
        self._voices = voices
        self._work = work

    def progress(self, fraction: float, message: str) -> None:
        self._voices.progress(Progress(self._work.seq, fraction, clean(message)))

    def keep(self, checkpoint: bytes) -> None:
        if _on_a_loop():
            raise DaybreakError(
                "a blocking checkpoint would stop the loop it waits for: write 'await ctx.acheckpoint(...)' or astep"
            )
        answered = threading.Event()
        answers: list[bool] = []

        def answer(held: bool) -> None:
            answers.append(held)
            answered.set()

        self._voices.keep(self._work.seq, checkpoint, answer)
        answered.wait()
        if not answers[0]:
            raise LeaseLost(self._work.job, self._work.fence)

    async def akeep(self, checkpoint: bytes) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def answer(held: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop that asked has closed
                loop.call_soon_threadsafe(_resolve, future, held)

        self._voices.keep(self._work.seq, checkpoint, answer)
        if not await future:
            raise LeaseLost(self._work.job, self._work.fence)


def _resolve(future: asyncio.Future[bool], held: bool) -> None:
    if not future.done():
        future.set_result(held)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Forward(logging.Handler):
    """What jobs log goes to the supervisor, whose logging is the one that was set up."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._say = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._say(frame(Said(record.levelno, clean(self.format(record)[:LINE_LIMIT]))))
        except Exception:  # noqa: BLE001 - as with every handler: a line that cannot be told harms no job
            self.handleError(record)


def forward_logs(send: Callable[[bytes], None], level: int | None) -> None:
    if level is not None:
        log = logging.getLogger("daybreak.job")
        log.addHandler(_Forward(send))
        log.setLevel(level)
        log.propagate = False
