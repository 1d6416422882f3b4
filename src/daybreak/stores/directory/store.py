"""The seam: each operation runs on the ledger of the memory store, and is written to the journal before its answer.

The order of every operation: catch up with files that could not be written before; reserve space in the journal; change
the ledger; write the after-images to the journal and sync it; write the files of the changed jobs. An error before the
journal is synced forgets the ledger and loads the folder again. An error after that changes nothing for the caller:
the journal has the change, and the files follow before the next one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, unquote

from daybreak.core.errors import BadInput, OutcomeUnknown, StoreError, StoreUnavailable
from daybreak.core.model import JobSpec, Lease, Put, Record, State
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    Exchange,
    Exchanged,
    Extended,
    Finding,
    Inserted,
    Moved,
    Purge,
    Purged,
    Reap,
    Traits,
)
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.examine import examine
from daybreak.stores.directory.faults import translate
from daybreak.stores.directory.layout import LAYOUTS, Layout
from daybreak.stores.directory.owner_lock import OwnerLock
from daybreak.stores.directory.persistence import Persistence
from daybreak.stores.directory.tracked_ledger import TrackedLedger
from daybreak.stores.memory import MemoryStore
from daybreak.stores.memory.entry import Entry
from daybreak.stores.memory.ledger import Ledger, Now
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.directory")
KEYS_FOR: Final = timedelta(hours=24)  # the key of a deleted job is spent for this long
_YES_OR_NO: Final = {"yes": True, "no": False}
RESERVED: Final = 64 * 1024  # bytes of the journal for an operation, beside the arguments and results it brings


class DirectoryStore(MemoryStore):
    """Jobs in a folder: a data file and a metadata file per job, with the state in the name. One process at a time.

    `layout` gives the words and suffixes of the names; None takes those with which the folder was written. With
    `delete_completed`, a job is deleted with its files as soon as it is completed. `queue` is the queue of items that
    another program left in the folder."""

    traits = Traits(
        name="directory",
        durable="an accepted job is on disk (journal synced before the answer), and survives a power cut",
        shared=False,
        persistent=True,
        features=frozenset({"resources"}),
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
        self._path = Path(path)
        self._opened: TrackedLedger | None = None
        self._is_stale = False
        self._pid = 0
        self._last: Now | None = None  # the time of the latest operation
        super().__init__(world)
        self._delete_completed = delete_completed
        self._disk = disk or Disk()
        self._lock = OwnerLock(self._path, self._hidden / "owner.lock")
        self._persistence = Persistence(self._disk, self._path, self._hidden, layout, queue=queue)

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
        return self._path

    @property
    def _hidden(self) -> Path:
        return self._path / ".daybreak"

    # -- open and close ------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._opened is not None:
            return self
        try:
            for folder in (self._path, self._hidden, self._hidden / "scratch"):
                self._disk.make_folder(folder)
            self._lock.take()
        except OSError as error:
            raise translate(self._path, error) from error
        try:
            self._pid = os.getpid()
            self._load()
        except BaseException:
            self._lock.release()
            raise
        return self

    def _load(self) -> None:
        try:
            now = self._persistence.read(self._world.wall())
            self._anchor = now.steady - self._world.steady()
            self._opened = ledger = self._persistence.load(now)
            self._is_stale = False
            self._drop_completed(ledger.jobs.values(), now)
            ledger.offer_freed(now)
            ledger.topics.clear()
            self._persistence.commit(ledger, now)
            self._persistence.checkpoint(ledger, now)
        except OSError as error:
            self._opened = None
            self._persistence.close()
            raise translate(self._path, error) from error

    async def close(self) -> None:
        ledger, self._opened = self._opened, None
        if ledger is None:
            return
        if os.getpid() == self._pid:
            try:
                if not self._is_stale:
                    self._persistence.checkpoint(ledger, self._now(None))
            except OSError as error:
                _log.warning("%s: %s; the next start takes what is missing from the journal", self._path, error)
        self._persistence.close()
        self._lock.release()

    @property
    def _ledger(self) -> TrackedLedger:
        if self._opened is None or os.getpid() != self._pid:
            raise StoreUnavailable(f"the store in {self._path} is not open in this process: open it first")
        if self._is_stale:
            self._load_again()
        return self._opened

    @_ledger.setter
    def _ledger(self, ledger: Ledger) -> None:
        """The memory store's own first ledger, which is not used."""

    def _load_again(self) -> None:
        """Forget everything and load the folder, after a change that could not be written."""
        opened = self._opened
        try:
            self._persistence.close()
            self._load()
        except StoreError:
            self._opened, self._is_stale = opened, True
            raise

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, size: int = 0, *, may_lag: bool = False) -> Iterator[None]:
        """One operation. `size` is about how many bytes it brings. One that `may_lag` is not refused because files of
        earlier ones could not be written."""
        ledger = self._ledger
        try:
            if not may_lag:
                self._persistence.catch_up(ledger)
            self._persistence.reserve(RESERVED + size)
        except OSError as error:
            raise translate(self._path, error) from error
        self._last = None
        try:
            yield
            now = self._last or self._now(None)
            self._drop_completed(ledger.changed.values(), now)
            self._persistence.commit(ledger, now)
        except OSError as error:
            self._is_stale = True
            if self._persistence.withdraw():
                raise translate(self._path, error) from error
            raise OutcomeUnknown(
                f"{self._path}: {error.strerror or error}; it is not known whether the change was written"
            ) from error
        except Exception:
            self._is_stale = ledger.is_changed
            raise
        except BaseException:
            self._is_stale = True
            raise
        self._persistence.follow(ledger, now)

    def _now(self, now: datetime | None) -> Now:
        self._last = at = super()._now(now)
        return at

    def _drop_completed(self, entries: Iterable[Entry], now: Now) -> None:
        if self._delete_completed and self._opened is not None:
            for entry in [one for one in entries if one.state is State.COMPLETED and one.seq in self._opened.jobs]:
                self._opened.drop(entry, now, keys_for=KEYS_FOR)

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return (await self.exchange(Exchange(insert=specs), now=now)).inserted

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        with self._writing(_size(exchange)):
            return await super().exchange(exchange, now=now)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        with self._writing(sum(len(beat.checkpoint or b"") for beat in beats), may_lag=True):
            return await super().extend(beats, now=now)

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        with self._writing():
            return await super().reap(reap, now=now)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        with self._writing():
            return await super().advance(limit, now=now)

    async def amend(self, amend: Amend, *, now: datetime | None = None) -> Amended:
        with self._writing():
            return await super().amend(amend, now=now)

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        with self._writing():
            return await super().purge(purge, now=now)

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        with self._writing(sum(len(one.job.spec.args) + len(one.job.result or b"") for one in moved)):
            return await super().adopt(moved, by=by, now=now)

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        with self._writing(sum(len(put.value or b"") for put in puts)):
            return await super().put(puts, now=now)

    async def examine(self) -> list[Finding]:
        """What the folder shows about itself; works also while another process has it open."""
        return list(examine(self._path))


def _size(exchange: Exchange) -> int:
    size = sum(len(spec.args) for spec in exchange.insert) + sum(len(put.value or b"") for put in exchange.put)
    return size + sum(len(one.result or b"") + len(one.checkpoint or b"") for one in exchange.settle)
