"""AsyncPendingQueue: uploads the reports that appear in a folder, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Generator
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from daybreak.core.model import State
from pywats_queue.errors import ValidationError
from pywats_queue.queue.item_store import Held

from .folder_lock import FolderLock
from .folder_watch import FolderWatch
from .report_folder import COMPLETED, ERROR, PROCESSING, QUEUED, ErrorInfo, ReportFolder
from .report_queue import ReportQueue
from .submission import submit_of

_log = logging.getLogger("pywats_queue")


class AsyncPendingQueueState(StrEnum):
    """What an AsyncPendingQueue does."""

    CREATED = "Created"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class AlreadyDone:
    """The answer of a call that has done its work; it may also be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class AsyncPendingQueue:
    """Uploads `*.queued` files of a folder, at most `max_concurrent` at a time, urgent ones first.

    A report is deleted when the server has it. A failed one is `*.error` and tried again after 5 minutes, then 10, 20
    and 40; after the fifth failure, or if the server refuses it, it stays `*.error`, and `NAME.error.info` says why.
    Files beyond `max_queue_size` stay in the folder until there is room; 0 is no limit. One queue at a time works on a
    folder; what a crash left as `*.processing` is uploaded again when the next one starts."""

    PROCESSING_TIMEOUT: ClassVar[timedelta] = timedelta(minutes=30)
    ERROR_RETRY_DELAY: ClassVar[timedelta] = timedelta(minutes=5)
    PERIODIC_CHECK_INTERVAL: ClassVar[timedelta] = timedelta(seconds=60)
    STOP_TIMEOUT: ClassVar[timedelta] = timedelta(seconds=30)
    MAX_RETRIES: ClassVar[int] = 5

    def __init__(
        self,
        api: Any,
        reports_dir: str | os.PathLike[str],
        max_concurrent: int = 5,
        max_queue_size: int = 10000,
        *,
        delete_completed: bool = True,
    ) -> None:
        if max_concurrent < 1 or max_queue_size < 0:
            raise ValueError(
                f"max_concurrent={max_concurrent}, max_queue_size={max_queue_size}: write at least 1 upload at a time, "
                "and a size of at least 0, where 0 is no limit"
            )
        self._reports_dir = Path(reports_dir)
        self._reports_dir.mkdir(parents=True, exist_ok=True)
        self._folder = ReportFolder(self._reports_dir)
        self._api = api
        self._max_concurrent = max_concurrent
        self._max_queue_size = max_queue_size
        self._room = max_queue_size or sys.maxsize
        self._delete_completed = delete_completed
        self._state = AsyncPendingQueueState.CREATED
        self._active_uploads: set[asyncio.Task[None]] = set()
        self._uploaded = self._failed = 0
        self._lock = FolderLock(self._reports_dir)
        self._wake = self._ended = asyncio.Event()
        self._must_scan = True
        self._queue = self._new_queue()

    def _new_queue(self) -> ReportQueue:
        return ReportQueue(self._folder, self._max_concurrent, self.MAX_RETRIES, self.ERROR_RETRY_DELAY)

    # -- what can be seen ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> AsyncPendingQueueState:
        return self._state

    @property
    def is_running(self) -> bool:
        return self._state in (AsyncPendingQueueState.RUNNING, AsyncPendingQueueState.PAUSED)

    @property
    def queue_size(self) -> int:
        """How many reports wait in the folder."""
        return self._folder.counts()[QUEUED]

    @property
    def max_concurrent(self) -> int:
        return self._max_concurrent

    @property
    def max_queue_size(self) -> int:
        return self._max_queue_size

    @property
    def is_queue_full(self) -> bool:
        return self.queue_size >= self._room

    def can_accept_report(self) -> bool:
        """Whether another report may be put into the folder now."""
        return not self.is_queue_full

    def get_active_count(self) -> int:
        """How many uploads are under way."""
        return len(self._active_uploads)

    def get_pending_count(self) -> int:
        return self.queue_size

    @property
    def stats(self) -> dict[str, Any]:
        counts = self._folder.counts()
        return {
            "state": self._state.value,
            "queued_files": counts[QUEUED],
            "processing_files": counts[PROCESSING],
            "error_files": counts[ERROR],
            "completed_files": counts[COMPLETED],
            "active_uploads": len(self._active_uploads),
            "uploaded": self._uploaded,
            "failed_attempts": self._failed,
            "max_concurrent": self._max_concurrent,
            "max_queue_size": self._max_queue_size,
            "is_queue_full": counts[QUEUED] >= self._room,
        }

    # -- run and stop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Upload reports until `stop()`. QueueError if another queue works on the folder."""
        self._begin()
        try:
            async with FolderWatch(self._reports_dir, self._on_change):
                while self.is_running:
                    await self._round()
        finally:
            await self._end()

    def _begin(self) -> None:
        self._lock.take()
        self._queue = self._new_queue()
        self._wake, self._ended = asyncio.Event(), asyncio.Event()
        self._must_scan = True
        self._state = AsyncPendingQueueState.RUNNING
        self._queue.recover()

    async def _round(self) -> None:
        """Look for reports, begin as many uploads as there are free slots, and wait until something changes."""
        self._wake.clear()
        if self._must_scan:
            self._must_scan = False
            await asyncio.to_thread(self._queue.scan, self._room, self.PROCESSING_TIMEOUT)
        self._start_uploads()
        wait = self.PERIODIC_CHECK_INTERVAL
        if self._state is AsyncPendingQueueState.RUNNING:
            wait = self._queue.next_in(wait)
        try:
            await asyncio.wait_for(self._wake.wait(), wait.total_seconds())
        except TimeoutError:
            self._must_scan = True

    def _start_uploads(self) -> None:
        while self._state is AsyncPendingQueueState.RUNNING:
            held = self._queue.take()
            if held is None:
                return
            upload = asyncio.create_task(self._upload_report(held), name=f"upload {held.lease.job}")
            self._active_uploads.add(upload)
            upload.add_done_callback(self._on_uploaded)

    def _on_uploaded(self, upload: asyncio.Task[None]) -> None:
        self._active_uploads.discard(upload)
        self._must_scan = self._must_scan or (self._queue.has_more and not self._active_uploads)
        self._wake.set()
        if not upload.cancelled() and (error := upload.exception()) is not None:
            _log.error("%s: %r; the report waits until the queue starts again", upload.get_name(), error)

    def _on_change(self) -> None:
        self._must_scan = True
        self._wake.set()

    async def stop(self) -> None:
        """Begin no more uploads, wait for those under way for up to 30 seconds, and hand the others back."""
        await asyncio.sleep(0)  # a task of run() that was just created begins first, so that it is stopped too
        if self.is_running:
            self._state = AsyncPendingQueueState.STOPPING
            self._wake.set()
        if self._state is AsyncPendingQueueState.STOPPING:
            await self._ended.wait()
        self._state = AsyncPendingQueueState.STOPPED

    async def _end(self) -> None:
        self._state = AsyncPendingQueueState.STOPPING
        try:
            if self._active_uploads:
                await asyncio.wait(self._active_uploads, timeout=self.STOP_TIMEOUT.total_seconds())
        finally:
            left = list(self._active_uploads)
            for upload in left:
                upload.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self._lock.release()
            self._state = AsyncPendingQueueState.STOPPED
            self._ended.set()

    def pause(self) -> AlreadyDone:
        """Begin no more uploads; those under way continue."""
        if self._state is AsyncPendingQueueState.RUNNING:
            self._state = AsyncPendingQueueState.PAUSED
        return AlreadyDone()

    def resume(self) -> AlreadyDone:
        if self._state is AsyncPendingQueueState.PAUSED:
            self._state = AsyncPendingQueueState.RUNNING
            self._wake.set()
        return AlreadyDone()

    async def submit_all_pending(self) -> int:
        """Upload what waits now, and return how many reports the server took. A running queue goes on after it."""
        await asyncio.sleep(0)  # a task of run() that was just created begins first
        uploaded = self._uploaded
        if self.is_running:
            while self._state is AsyncPendingQueueState.RUNNING and (self._active_uploads or self.queue_size):
                self._on_change()
                await asyncio.sleep(0.01)
        else:
            self._begin()
            try:
                await self._drain()
            finally:
                await self._end()
        return self._uploaded - uploaded

    async def _drain(self) -> None:
        while True:
            await asyncio.to_thread(self._queue.scan, self._room, self.PROCESSING_TIMEOUT)
            self._start_uploads()
            while self._active_uploads:
                await asyncio.wait(self._active_uploads, return_when=asyncio.FIRST_COMPLETED)
                self._start_uploads()
            if not self._queue.has_more:
                return

    # -- one report ----------------------------------------------------------------------------------------------------

    async def _upload_report(self, held: Held) -> None:
        queue = self._queue
        if not queue.begin(held):
            return  # somebody took the file away
        try:
            report = json.loads(self._folder.read(held.lease.job, PROCESSING))
            async with asyncio.timeout(self.PROCESSING_TIMEOUT.total_seconds()):
                await submit_of(self._api)(report)
        except asyncio.CancelledError:
            queue.hand_back(held)
            raise
        except Exception as error:  # noqa: BLE001 - any error of an upload is told beside the report
            self._failed += 1
            self._report_failure(held, error)
        else:
            self._uploaded += 1
            queue.complete(held, deletes=self._delete_completed)

    def _report_failure(self, held: Held, error: Exception) -> None:
        name, story = held.lease.job, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        is_permanent = isinstance(error, ValidationError)
        info = ErrorInfo(story, None, held.lease.attempt, is_permanent)
        with contextlib.suppress(OSError):  # the report itself is safe; without the note its attempts start anew
            self._folder.write_info(name, info)
        state = self._queue.fail(held, story, is_permanent=is_permanent)
        if state is State.FAILED:
            _log.error("report %s failed %d times and stays as %s.error: %s", name, info.attempts, name, story)
        else:
            _log.warning("report %s failed, attempt %d of %d: %s", name, info.attempts, self.MAX_RETRIES, story)
