"""Reads the job files of a folder. What cannot be read is set aside in `corrupt/` and named; the rest loads."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from daybreak.core.model import State
from daybreak.stores.directory import foreign_items, metadata
from daybreak.stores.directory.disk import Disk
from daybreak.stores.directory.entry import Entry
from daybreak.stores.directory.file_names import id_of, is_stem_of
from daybreak.stores.directory.job_files import Place
from daybreak.stores.directory.layout import Layout, is_json

_log = logging.getLogger("daybreak.directory")


@dataclass(slots=True)
class Files:
    """The files of one stem, by the word in their names."""

    stem: str
    data: dict[str, Path] = field(default_factory=dict)
    meta: dict[str, Path] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether there are exactly the two files of a job, with one word."""
        return len(self.data) == len(self.meta) == 1 and self.data.keys() == self.meta.keys()


@dataclass(slots=True)
class Found:
    """A job that was read from its files. `number` is the operation that wrote them; `is_foreign` means that another
    program did."""

    entry: Entry
    word: str
    place: Place
    files: Files
    number: int = 0
    is_foreign: bool = False


class Folder:
    """The job files of a folder, as they are when it is opened."""

    def __init__(self, disk: Disk, path: Path, layout: Layout, *, queue: str) -> None:
        self._disk = disk
        self._path = path
        self._layout = layout
        self._queue = queue
        self.set_aside: list[str] = []

    @property
    def corrupt(self) -> Path:
        return self._path / "corrupt"

    def files(self) -> dict[str, Files]:
        """All job files, by stem. Files with other names are left alone; a name with an unknown word is logged."""
        groups: dict[str, Files] = {}
        strays: set[str] = set()
        with os.scandir(self._path) as entries:
            for one in entries:
                name = self._layout.parse(one.name)
                if name is None or not _is_file(one):
                    continue
                if not self._layout.states(name.word):
                    strays.add(name.stem)
                    _log.warning("%s: %r is no state of a job, so the file is ignored", one.path, name.word)
                    continue
                group = groups.setdefault(name.stem, Files(name.stem))
                (group.meta if name.is_meta else group.data)[name.word] = Path(one.path)
        for stem in strays & groups.keys():  # one of a pair was renamed to something else: change nothing
            _log.warning("%s: the files of %s are ignored until both are renamed", self._path, stem)
            del groups[stem]
        return groups

    def jobs(self, groups: dict[str, Files]) -> Iterator[Found]:
        """The jobs of these files."""
        for files in groups.values():
            found = self._read(files)
            if found is not None:
                yield found

    def _read(self, files: Files) -> Found | None:
        told, meta = self._metadata(files)
        data = self._data(files, meta)
        if data is None:
            for path in files.meta.values():
                self.put_aside(path, "the data file of this job is missing")
            return None
        word, path = data
        try:
            content, changed = path.read_bytes(), path.stat().st_mtime_ns // 1000
        except OSError as error:
            _log.warning("%s cannot be read, so the job is ignored: %s", path, error.strerror or error)
            return None
        place = Place(files.stem, word, meta)
        if isinstance(told, metadata.Metadata):
            return self._own(files, told, place, content)
        if not self._layout.raw_items and told is None:
            self.put_aside(path, "the metadata file of this job is missing or damaged")
            return None
        return self._foreign(files, told or {}, place, content, changed)

    def _metadata(self, files: Files) -> tuple[metadata.Metadata | dict[str, Any] | None, str | None]:
        """The newest metadata and its word. Damaged files are put aside."""
        best: tuple[metadata.Metadata | dict[str, Any] | None, str | None] = (None, None)
        for word, path in sorted(files.meta.items()):
            try:
                told = metadata.decoded(path.read_bytes())
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                self.put_aside(path, f"it is not the metadata of a job: {error}")
                continue
            except OSError as error:
                _log.warning("%s cannot be read: %s", path, error.strerror or error)
                continue
            if best[0] is None or _number(told) > _number(best[0]):
                best = (told, word)
        return best

    def has_raw_data(self, files: Files) -> bool:
        """Whether the data file holds an item's raw data, as the metadata says."""
        told, _ = self._metadata(files)
        return isinstance(told, metadata.Metadata) and told.daybreak.raw

    def _data(self, files: Files, meta: str | None) -> tuple[str, Path] | None:
        if not files.data:
            return None
        word = meta if meta in files.data else min(files.data)
        for other, path in files.data.items():
            if other != word:
                self.put_aside(path, f"the job has another data file, {files.data[str(word)].name}")
        return str(word), files.data[str(word)]

    def _own(self, files: Files, told: metadata.Metadata, place: Place, content: bytes) -> Found | None:
        ours = told.daybreak
        if zlib.crc32(content) != ours.crc and not is_json(content):
            self.put_aside(files.data[str(place.data)], "its content is damaged")
            for path in files.meta.values():
                self.put_aside(path, "the data file of this job is damaged")
            return None
        entry = ours.entry
        spec = replace(entry.spec, args=self._layout.args_of(content, is_raw=ours.raw))
        entry.spec = spec
        return Found(entry, str(place.data), place, files, ours.number)

    def _foreign(self, files: Files, told: dict[str, Any], place: Place, content: bytes, changed: int) -> Found | None:
        if not is_json(content):
            self.put_aside(files.data[str(place.data)], "its content is not JSON")
            for path in files.meta.values():
                if path.exists():
                    self.put_aside(path, "the data file of this job is damaged")
            return None
        job = told.get("id")
        if not isinstance(job, str) or not is_stem_of(files.stem, job):
            job = id_of(files.stem) or files.stem
        args = self._layout.args_of(content, is_raw=True)
        state = self._state(str(place.data))
        entry = foreign_items.entry_of(job, args, state, told, queue=self._queue, changed=changed)
        return Found(entry, str(place.data), place, files, is_foreign=True)

    def _state(self, word: str) -> State:
        states = self._layout.states(word)
        return State.QUEUED if State.QUEUED in states else min(states)

    def put_aside(self, path: Path, why: str) -> None:
        """Move a file that cannot be used into `corrupt/`, and say so."""
        target = self.corrupt / path.name
        number = 1
        while target.exists():
            number += 1
            target = self.corrupt / f"{path.name}.{number}"
        try:
            self._disk.make_folder(self.corrupt)
            self._disk.rename(path, target)
        except FileNotFoundError:
            return
        self.set_aside.append(path.name)
        _log.error("%s was moved to %s: %s", path, target, why)


def _is_file(one: os.DirEntry[str]) -> bool:
    try:
        return one.is_file(follow_symlinks=False)
    except OSError:
        return False


def _number(told: metadata.Metadata | dict[str, Any] | None) -> int:
    return told.daybreak.number if isinstance(told, metadata.Metadata) else -1
