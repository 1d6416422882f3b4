"""The spool file: jobs that were accepted here and are not in the store yet.

A SQLite file that several processes share. Every commit is synced before it is acknowledged. A job leaves the file only
after the store has answered for it."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import apsw
import msgspec
from msgspec import Struct

from daybreak.config import shown
from daybreak.core.errors import BadInput, OutcomeUnknown, SpoolFull, StoreFull
from daybreak.core.model import JobSpec, ResourceSettings
from daybreak.core.text import counted
from daybreak.core.units import moment, span
from daybreak.files.folder import FolderBlobs
from daybreak.spool.file_thread import FileThread
from daybreak.spool.statements import sql
from daybreak.store.protocol import Inserted, Verdict
from daybreak.stores.group_insert import GroupInsert
from daybreak.stores.sqlite import forks, schema
from daybreak.stores.sqlite.faults import Translated
from daybreak.system.file_content import sync_folder
from daybreak.system.ports import World

MAX_JOBS: Final = 100_000
MAX_BYTES: Final = 1 << 30  # of the file, without the contents of files
MAX_ANSWERS: Final = 10_000
ANSWERS_KEPT_FOR: Final = timedelta(days=7)
LOCK_TIMEOUT: Final = 10.0  # seconds that a commit waits for those of other processes
_LOCK_POLL: Final = 0.0005
_PAGE: Final = 4096
_CHECKPOINT_PAGES: Final = 16_384  # a checkpoint takes longer than a commit: the forwarder makes it when it has drained

_pack = msgspec.msgpack.Encoder().encode
_unpack_spec = msgspec.msgpack.Decoder(JobSpec).decode
_unpack_settings = msgspec.msgpack.Decoder(ResourceSettings).decode


class SpooledJob(Struct, frozen=True):
    """A job in the spool. `n` is its place. `sent_at` is when it was first sent, if an answer is outstanding. `refused`
    is the reason why it was set aside."""

    n: int
    spec: JobSpec
    spooled_at: datetime
    sent_at: datetime | None = None
    refused: str | None = None


class SpoolStatus(Struct, frozen=True, kw_only=True):
    """A spool at one instant: the jobs that wait, since when the oldest does, how many were set aside, and the last
    error of forwarding, if it has not succeeded since."""

    path: str
    store: str
    waiting: int
    oldest: datetime | None
    set_aside: int
    last_error: str
    last_error_at: datetime | None
    bytes: int


class SpoolFile:
    """The jobs that wait for one store. `blobs` holds the contents of their files. Any thread may use it;
    coroutines call it in `thread`."""

    def __init__(self, path: Path, url: str, world: World, *, vfs: str | None = None) -> None:
        self.path = path
        self.blobs = FolderBlobs(path.with_name(f"{path.name}-files"))
        self.using = threading.Lock()
        self.thread = FileThread()
        self._url = url
        self._world = world
        self._vfs = vfs
        self._db: apsw.Connection | None = None
        self._translated = Translated(path)
        self._declared: dict[str, ResourceSettings] = {}
        self._group = GroupInsert(self._put_group, most=1000, interrupted=_interrupted)
        forks.watch(self)

    # -- the connection ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        with self.using, self._translated:
            yield self._db or self._connect()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _connect(self) -> apsw.Connection:
        schema.check_library()
        schema.check_place(self.path)
        forks.close_inherited()
        schema.create(self.path)
        db = schema.connect(self.path, self._vfs)
        try:
            db.set_busy_handler(_wait_for_lock)
            db.pragma("trusted_schema", False)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "full")
            db.pragma("max_page_count", MAX_BYTES // _PAGE)
            db.wal_autocheckpoint(_CHECKPOINT_PAGES)
            db.execute("BEGIN IMMEDIATE")
            db.execute(sql.create)
            db.execute(sql.add_about, ("store", _identity(self._url)))
            db.execute(sql.add_about, ("shown", shown(self._url)))
            about = dict(db.execute(sql.all_about))
            db.execute("COMMIT")
            sync_folder(self.path.parent)
        except BaseException:
            db.close(True)
            raise
        if about["store"] != _identity(self._url):
            db.close(True)
            raise BadInput(
                f"the spool {self.path} holds jobs for the store {about['shown']}, not for {shown(self._url)}: "
                "give each store a spool of its own"
            )
        self._db = db
        return db

    def leave(self) -> apsw.Connection | None:
        """Give up the connection without closing it, in a forked child."""
        db, self._db = self._db, None
        self._group = GroupInsert(self._put_group, most=1000, interrupted=_interrupted)
        return db

    def close(self) -> None:
        with self.using:
            if self._db is not None:
                self._db.close(True)
                self._db = None

    # -- submit --------------------------------------------------------------------------------------------------------

    def put(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """Accept these jobs: they are durable, in this order, when this returns. A job whose id is here already stays
        as it is. Threads that call this at the same time share a commit. Raises SpoolFull; then none was accepted."""
        return self._group.insert(specs)

    def _put_group(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        now = self._world.wall()
        try:
            with self._writing() as db:
                [(count,)] = db.execute(sql.count_jobs)
                if count + len(specs) > MAX_JOBS:
                    raise SpoolFull(str(self.path), f"it holds {counted(count, 'job')}, and {MAX_JOBS:,} is the limit")
                db.executemany(sql.put_job, ((spec.id, _pack(spec), now) for spec in specs))
        except StoreFull as error:
            raise SpoolFull(str(self.path), "it is as large as allowed, or the disk is full") from error
        return [Inserted(Verdict.NEW, spec.id) for spec in specs]

    def declare(self, resources: dict[str, ResourceSettings]) -> None:
        """Keep the settings that the code declares for resources: they are written to the store before the jobs."""
        new = {name: settings for name, settings in resources.items() if self._declared.get(name) != settings}
        if new:
            with self._writing() as db:
                db.executemany(sql.put_resource, ((name, _pack(settings)) for name, settings in new.items()))
            self._declared |= new

    # -- read ----------------------------------------------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """Whether no job waits to be forwarded."""
        with self._open() as db:
            [(is_waiting,)] = db.execute(sql.is_waiting)
        return not is_waiting

    def first(self, limit: int) -> list[SpooledJob]:
        """The jobs that are forwarded next."""
        return self._jobs(sql.first_waiting, limit)

    def set_aside_jobs(self, limit: int = 1000) -> list[SpooledJob]:
        return self._jobs(sql.all_set_aside, limit)

    def find(self, job: str) -> SpooledJob | None:
        return next(iter(self._jobs(sql.find_job, job)), None)

    def answer_for(self, job: str) -> str | None:
        """The earlier job that the store named for this one, because they have the same key or unique name."""
        with self._open() as db:
            return next((found for (found,) in db.execute(sql.find_answer, (job,))), None)

    def resources(self) -> dict[str, ResourceSettings]:
        with self._open() as db:
            return {name: _unpack_settings(packed) for name, packed in db.execute(sql.all_resources)}

    def specs(self) -> Iterator[JobSpec]:
        """Every job that is here, those set aside included."""
        with self._open() as db:
            packed = [spec for (spec,) in db.execute(sql.all_specs)]
        return map(_unpack_spec, packed)

    def status(self) -> SpoolStatus:
        with self._open() as db:
            [(waiting, oldest, set_aside)] = db.execute(sql.status)
            about = dict(db.execute(sql.all_about))
        error_at = about.get("error_at")
        return SpoolStatus(
            path=str(self.path),
            store=about["shown"],
            waiting=waiting,
            oldest=None if oldest is None else moment(oldest),
            set_aside=set_aside,
            last_error=about.get("error", ""),
            last_error_at=None if error_at is None else moment(int(error_at)),
            bytes=self.path.stat().st_size,
        )

    def _jobs(self, statement: str, value: object) -> list[SpooledJob]:
        with self._open() as db:
            rows = list(db.execute(statement, (value,)))
        return [_job(*row) for row in rows]

    # -- forward -------------------------------------------------------------------------------------------------------

    def mark_sent(self, jobs: Sequence[SpooledJob]) -> None:
        """Note, durably, that these jobs are about to be sent: until the answer their outcome is unknown."""
        now = self._world.wall()
        with self._writing() as db:
            db.executemany(sql.mark_sent, ((now, job.n) for job in jobs))

    def mark_unsent(self, jobs: Sequence[SpooledJob]) -> None:
        """Note that these jobs were not sent after all."""
        with self._writing() as db:
            db.executemany(sql.mark_unsent, ((job.n,) for job in jobs))

    def finish(
        self, accepted: Sequence[int], refused: Sequence[tuple[int, str]], answers: Sequence[tuple[str, str]]
    ) -> None:
        """Delete the jobs that the store has, by place; set those aside that it refused, with the reason. `answers` are
        ids of jobs for which an earlier job stands, with its id."""
        now = self._world.wall()
        with self._writing() as db:
            db.executemany(sql.put_answer, ((job, earlier, now) for job, earlier in answers))
            db.executemany(sql.delete_job, ((n,) for n in accepted))
            db.executemany(sql.set_aside, ((reason, n) for n, reason in refused))
            if answers:
                db.execute(sql.trim_answers, (now - span(ANSWERS_KEPT_FOR), MAX_ANSWERS))

    def note_error(self, error: str) -> None:
        with self._writing() as db:
            for name, value in (("error", error), ("error_at", str(self._world.wall()))):
                db.execute(sql.put_about, (name, value))

    def clear_error(self) -> None:
        with self._writing() as db:
            for name in ("error", "error_at"):
                db.execute(sql.delete_about, (name,))

    def shrink(self) -> None:
        """Write the log into the file, so that it does not grow. Called when no job waits."""
        with self._open() as db, contextlib.suppress(apsw.BusyError):
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # -- set aside -----------------------------------------------------------------------------------------------------

    def wait_again(self, job: str | None = None) -> int:
        """Forward a job that was set aside once more, in its old place; all of them without an id. Returns how many."""
        return self._change(sql.wait_again, job)

    def drop(self, job: str) -> int:
        """Delete a job from the spool: it will never run. Returns how many there were, 0 or 1."""
        return self._change(sql.drop_job, job)

    def _change(self, statement: str, value: object) -> int:
        with self._writing() as db:
            db.execute(statement, (value,))
            return db.changes()


def _job(n: int, _id: str, packed: bytes, spooled: int, sent: int | None, refused: str | None) -> SpooledJob:
    return SpooledJob(n, _unpack_spec(packed), moment(spooled), None if sent is None else moment(sent), refused)


def _wait_for_lock(tries: int) -> bool:
    time.sleep(_LOCK_POLL)
    return tries * _LOCK_POLL < LOCK_TIMEOUT


def _interrupted() -> OutcomeUnknown:
    return OutcomeUnknown(
        "another thread wrote these jobs to the spool and was interrupted; try again with the same id"
    )


def _identity(url: str) -> str:
    """What tells one store from another: its URL without user, password and options of the connection."""
    parts = urlsplit(url)
    part_of = [pair for pair in sorted(parse_qsl(parts.query)) if pair[0] in ("namespace", "schema", "db")]
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}?{part_of}"
    return hashlib.blake2b(place.encode(), digest_size=16).hexdigest()
