"""What a folder keeps: the state file, the journal and the files of jobs, and how they follow the store's data."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from daybreak.core.errors import StoreUnsuitable
from daybreak.stores.directory import renamed_jobs
from daybreak.stores.directory.changes import Rest, TotalImage
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.folder_scan import Folder
from daybreak.stores.directory.job_files import JobFiles
from daybreak.stores.directory.journal import Journal
from daybreak.stores.directory.layout import DAYBREAK, LAYOUTS, WATS, Layout
from daybreak.stores.directory.recovery import Recovery, Replayed, read_rest
from daybreak.stores.directory.tracked_book import Now, TrackedBook
from daybreak.stores.kernel import resource_queue

_log = logging.getLogger("daybreak.directory")
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
JOURNAL_PER_STATE: Final = 1  # so writing the state file costs no more than the journal did
LATEST_FILES: Final = 256  # job files that need not be synced before a checkpoint
_encoder = msgspec.json.Encoder()


class Persistence:
    """The files of one folder. Its methods raise OSError; what that means for an operation is decided above."""

    def __init__(self, disk: Disk, folder: Path, hidden: Path, layout: Layout | None, *, queue: str) -> None:
        self._disk = disk
        self._folder = folder
        self._hidden = hidden
        self._wanted = layout
        self._queue = queue
        self._layout = layout or DAYBREAK
        self._journal = Journal(disk, hidden / "journal")
        self._files = JobFiles(disk, folder, hidden / "scratch", self._layout)
        self._replayed = Replayed(Rest())
        self._rest_is_lost = False
        self._number = 0
        self._behind: dict[int, int] = {}  # jobs whose files must be written, and the operation that changed them
        self._gone: set[int] = set()  # deleted jobs whose files must be deleted
        self._left: list[Path] = []  # files of an interrupted change, which belong to no job any more
        self._beaten: set[int] = set()  # jobs whose files do not show the end of their lease
        self._state_size = 0
        self._is_lagging = False

    @property
    def layout(self) -> Layout:
        """The layout of the files."""
        return self._layout

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, wall: int) -> Now:
        """Read the state file and the journal. Returns the store's time now: steady time continues where it stopped,
        plus the wall time that has passed since, and never goes back."""
        rest = read_rest(self._hidden / "state.json")
        changes = list(self._journal.read())
        self._rest_is_lost = rest is None and not changes
        rest = rest or Rest(layout=self._found_layout())
        self._layout = self._checked_layout(rest.layout)
        self._replayed = Replayed(rest)
        self._replayed.apply_all(changes)
        if not rest.number:
            return Now(wall, wall)
        return Now(wall, rest.steady + max(0, wall - rest.wall))

    def _found_layout(self) -> str:
        """The layout of a folder that this store has not written."""
        if self._wanted is not None:
            return self._wanted.name
        is_wats = any(self._folder.glob(f"*.{WATS.data_suffix}"))
        return WATS.name if is_wats else DAYBREAK.name

    def _checked_layout(self, name: str) -> Layout:
        wanted = self._wanted or LAYOUTS.get(name)
        if wanted is None or wanted.name != name:
            raise StoreUnsuitable(
                f"{self._folder} was written with the layout {name!r}: open it with that layout"
                + (f", not {wanted.name!r}" if wanted else "")
            )
        return wanted

    def load(self, now: Now) -> TrackedBook:
        """Build the store's data from what was read and from the files of jobs."""
        folder = Folder(self._disk, self._folder, self._layout, queue=self._queue)
        self._files = JobFiles(self._disk, self._folder, self._hidden / "scratch", self._layout)
        recovery = Recovery(folder, self._files, self._layout, self._replayed, rest_is_lost=self._rest_is_lost)
        found = recovery.run(now)
        book = found.book
        self._number = found.rest.number
        self._journal.resume()
        self._gone, self._beaten = set(), set()
        self._left = found.left
        self._behind = dict.fromkeys(found.behind, self._number)
        for seq, state in found.renamed:
            renamed_jobs.apply(book, seq, state, now)
        tx = book.begin(now)
        tx.gauges.freed.update(found.freed)
        resource_queue.offer_freed(tx)
        tx.commit()
        if found.adopted:
            _log.info("%s: took over %d items of another program", self._folder, found.adopted)
        self._replayed = Replayed(Rest())
        return book

    # -- writing -------------------------------------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Make sure that the journal has room for an operation."""
        self._journal.reserve(size)

    def commit(self, book: TrackedBook, now: Now) -> None:
        """Write what an operation changed to the journal. Plain heartbeats are not synced: after a power cut their
        holder is gone anyway."""
        is_changed = book.is_changed
        if not is_changed and not book.beaten:
            return
        changed, gone = book.changed, book.gone
        stems = {seq: self._files.stem(seq, book.jobs[seq].id) for seq in changed}
        stems |= {seq: stem for seq in gone if (stem := self._files.known_stem(seq)) is not None}
        placed = {seq for seq in changed if self._files.has_data(seq)}
        change = book.change(self._number + 1, now, stems, placed)
        self._journal.append(change, sync=is_changed)
        self._number = change.number
        self._beaten.update(change.beats)
        for seq in changed:
            self._behind[seq] = self._number
            self._beaten.discard(seq)
        for seq in gone:
            self._behind.pop(seq, None)
            self._beaten.discard(seq)
            self._gone.add(seq)
        book.forget_changes()

    @property
    def is_broken(self) -> bool:
        """Whether a new journal could not be begun: then the folder must be loaded again."""
        return not self._journal.is_open

    def withdraw(self) -> bool:
        """After a failed `commit`: make sure that the journal does not have the change. False if that is unknown."""
        try:
            self._journal.withdraw()
        except OSError:
            return False
        return True

    def catch_up(self, book: TrackedBook) -> None:
        """Bring the files of jobs up to date with the journal."""
        for seq in list(self._gone):
            self._files.delete(seq)
            self._gone.discard(seq)
        for seq, number in list(self._behind.items()):
            self._files.write(book.entry(seq), number)
            del self._behind[seq]
        for path in self._left:
            self._disk.unlink(path)
        self._left = []
        self._is_lagging = False

    def follow(self, book: TrackedBook, now: Now) -> None:
        """After a commit: write the files of jobs and, now and then, the state file. An error is not the caller's: the
        journal has everything, and the next operation tries again."""
        try:
            self.catch_up(book)
            self._files.sync_all_but(LATEST_FILES)
            if self._journal.size > max(CHECKPOINT_BYTES, JOURNAL_PER_STATE * self._state_size):
                self.checkpoint(book, now)
        except OSError as error:
            if not self._is_lagging:
                _log.warning("%s: files of jobs are out of date until the disk can be written: %s", self._folder, error)
            self._is_lagging = True

    def checkpoint(self, book: TrackedBook, now: Now) -> None:
        """Make the files of jobs and the state file durable, then begin a new journal."""
        for seq in self._beaten & book.jobs.keys():
            self._behind.setdefault(seq, self._number)
        self._beaten.clear()
        self.catch_up(book)
        self._files.sync()
        state = _encoder.encode(self._rest(book, now))
        file = self._hidden / "state.json"
        self._disk.write_file(file, state, by_way_of=self._hidden / "scratch" / "state", sync=True)
        self._disk.sync_folder(self._hidden)
        self._state_size = len(state)
        self._journal.start()

    def _rest(self, book: TrackedBook, now: Now) -> Rest:
        return Rest(
            layout=self._layout.name,
            number=self._number,
            wall=now.wall,
            steady=now.steady,
            seq=book.seq,
            revision=book.revision,
            feed_start=book.feed_start,
            feed=book.feed,
            keys=dict(book.keys),
            uniques=dict(book.uniques),
            records=list(book.records.values()),
            gauges=dict(book.gauges),
            totals=[TotalImage(lane, priority, counters) for (lane, priority), counters in book.totals.items()],
        )

    def close(self) -> None:
        self._journal.close()
