"""Makes one job per file. The store decides: the key of a job is the file's name and digest.

A file that is known already gets no second job. What becomes of it depends on the job that it belongs to, and on
whether it is the same drop: each drop of a file has another inode or change time, which the job's meta remembers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from daybreak.api.task import Task, prepare
from daybreak.client.client import Client
from daybreak.core.errors import BadFile, BadInput, Refused
from daybreak.core.model import DEFAULT_OPTIONS, Job, JobSpec, Retry, State
from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.entry import NotTaken, OpenEntry, StillWritten, open_entry
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.feeds.drop_folder.folder_scan import Candidate
from daybreak.feeds.drop_folder.sidecar import BadSidecar, Sidecar, read_sidecar
from daybreak.policy.retry import PRESETS
from daybreak.store.protocol import KnownKey, Verdict
from daybreak.values.file import File

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

META_FILE: Final = "file"
META_DROP: Final = "drop"
_AT_ONCE: Final = 8
_NAME_IN_KEY: Final = 110


class Taken(Struct):
    """A file that was opened, hashed and understood."""

    candidate: Candidate
    opened: OpenEntry
    sidecar: Sidecar


class Answer(Struct, kw_only=True):
    """What is known of a file after it was looked at. With a `job` it is accepted; `is_known` says that the job was
    completed with a known result, and `again` that it was made for an earlier drop of the same file. `full`: the queue
    takes no more. `refused`: why it can never be a job. `spent`: its job was purged. `problem`: why it is left alone.
    None of these: it must be looked at again."""

    candidate: Candidate
    job: str = ""
    is_new: bool = False
    is_known: bool = False
    again: bool = False
    full: bool = False
    spent: bool = False
    refused: str = ""
    problem: str = ""
    gone: bool = False


def key_of(watch: FolderWatch, title: str, digest: str) -> str:
    """The idempotency key of a file. A name that is too long is hashed."""
    name = f"{watch.scope}/{title}" if watch.scope else title
    if len(name) > _NAME_IN_KEY:
        name = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"drop {name} {digest}"


def open_and_hash(root: FolderHandle, candidate: Candidate, max_size: int) -> Taken | Answer:
    """Open a file, read its sidecar and hash it. Blocks."""
    entry = candidate.entry
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(root.open_folder(entry.folder)) if entry.folder else root
            opened = open_entry(folder, entry.name, max_size)
            if opened.fingerprint != candidate.fingerprint:
                opened.close()
                return Answer(candidate=candidate)
            try:
                beside = read_sidecar(folder, entry)
                opened.hash()
            except BaseException:
                opened.close()
                raise
            return Taken(candidate, opened, beside)
    except NotTaken as error:
        return Answer(candidate=candidate, problem=str(error))
    except BadSidecar as error:
        return Answer(candidate=candidate, refused=str(error))
    except StillWritten:
        return Answer(candidate=candidate)
    except FileNotFoundError:
        return Answer(candidate=candidate, gone=True)
    except OSError as error:
        return Answer(candidate=candidate, problem=f"it cannot be read: {error.strerror or error}")


class Acceptance:
    """Submits the files of one watch."""

    def __init__(self, app: Daybreak, client: Client, watch: FolderWatch) -> None:
        self._app = app
        self._client = client
        self._watch = watch
        self.task = app.find_task(watch.task)
        self.queue = watch.queue
        self._retry = watch.retry or retry_of(self.task)
        [self._parameter] = self.task.definition.parameters[:1]

    async def submit(self, files: Sequence[Taken]) -> list[Answer]:
        """Find or make the job of each file, in the same order."""
        answers: dict[int, Answer] = {}
        unknown: list[tuple[int, str]] = []
        keys = {number: self._key(taken) for number, taken in enumerate(files)}
        while keys:
            after: dict[int, str] = {}
            for (number, key), (known, job) in zip(keys.items(), await self._known(list(keys.values())), strict=True):
                found = _answer(files[number].candidate, known, job)
                if found is not None:
                    answers[number] = found
                elif known is None:
                    unknown.append((number, key))
                else:
                    after[number] = _next_key(self._key(files[number]), key)
            keys = after
        for (number, _), answer in zip(unknown, await self._insert(files, unknown), strict=True):
            answers[number] = answer
        return [answers[number] for number in range(len(files))]

    def _key(self, taken: Taken) -> str:
        return key_of(self._watch, taken.candidate.entry.title, taken.opened.digest)

    async def _known(self, keys: list[str]) -> list[tuple[KnownKey | None, Job | None]]:
        found = await self._client.store.known_keys(keys)
        ids = [known.job for known in found if known is not None and not known.is_spent]
        jobs = {job.id: job for job in await self._client.store.get(ids) if job is not None} if ids else {}
        return [(known, None if known is None else jobs.get(known.job)) for known in found]

    async def _insert(self, files: Sequence[Taken], unknown: list[tuple[int, str]]) -> list[Answer]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def prepared(number: int, key: str) -> JobSpec | Answer:
            async with limit:
                return await self._prepare(files[number], key)

        specs = await asyncio.gather(*(prepared(number, key) for number, key in unknown))
        ready = [spec for spec in specs if isinstance(spec, JobSpec)]
        inserted = dict(zip((spec.id for spec in ready), await self._client.submit_many(ready), strict=True))
        answers = []
        for (number, _), spec in zip(unknown, specs, strict=True):
            if isinstance(spec, Answer):
                answers.append(spec)
                continue
            verdict = inserted[spec.id]
            if verdict.is_new:
                self._app.hooks.submitted(spec, verdict.job)
            answers.append(
                Answer(
                    candidate=files[number].candidate, job=verdict.job, is_new=verdict.is_new,
                    is_known=verdict.verdict is Verdict.CACHED, full=verdict.verdict is Verdict.FULL,
                    spent=verdict.verdict is Verdict.SPENT,
                )
            )  # fmt: skip
        await self._app.hooks.found_among(self._client, inserted.values())
        return answers

    async def _prepare(self, taken: Taken, key: str) -> JobSpec | Answer:
        """Store the content, and build the job."""
        candidate, opened = taken.candidate, taken.opened
        file = File.stored(opened.digest, opened.size, candidate.entry.title)
        file.use(opened.path, opened.digest, opened.size)
        try:
            task = self.task.using(
                key=key, queue=self.queue, priority=candidate.level, retry=self._retry_after(taken.sidecar.attempts),
                meta={
                    **taken.sidecar.metadata, META_FILE: candidate.entry.path, META_DROP: candidate.fingerprint.text,
                },
            )  # fmt: skip
            return await prepare(task, {self._parameter: file}, by=self._client.by)
        except BadFile:  # it changed after it was hashed
            return Answer(candidate=candidate)
        except (BadInput, Refused) as error:
            return Answer(candidate=candidate, refused=str(error))

    def _retry_after(self, attempts: int) -> Retry:
        """The retries that are left to a file of the old format."""
        if not attempts:
            return self._retry
        return msgspec.structs.replace(self._retry, attempts=max(self._retry.attempts - attempts, 1))


def _answer(candidate: Candidate, known: KnownKey | None, job: Job | None) -> Answer | None:
    """What a known key means for a file. None if it needs a job of its own: because the key is free, or because the job
    of an earlier drop failed and a person has dropped the file once more."""
    if known is None:
        return None
    if known.is_spent:
        return Answer(candidate=candidate, spent=True)
    if job is None:  # removed in this instant: look again
        return Answer(candidate=candidate)
    is_this_drop = job.spec.meta.get(META_DROP) == candidate.fingerprint.text
    if not is_this_drop and job.state in (State.FAILED, State.CANCELLED):
        return None
    return Answer(candidate=candidate, job=known.job, again=not is_this_drop)


def _next_key(first: str, key: str) -> str:
    """The key of the next drop of a file whose job failed."""
    number = 1 if key == first else int(key.rpartition("#")[2])
    return f"{first} #{number + 1}"


def retry_of(task: Task[..., Any]) -> Retry:
    """The retry of the task, or the preset for uploads if it says nothing."""
    declared = task.definition.options.retry
    return PRESETS["upload"] if declared == DEFAULT_OPTIONS.retry else declared
