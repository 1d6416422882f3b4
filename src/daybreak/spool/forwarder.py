"""Sends the jobs of a spool to the store: once, in the order of their submits.

The id of a job is chosen at the submit, and a store answers a second insert of the same id with "duplicate". So a batch
whose answer was lost is sent again, from its first job on, and the order stays. A job leaves the spool only after the
store has answered for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.client import Client, accepted_id
from daybreak.core.errors import DaybreakError, OutcomeUnknown, StoreCorrupt, StoreError, StoreUnavailable
from daybreak.core.model import JobSpec, ResourceSettings
from daybreak.core.units import moment
from daybreak.files import FileStore
from daybreak.spool.forward_lock import ForwardLock
from daybreak.spool.spool_file import SpooledJob, SpoolFile
from daybreak.store.protocol import Inserted
from daybreak.system import patience
from daybreak.system.ports import World
from daybreak.values.file import Content, File, digests_in

_log = logging.getLogger("daybreak.spool")

BATCH: Final = 200
FIRST_PAUSE: Final = timedelta(milliseconds=100)
LONGEST_PAUSE: Final = timedelta(seconds=5)
OTHERS_PAUSE: Final = timedelta(milliseconds=500)  # between looks while another process forwards
# A job that was sent without an answer may have run. While the store still knows it, sending it again is harmless. A
# store forgets a job some time after its end, so after this time a person must decide.
UNKNOWN_FOR: Final = timedelta(days=1)
UNUSED_FILES_KEPT_FOR: Final = timedelta(hours=2)


class Target(Protocol):
    """Where a spool's jobs go."""

    async def client(self) -> Client:
        """A client of the store; StoreError if it cannot be opened."""
        ...

    async def file_store(self) -> FileStore: ...

    async def provide(self, client: Client, resources: Mapping[str, ResourceSettings]) -> None:
        """Write the settings that the code declares for resources."""
        ...


class Answer(Struct, frozen=True):
    """What became of one job: it is in the store, an `earlier` job stands for it, or it was `refused`."""

    job: SpooledJob
    earlier: str = ""
    refused: str = ""


class Forwarder:
    """Forwards the jobs of one spool, as long as it holds the spool's lock."""

    def __init__(self, spool: SpoolFile, target: Target, world: World) -> None:
        self.last_error: str = ""
        self._spool = spool
        self._target = target
        self._world = world
        self._lock = ForwardLock(spool.path)
        self._provided: dict[str, ResourceSettings] = {}
        self._call = spool.thread.call

    async def drain(self, stop_at_error: bool = False) -> int:
        """Forward until no job waits. Returns how many jobs left the spool here. While the store is away, try again
        with a growing, jittered pause; with `stop_at_error`, raise its error instead. While another process forwards,
        wait for it."""
        pause, forwarded = FIRST_PAUSE, 0
        try:
            while not await self._call(lambda: self._spool.is_drained):
                if not await self._call(self._lock.take):
                    if stop_at_error:
                        await self._raise_error_of_other()
                    await self._world.sleep(OTHERS_PAUSE)
                    continue
                try:
                    forwarded += await self._forward_first()
                    pause = FIRST_PAUSE
                except StoreError as error:
                    await self._note(error, is_logged=not stop_at_error)
                    if stop_at_error:
                        raise
                    await self._world.sleep(pause * (0.5 + self._world.chance.random()))
                    pause = min(pause * 2, LONGEST_PAUSE)
            if forwarded:
                await self._tidy()
        finally:
            self._lock.release()
        return forwarded

    async def _raise_error_of_other(self) -> None:
        """Raise the error for which the process that forwards cannot reach the store, if there is one."""
        status = await self._call(self._spool.status)
        if status.last_error:
            raise StoreUnavailable(
                f"another process forwards this spool, and cannot reach the store: {status.last_error}"
            )

    async def _note(self, error: StoreError, *, is_logged: bool) -> None:
        text = str(error)
        if text != self.last_error:
            if is_logged:
                _log.warning("spool %s: cannot forward yet, will try again: %s", self._spool.path, text)
            self.last_error = text
            await self._call(lambda: self._spool.note_error(text))

    # -- one batch -----------------------------------------------------------------------------------------------------

    async def _forward_first(self) -> int:
        """Forward the first jobs. Returns how many left the spool. Raises StoreError if the store is away: then all
        jobs stay."""
        jobs = await self._call(lambda: self._spool.first(BATCH))
        if not jobs:
            return 0
        client = await self._target.client()
        if self.last_error:
            _log.info("spool %s: the store is back", self._spool.path)
            self.last_error = ""
            await self._call(self._spool.clear_error)
        await self._provide(client)
        answers = await self._send(client, jobs)
        accepted = [answer.job.n for answer in answers if not answer.refused]
        refused = [(answer.job.n, answer.refused) for answer in answers if answer.refused]
        earlier = [(answer.job.spec.id, answer.earlier) for answer in answers if answer.earlier]
        await self._call(lambda: self._spool.finish(accepted, refused, earlier))
        for answer in answers:
            if answer.refused:
                _log.error("spool %s: job %s is set aside: %s", self._spool.path, answer.job.spec.id, answer.refused)
        return len(accepted)

    async def _provide(self, client: Client) -> None:
        declared = await self._call(self._spool.resources)
        new = {name: settings for name, settings in declared.items() if self._provided.get(name) != settings}
        if new:
            await self._target.provide(client, new)
            self._provided |= new

    async def _send(self, client: Client, jobs: Sequence[SpooledJob]) -> list[Answer]:
        """Send these jobs, and those that turn out to be unsendable alone, so that one of them does not hold up the
        others."""
        answers: list[Answer] = []
        ready: list[SpooledJob] = []
        now = moment(self._world.wall())
        for job in jobs:
            refused = reason_to_ask(job, now) or await self._upload(job)
            if refused:
                answers.append(Answer(job, refused=refused))
            else:
                ready.append(job)
        if not ready:
            return answers
        await self._call(lambda: self._spool.mark_sent(ready))
        try:
            return answers + await self._insert(client, ready, now)
        except OutcomeUnknown:
            raise
        except StoreUnavailable:
            unsent = [job for job in ready if job.sent_at is None]
            await self._call(lambda: self._spool.mark_unsent(unsent))
            raise
        except DaybreakError as error:
            if len(ready) > 1:
                return [*answers, *[answer for job in ready for answer in await self._send(client, [job])]]
            if isinstance(error, StoreError):
                raise
            return [*answers, Answer(ready[0], refused=_reason(error))]

    async def _insert(self, client: Client, jobs: Sequence[SpooledJob], now: datetime) -> list[Answer]:
        specs = [as_of(job, now) for job in jobs]
        with patience.within(client.patience.total_seconds()):
            inserted = await client.store.insert(specs)
        return [_answer(job, answer) for job, answer in zip(jobs, inserted, strict=True)]

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _upload(self, job: SpooledJob) -> str:
        """Copy the contents of a job's files to the store's place. Returns why that can never succeed."""
        digests = digests_in(job.spec.args)
        if not digests:
            return ""
        files = await self._target.file_store()
        for digest in sorted(digests):
            if await files.touch(digest):
                continue
            try:
                path = await asyncio.to_thread(self._spool.blobs.path, digest, "content")
            except StoreCorrupt as error:
                return f"a file of it is gone: {error}"
            await files.put(Content(digest, (await asyncio.to_thread(path.stat)).st_size, File(path)))
        return ""

    async def _tidy(self) -> None:
        """Once drained: shrink the file, and delete contents that no job here needs."""
        await self._call(self._spool.shrink)
        await self._call(lambda: delete_unused_files(self._spool, self._world.wall))


