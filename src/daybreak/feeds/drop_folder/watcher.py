"""The loop of one watched folder.

A file waits until it has stopped changing, becomes a job, and stays in the folder until its job is final; then it moves
to its destination. Nothing of that is remembered but by the folder and the store: a watcher that is killed between any
two lines leaves a file and perhaps a job, and the next scan finds out by the job's key which of the two there are
(docs/decisions/0034-drop-folder.md)."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.errors import CursorExpired, StoreError
from daybreak.core.events import ends_job
from daybreak.core.model import Job
from daybreak.core.text import safe
from daybreak.core.units import counted, moment, span
from daybreak.feeds.drop_folder.acceptance import Acceptance, Answer, Taken, open_and_hash
from daybreak.feeds.drop_folder.arrivals import Arrivals
from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.destinations import (
    ERROR_NOTE,
    Ending,
    Staged,
    finish_staged,
    move_away,
    staged_files,
)
from daybreak.feeds.drop_folder.endings import ending_of, refused, repeated
from daybreak.feeds.drop_folder.entry import Fingerprint
from daybreak.feeds.drop_folder.entry_name import EntryName, parse_name
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.feeds.drop_folder.folder_scan import CANDIDATES, Candidate, FolderScan
from daybreak.feeds.drop_folder.reports import Reports
from daybreak.feeds.drop_folder.settle_check import SettleCheck
from daybreak.feeds.drop_folder.watch_lock import watch_lock
from daybreak.feeds.drop_folder.watch_record import WatchStatus, forget_old, is_paused, write_status
from daybreak.feeds.own_queue import provide_queue

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.watch")

SCAN_EVERY: Final = timedelta(minutes=1)
POLL_EVERY: Final = timedelta(seconds=2)
PAUSED_CHECK_EVERY: Final = timedelta(seconds=3)
STATUS_EVERY: Final = timedelta(seconds=10)
FULL_FOR: Final = timedelta(seconds=5)  # how long a full queue is left alone
RETRY_EVERY: Final = timedelta(seconds=5)  # after an error of the store or of the folder
SHARE: Final = 10  # of the time is for other things: the scan of a large folder takes long
BATCH: Final = 64
BATCH_BYTES: Final = 256 * 1024 * 1024
ACCEPTED: Final = 50_000  # files that wait for the end of their job
ENDED: Final = 20_000


class Accepted(Struct, frozen=True):
    """A file whose job has not ended yet."""

    job: str
    entry: EntryName
    fingerprint: Fingerprint
    again: bool = False


class FolderWatcher:
    """Watches one folder until cancelled. Several may watch one folder: the store decides which one makes a job."""

    def __init__(self, app: Daybreak, client: Client, watch: FolderWatch) -> None:
        self.watch = watch
        self._client = client
        self._world = app.world
        self._acceptance = Acceptance(app, client, watch)
        self._reports = Reports(watch.name)
        default = self._acceptance.task.definition.priority
        self._scan = FolderScan(watch, default, self._reports.add)
        self._settling = SettleCheck(span(watch.settle))
        self._ready: dict[str, Candidate] = {}
        self._accepted: dict[str, Accepted] = {}  # by path
        self._paths_of: dict[str, set[str]] = {}  # by job
        self._order: list[tuple[tuple[int, int, str], str]] = []  # a heap of paths that were ready
        self._ended: dict[str, None] = {}  # jobs that ended lately, also such as are not known here yet
        self._to_finish: set[str] = set()
        self._woken = asyncio.Event()
        self._arrivals = Arrivals(watch.folder, watch.done_marker, self._woken.set, app.world)
        self._started_at = moment(app.world.wall())
        self._counts = dict.fromkeys(("submitted", "done", "failed", "repeated"), 0)
        self._is_full = False
        self._said = ""
        self._state = "running"
        self.scans = 0
        self._next = dict.fromkeys(("scan", "pause", "status", "take", "forget"), 0)

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self, *, until_idle: bool = False) -> None:
        """Watch until cancelled, or until no file is left to wait for. No error stops the worker."""
        while True:
            try:
                with watch_lock(self.watch.folder, self.watch.name) as is_active:
                    if is_active or until_idle:  # who waits for the end cannot stand by, and two may work at once
                        await self._run(until_idle=until_idle)
                        return
                    self._say("standby", "another process watches it; this one stands by", logging.INFO)
            except OSError as error:
                self._state = "missing"
                self._say(str(error), f"the folder cannot be used: {error.strerror or error}")
                with contextlib.suppress(StoreError):
                    await write_status(self._client, self.status())
            except StoreError as error:
                _log.warning("watch %s: %s; trying again", safe(self.watch.name), error)
            except Exception as error:  # noqa: BLE001 - the watch never stops its worker
                _log.warning("watch %s: %r; trying again", safe(self.watch.name), error, exc_info=error)
            self._next = dict.fromkeys(self._next, 0)
            await self._world.sleep(RETRY_EVERY)

    async def begin(self) -> None:
        """What is done once, before the first step. Raises OSError if the folder is not there."""
        await provide_queue(
            self._client, self._acceptance.queue, max_running=self.watch.max_running, capacity=self.watch.capacity
        )
        await asyncio.to_thread(self._open)
        await self._finish_leftovers()

    async def _run(self, *, until_idle: bool) -> None:
        await self.begin()
        self._state, self._said = "running", ""
        helpers = [asyncio.create_task(self._follow_ends())]
        if not self.watch.polling:
            helpers.append(asyncio.create_task(self._arrivals.run()))
        try:
            while True:
                await self.step()
                if until_idle and self.is_idle:
                    return
                for helper in helpers:
                    if helper.done():
                        helper.result()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self._pause())
                self._woken.clear()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            with contextlib.suppress(Exception):
                await write_status(self._client, msgspec.structs.replace(self.status(), state="stopped"))

    async def step(self) -> None:
        """Do what is due: look, take files, move those whose job has ended, and tell how it is."""
        if self._is_due("pause", PAUSED_CHECK_EVERY):
            self._state = "paused" if await is_paused(self._client, self.watch.name) else "running"
        if self._is_due("scan", POLL_EVERY if self._is_polling else SCAN_EVERY):
            await self._scan_all()
        else:
            await self._look()
        await self._finish_ended()
        if self._state != "paused" and not self._is_due_later("take"):
            await self._take_ready()
        if self._is_due("status", STATUS_EVERY):
            await write_status(self._client, self.status())
        if self._is_due("forget", timedelta(hours=1)):
            await forget_old(self._client)

    @property
    def is_idle(self) -> bool:
        """Whether every file that can be taken has been, and its job has ended."""
        return bool(self.scans) and not self._ready and not len(self._settling) and not self._accepted

    @property
    def _is_polling(self) -> bool:
        return self.watch.polling or self._arrivals.is_polling

    def _is_due(self, what: str, every: timedelta) -> bool:
        now = self._world.steady()
        if now < self._next[what]:
            return False
        self._next[what] = now + span(every)
        return True

    def _is_due_later(self, what: str) -> bool:
        return self._world.steady() < self._next[what]

    def _pause(self) -> float:
        """Seconds until something is due, if nothing wakes this watcher before."""
        now = self._world.steady()
        until = min(self._next["scan"], self._next["status"], self._next["pause"])
        if len(self._settling):
            until = min(until, now + max(span(self.watch.settle) // 2, 50_000))
        if self._ready and self._state != "paused":
            until = min(until, self._next["take"])
        return max((until - now) / 1e6, 0.01)

    def _now(self) -> datetime:
        return moment(self._world.wall())

    def _open(self) -> None:
        FolderHandle.open(self.watch.folder).__exit__(None, None, None)

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _scan_all(self) -> None:
        """Look at the whole folder, and at every job that is waited for: the truth, whatever was missed."""
        began = self._world.steady()

        def scan() -> list[Candidate]:
            with FolderHandle.open(self.watch.folder) as root:
                return self._scan.scan(root, self._is_known)

        self._arrivals.take()
        self._see(await asyncio.to_thread(scan))
        took = self._world.steady() - began
        self._next["scan"] = max(self._next["scan"], self._world.steady() + SHARE * took)
        self._to_finish.update(self._paths_of)
        self.scans += 1

    async def _look(self) -> None:
        """Look at what has changed, and once more at what seems to have settled."""
        changed = self._arrivals.take()
        if changed is None:
            self._next["scan"] = 0
            return
        due = self._settling.due(self._world.steady())
        paths = changed.union(due)
        if not paths:
            return

        def look() -> list[Candidate]:
            with FolderHandle.open(self.watch.folder) as root:
                return list(self._scan.look_at(root, paths, self._is_known))

        found = await asyncio.to_thread(look)
        here = {candidate.entry.path for candidate in found}
        for path in due:
            if path not in here:
                self._settling.forget(path)
        self._see(found)

    def _is_known(self, path: str, fingerprint: Fingerprint) -> bool:
        accepted = self._accepted.get(path)
        if accepted is not None and accepted.fingerprint == fingerprint:
            return True
        ready = self._ready.get(path)
        return ready is not None and ready.fingerprint == fingerprint

    def _see(self, candidates: Iterable[Candidate]) -> None:
        now = self._world.steady()
        for candidate in candidates:
            path = candidate.entry.path
            if path not in self._settling and not self._has_room(candidate):
                continue  # a later scan finds it
            self._ready.pop(path, None)
            if self._settling.see(path, candidate.fingerprint, now):
                self._settling.forget(path)
                self._ready[path] = candidate
                heapq.heappush(self._order, (candidate.order, path))

    def _has_room(self, candidate: Candidate) -> bool:
        """Whether one more file can be remembered. A more urgent one always finds room behind many others."""
        count = len(self._settling) + len(self._ready)
        return count < CANDIDATES or (candidate.level < self._scan.level and count < 2 * CANDIDATES)

    # -- taking --------------------------------------------------------------------------------------------------------

    async def _take_ready(self) -> None:
        """Make jobs of the files that are complete, the most urgent ones first. New arrivals are seen in between."""
        while self._ready and len(self._accepted) < ACCEPTED:
            batch = self._batch()
            try:
                await self._take(batch)
            finally:
                for candidate in batch:
                    if self._ready.get(candidate.entry.path) is candidate:
                        heapq.heappush(self._order, (candidate.order, candidate.entry.path))
            if self._is_due_later("take"):
                return
            await self._look()
            await self._finish_ended()

    async def _take(self, batch: list[Candidate]) -> None:
        files = await asyncio.to_thread(self._open_all, batch)
        taken = [found for found in files if isinstance(found, Taken)]
        try:
            answers = await self._acceptance.submit(taken)
        finally:
            for found in taken:
                found.opened.close()
        for answer in [*(found for found in files if isinstance(found, Answer)), *answers]:
            await self._apply(answer)

    def _batch(self) -> list[Candidate]:
        """The most urgent files that are ready. They leave the heap; who is still ready afterwards is pushed again."""
        if not self._order:
            self._order = sorted((candidate.order, path) for path, candidate in self._ready.items())
        batch: list[Candidate] = []
        size = 0
        while self._order and len(batch) < BATCH and size < BATCH_BYTES:
            order, path = heapq.heappop(self._order)
            candidate = self._ready.get(path)
            if candidate is not None and candidate.order == order:
                batch.append(candidate)
                size += candidate.fingerprint.size
        return batch

    def _open_all(self, batch: list[Candidate]) -> list[Taken | Answer]:
        with FolderHandle.open(self.watch.folder) as root:
            return [
                Answer(candidate=candidate, spent=True)
                if candidate.entry.leftover == "completed"
                else open_and_hash(root, candidate, self.watch.max_size)
                for candidate in batch
            ]

    async def _apply(self, answer: Answer) -> None:
        candidate = answer.candidate
        path = candidate.entry.path
        if answer.full:
            self._say_full()
            return
        self._ready.pop(path, None)
        if answer.job:
            self._is_full = False
            self._counts["submitted"] += answer.is_new
            self._forget(path)
            self._accepted[path] = Accepted(answer.job, candidate.entry, candidate.fingerprint, answer.again)
            self._paths_of.setdefault(answer.job, set()).add(path)
            if answer.again or answer.is_known or not answer.is_new or answer.job in self._ended:
                self._to_finish.add(answer.job)
        elif answer.spent:
            await self._move(candidate.entry, candidate.fingerprint, repeated(self.watch, candidate.entry, self._now()))
        elif answer.refused:
            why = answer.refused
            _log.warning("watch %s: %s is refused: %s", safe(self.watch.name), safe(path), safe(why))
            await self._move(
                candidate.entry, candidate.fingerprint, refused(self.watch, candidate.entry, why, self._now())
            )
        elif answer.problem:
            self._reports.add(path, answer.problem)
        elif not answer.gone:
            self._settling.see(path, candidate.fingerprint, self._world.steady())

    def _forget(self, path: str) -> Accepted | None:
        """Wait no longer for the job of a file."""
        accepted = self._accepted.pop(path, None)
        if accepted is not None:
            paths = self._paths_of[accepted.job]
            paths.discard(path)
            if not paths:
                del self._paths_of[accepted.job]
        return accepted

    def _say_full(self) -> None:
        self._next["take"] = self._world.steady() + span(FULL_FOR)
        if not self._is_full:
            self._is_full = True
            _log.warning(
                "watch %s: queue %s is full; files stay in %s until there is room",
                safe(self.watch.name), self._acceptance.queue, safe(str(self.watch.folder)),
            )  # fmt: skip

    # -- endings -------------------------------------------------------------------------------------------------------

    async def _follow_ends(self) -> None:
        """Note which jobs end. What is missed is found by the next scan."""
        while True:
            with contextlib.suppress(CursorExpired):
                async for event, _ in self._client.events():
                    if ends_job(event):
                        self._note_ended(event.job)
                        if event.job in self._paths_of:
                            self._to_finish.add(event.job)
                            self._woken.set()
            self._next["scan"] = 0

    def _note_ended(self, job: str) -> None:
        self._ended[job] = None
        if len(self._ended) > ENDED:
            del self._ended[next(iter(self._ended))]

    async def _finish_ended(self) -> None:
        """Move the files whose job has ended."""
        while self._to_finish:
            ids = [self._to_finish.pop() for _ in range(min(len(self._to_finish), 500))]
            ids = [job for job in ids if job in self._paths_of]
            for id_, job in zip(ids, await self._client.store.get(ids) if ids else [], strict=True):
                if job is None or job.is_final:
                    await self._finish(id_, job)

    async def _finish(self, id_: str, job: Job | None) -> None:
        for path in list(self._paths_of.get(id_, ())):
            accepted = self._forget(path)
            if job is None:  # a person removed it: the file is looked at as if it were new
                self._next["scan"] = 0
            elif accepted is not None:
                await self._move(
                    accepted.entry,
                    accepted.fingerprint,
                    ending_of(self.watch, accepted.entry, job, again=accepted.again),
                )

    async def _move(self, entry: EntryName, fingerprint: Fingerprint, ending: Ending) -> None:
        def move() -> bool:
            with FolderHandle.open(self.watch.folder) as root:
                return move_away(root, entry, fingerprint, ending)

        try:
            moved = await asyncio.to_thread(move)
        except OSError as error:
            self._reports.add(entry.path, f"its job has ended, but it cannot be moved: {error.strerror or error}")
            return
        if moved:
            self._count(ending)
        else:
            self._next["scan"] = min(self._next["scan"], self._world.steady() + span(self.watch.settle))

    def _count(self, ending: Ending) -> None:
        if ending.suffix == ERROR_NOTE:
            self._counts["failed"] += 1
        else:
            self._counts["done"] += 1
            self._counts["repeated"] += ending.note is not None

    async def _finish_leftovers(self) -> None:
        """Deliver what a killed watcher left on its way out."""

        def list_staged() -> list[Staged]:
            with FolderHandle.open(self.watch.folder) as root:
                return staged_files(root)

        def finish(staged: Staged, ending: Ending | None) -> None:
            with FolderHandle.open(self.watch.folder) as root:
                finish_staged(root, staged, ending, self._parse)

        staged = await asyncio.to_thread(list_staged)
        for each in staged:
            [job] = await self._client.store.get([each.job]) if each.job else [None]
            entry = EntryName(each.folder, "", "")
            ending = None if job is None or not job.is_final else ending_of(self.watch, entry, job)
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(finish, each, ending)
        if staged:
            _log.info("watch %s: finished %s", safe(self.watch.name), counted(len(staged), "interrupted move"))

    def _parse(self, folder: str, name: str) -> EntryName | None:
        return parse_name(folder, name, "*", self.watch.done_marker)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _say(self, what: str, text: str, level: int = logging.WARNING) -> None:
        if self._said != what:
            self._said = what
            _log.log(level, "watch %s on %s: %s", safe(self.watch.name), safe(str(self.watch.folder)), safe(text))

    def status(self) -> WatchStatus:
        state = "full" if self._state == "running" and self._is_full else self._state
        return WatchStatus(
            name=self.watch.name, host=socket.gethostname(), folder=str(self.watch.folder), task=self.watch.task,
            queue=self._acceptance.queue, seen_at=self._now(), started_at=self._started_at, state=state,
            polling=self._is_polling, settling=len(self._settling), ready=len(self._ready),
            accepted=len(self._accepted), **self._counts,
            left_alone=self._reports.count, reported=self._reports.last(),
        )  # fmt: skip
