"""The files of jobs: written, renamed and deleted so that they follow the store's data.

The journal holds what the files do not show yet, so each step may fail, and is done again later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from daybreak.stores.directory import metadata
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.entry import Entry
from daybreak.stores.directory.file_names import hashed_stem_of, stem_of
from daybreak.stores.directory.layout import Layout


@dataclass(slots=True)
class Place:
    """Under which words the two files of a job stand now; None if there is no such file."""

    stem: str
    data: str | None = None
    meta: str | None = None


class JobFiles:
    """All job files of a folder. `scratch` is a folder for files that are still being written."""

    def __init__(self, disk: Disk, folder: Path, scratch: Path, layout: Layout) -> None:
        self._disk = disk
        self._folder = folder
        self._scratch = scratch
        self._layout = layout
        self._places: dict[int, Place] = {}
        self._folded: dict[str, int] = {}  # stems without regard to upper and lower case
        self._unsynced: dict[Path, None] = {}  # the oldest first

    def note(self, seq: int, place: Place) -> None:
        """Take over files that are there already."""
        self._places[seq] = place
        self._folded[place.stem.casefold()] = seq

    def has_data(self, seq: int) -> bool:
        place = self._places.get(seq)
        return place is not None and place.data is not None

    def known_stem(self, seq: int) -> str | None:
        """The stem of a job's files; None if it has none yet."""
        place = self._places.get(seq)
        return None if place is None else place.stem

    def stem(self, seq: int, job: str) -> str:
        """The stem of a job's files; a new job gets one."""
        place = self._places.get(seq)
        if place is None:
            stem = stem_of(job)
            if self._folded.get(stem.casefold(), seq) != seq:
                stem = hashed_stem_of(job)
            place = Place(stem)
            self.note(seq, place)
        return place.stem

    def write(self, entry: Entry, number: int) -> None:
        """Bring the files of a job up to date. `number` is the operation that changed it."""
        self.stem(entry.seq, entry.spec.id)
        place, word = self._places[entry.seq], self._layout.words[entry.state]
        data, is_raw = self._layout.data_of(entry.spec)
        if place.data is None:
            self._write(self._layout.data_name(place.stem, word), data)
            place.data = word
        content = metadata.encoded(entry, self._layout, number, data, is_raw=is_raw)
        self._write(self._layout.meta_name(place.stem, word), content)
        if place.data != word:
            new = self._folder / self._layout.data_name(place.stem, word)
            old = self._folder / self._layout.data_name(place.stem, place.data)
            try:
                self._disk.rename(old, new)
            except FileNotFoundError:  # somebody deleted or renamed it; the job has its data
                self._write(new.name, data)
            if old in self._unsynced:
                del self._unsynced[old]
                self._unsynced[new] = None
            place.data = word
        if place.meta not in (None, word):
            self._unlink(self._layout.meta_name(place.stem, str(place.meta)))
        place.meta = word

    def delete(self, seq: int) -> None:
        """Delete the files of a job."""
        place = self._places.get(seq)
        if place is None:
            return
        if place.data is not None:
            self._unlink(self._layout.data_name(place.stem, place.data))
            place.data = None
        if place.meta is not None:
            self._unlink(self._layout.meta_name(place.stem, place.meta))
        del self._places[seq]
        if self._folded.get(place.stem.casefold()) == seq:
            del self._folded[place.stem.casefold()]

    def sync(self) -> None:
        """Make everything that was written durable."""
        self.sync_all_but(0)
        self._disk.sync_folder(self._folder)

    def sync_all_but(self, latest: int) -> None:
        """Make the contents of files durable, except for the latest, which will be written again soon. So a checkpoint
        has few files left to sync."""
        for path in list(self._unsynced)[: max(len(self._unsynced) - latest, 0)]:
            self._disk.sync_file(path)
            del self._unsynced[path]

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        self._disk.write_file(path, content, by_way_of=self._scratch / "new")
        self._unsynced.pop(path, None)
        self._unsynced[path] = None

    def _unlink(self, name: str) -> None:
        path = self._folder / name
        self._disk.unlink(path)
        self._unsynced.pop(path, None)