def delete_unused_files(spool: SpoolFile, wall: Callable[[], int]) -> None:
    """Delete the contents that no job of the spool refers to and that no submit has touched for two hours."""
    before = datetime.fromtimestamp(wall() / 1e6, UTC) - UNUSED_FILES_KEPT_FOR
    old = [info.digest for info in spool.blobs.infos() if info.touched_at < before]
    if old:
        needed: set[str] = set()
        for spec in spool.specs():
            needed |= digests_in(spec.args)
        for digest in old:
            if digest not in needed:
                spool.blobs.delete(digest, before)
    spool.blobs.tidy(before)


def reason_to_ask(job: SpooledJob, now: datetime) -> str:
    """Why a person must decide about this job; empty if it can be sent."""
    expires_in = job.spec.options.expires_in
    if expires_in is not None and now - job.spooled_at >= expires_in:
        return "it expired: it waited here longer than its expires_in"
    if job.sent_at is not None and now - job.sent_at > unknown_for(job.spec):
        return (
            f"it was sent at {job.sent_at:%Y-%m-%d %H:%M} UTC without an answer, and the store may have run and "
            "forgotten it since: check whether it ran, then retry or drop it"
        )
    return ""


def unknown_for(spec: JobSpec) -> timedelta:
    """How long the store certainly knows a job that may have been accepted: it keeps it after its end."""
    kept = [kept for kept in (spec.options.keep_completed, spec.options.keep_failed) if kept is not None]
    return max(min([UNKNOWN_FOR, *kept]), timedelta(minutes=1))


def as_of(job: SpooledJob, now: datetime) -> JobSpec:
    """The job as it is inserted now: the time that it waited here counts towards its delay and its expiry."""
    spec, waited = job.spec, max(now - job.spooled_at, timedelta())
    changes: dict[str, object] = {}
    if spec.delay is not None:
        changes["delay"] = max(spec.delay - waited, timedelta())
    if spec.options.expires_in is not None:
        changes["options"] = replace(spec.options, expires_in=spec.options.expires_in - waited)
    return replace(spec, **changes) if changes else spec


def _answer(job: SpooledJob, inserted: Inserted) -> Answer:
    try:
        accepted = accepted_id(job.spec, inserted)
    except DaybreakError as error:
        return Answer(job, refused=_reason(error))
    return Answer(job, earlier="" if accepted == job.spec.id else accepted)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
