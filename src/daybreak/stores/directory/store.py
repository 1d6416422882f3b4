"""The seam: each operation runs on the data of the memory store, and is written to the journal before its answer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace

from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    Exchange,
    Exchanged,
    Extended,
    Feed,
    Filter,
    Finding,
    Inserted,
    KnownKey,
    Moved,
    Page,
    Position,
    Purge,
    Purged,
    Query,
    Reap,
    Tally,
    Total,
    Traits,
    Usage,
)
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.examine import examine
from daybreak.stores.directory.layout import LAYOUTS, Layout
from daybreak.stores.directory.open_folder import FolderOptions, OpenFolder, closed, opened
from daybreak.stores.directory.tracked_book import Now, TrackedTransaction
from daybreak.stores.memory import MemoryStore
from daybreak.stores.memory.book import Book
from daybreak.system.ports import World

_YES_OR_NO: Final = {"yes": True, "no": False}


class DirectoryStore(MemoryStore):
    """Jobs in a folder: a data file and a metadata file per job, with the state in the name. One process at a time can
    use it; in that process, any number of stores and event loops.

    `layout` gives the words and suffixes of the names; None takes those with which the folder was written. With
    `delete_completed`, a job is deleted with its files as soon as it is completed. `queue` is the queue of items that
    another program left in the folder."""

    traits = Traits(
        name="directory",
        durable="an accepted job is on disk (journal synced before the answer), and survives a power cut",
        shared=False,
        features=frozenset({"resources", "batches"}),
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        layout: Layout | None = None,
        delete_completed: bool = False,
        queue: str = "default",
        world: World | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._options = FolderOptions(Path(path), layout, delete_completed, queue)
        self._disk = disk or Disk()
        self._folder: OpenFolder | None = None
        self._pid = 0
        self._last: Now | None = None  # the time of the latest operation
        super().__init__(world)

    @classmethod
    def of_url(cls, url: str) -> Self:
        """The store of a URL: `dir:///srv/jobs`, with the options `layout`, `delete_completed` and `queue`."""
        path, _, query = url.removeprefix("dir://").partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = options.keys() - {"layout", "delete_completed", "queue"}
        if unknown:
            raise BadInput(
                f"dir://: {', '.join(sorted(unknown))} is not an option of a directory store; "
                "it takes layout, delete_completed and queue"
            )
        layout, deletes = options.get("layout"), options.get("delete_completed", "no")
        if layout is not None and layout not in LAYOUTS:
            raise BadInput(f"dir://, layout={layout}: write one of {', '.join(LAYOUTS)}")
        if deletes not in _YES_OR_NO:
            raise BadInput(f"dir://, delete_completed={deletes}: write yes or no")
        return cls(
            unquote(path),
            layout=None if layout is None else LAYOUTS[layout],
            delete_completed=_YES_OR_NO[deletes],
            queue=options.get("queue", "default"),
        )

    @property
    def path(self) -> Path:
        return self._options.path

    # -- open and close ------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._folder is None:
            self._folder = opened(self._options, self._world, self._disk)
            self._hub = self._folder.hub
            self._pid = os.getpid()
        return self

    async def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None and os.getpid() == self._pid:
            closed(folder, Now(self._world.wall(), folder.anchor + folder.world.steady()))

    @property
    def _held(self) -> OpenFolder:
        if self._folder is None or os.getpid() != self._pid:
            raise StoreUnavailable(f"the store in {self.path} is not open in this process: open it first")
        return self._folder

    @property
    def _book(self) -> Book:
        return self._held.book

    @_book.setter
    def _book(self, book: Book) -> None:
        """The memory store's own data, which is not used."""

    def _times(self, now: datetime | None) -> tuple[int, int]:
        self._anchor = self._held.anchor
        self._last = Now(*super()._times(now))
        return self._last

    def _begin(self, wall: int, steady: int) -> TrackedTransaction:
        return self._held.book.begin(Now(wall, steady))

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, size: int = 0, *, may_lag: bool = False) -> Iterator[None]:
        """One operation, which brings about `size` bytes."""
        folder = self._held
        with folder.lock:
            book = folder.prepare(size, may_lag=may_lag)
            self._last = None
            with folder.undone_on_error(book):
                yield
                now = self._last or Now(*self._times(None))
                folder.commit(book, now)
            folder.follow(book, now)

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        with self._writing(sum(len(spec.args) for spec in specs)):
            return await super().insert(specs, now=now)

    async def exchange(self, request: Exchange, *, now: datetime | None = None) -> Exchanged:
        with self._writing(_size(request)):
            return await super().exchange(request, now=now)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        with self._writing(sum(len(beat.checkpoint or b"") for beat in beats), may_lag=True):
            return await super().extend(beats, now=now)

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        with self._writing():
            return await super().reap(reap, now=now)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        with self._writing():
            return await super().advance(limit, now=now)

    async def amend(self, request: Amend, *, now: datetime | None = None) -> Amended:
        with self._writing():
            return await super().amend(request, now=now)

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        with self._writing():
            return await super().purge(purge, now=now)

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        with self._writing(sum(len(one.job.spec.args) + len(one.job.result or b"") for one in moved)):
            return await super().adopt([_without_flight(one) for one in moved], by=by, now=now)

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        with self._writing(_size_of_puts(puts)):
            return await super().put(puts, now=now)

    # -- reading: another thread may be writing ------------------------------------------------------------------------

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        with self._held.lock:
            return await super().get(jobs)

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        with self._held.lock:
            return await super().known_keys(keys, now=now)

    async def find(self, query: Query) -> Page:
        with self._held.lock:
            return await super().find(query)

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        with self._held.lock:
            return await super().count(where)

    async def totals(self, queue: str | None = None) -> list[Total]:
        with self._held.lock:
            return await super().totals(queue)

    async def position(self, job: str) -> Position | None:
        with self._held.lock:
            return await super().position(job)

    async def usage(self, name: str | None = None) -> list[Usage]:
        with self._held.lock:
            return await super().usage(name)

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        with self._held.lock:
            return await super().events(after, limit)

    async def history(self, job: str) -> list[Event]:
        with self._held.lock:
            return await super().history(job)

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        with self._held.lock:
            return await super().pack(jobs)

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        with self._held.lock:
            return await super().records(kind, name)

    async def examine(self) -> list[Finding]:
        """What the folder shows about itself; works also while another process has it open."""
        return list(examine(self.path))


def _without_flight(moved: Moved) -> Moved:
    """A moved job runs on its own here: the folder does not keep which result it would wait for."""
    spec = moved.job.spec
    if spec.flight is None:
        return moved
    alone = replace(spec, flight=None, flight_parts={}, options=replace(spec.options, cache=None))
    return replace(moved, job=replace(moved.job, spec=alone))


def _size(exchange: Exchange) -> int:
    size = sum(len(spec.args) for spec in exchange.insert) + _size_of_puts(exchange.put)
    return size + sum(len(one.result or b"") + len(one.checkpoint or b"") for one in exchange.settle)


def _size_of_puts(puts: Sequence[Put]) -> int:
    return sum(len(put.value or b"") + sum(len(spec.args) for spec in put.inserts) for put in puts)
