"""Copies contents between the store and the cache of this machine, for children, which have no store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from daybreak.core.errors import BadFile, DaybreakError, StoreCorrupt, StoreUnavailable
from daybreak.system import patience
from daybreak.system.ports import Clock
from daybreak.worker.supervisor.child import Child, HeldLease
from daybreak.worker.supervisor.worker_source import ContentCopies
from daybreak.worker.wire import FileMoved, MoveFile

_log = logging.getLogger("daybreak.worker")

SIGN_OF_LIFE: Final = 0.5  # seconds; a job that waits for a long copy does not hang
RETRY_INTERVAL: Final = 1.0  # seconds between two tries while the store is away


class FileTransfers:
    """The copies of one worker. The same content is copied once, however many jobs wait for it."""

    def __init__(self, contents: ContentCopies, clock: Clock) -> None:
        self._contents = contents
        self._clock = clock
        self._running: dict[tuple[str, bool], asyncio.Task[None]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(self, child: Child, held: HeldLease, request: MoveFile) -> None:
        """Copy what a job asked for, and answer its child."""
        waiting = asyncio.create_task(self._answer(child, held, request))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _answer(self, child: Child, held: HeldLease, request: MoveFile) -> None:
        key = (request.digest, request.up)
        copy = self._running.get(key)
        if copy is None:
            copy = self._running[key] = asyncio.create_task(self._copy(*key))
            copy.add_done_callback(lambda _: self._running.pop(key, None))
        while not copy.done():
            held.alive_at = self._clock.now()
            await self._clock.wait([copy], SIGN_OF_LIFE)
        error = copy.exception()
        if error is not None and not isinstance(error, DaybreakError):
            _log.error("could not copy the content sha256:%s", request.digest, exc_info=error)
        is_permanent = isinstance(error, StoreCorrupt | BadFile)
        text = "" if error is None else str(error) or type(error).__name__
        child.answer(FileMoved(request.seq, request.token, text, is_permanent))

    async def _copy(self, digest: str, up: bool) -> None:
        patience.unbound()
        while True:
            with contextlib.suppress(StoreUnavailable):  # the claim loop logs that the store is away
                return await (self._contents.upload(digest) if up else self._contents.download(digest))
            await self._clock.sleep(RETRY_INTERVAL)
