"""Lists the files of a drop folder that may be taken."""

from __future__ import annotations

import contextlib
import heapq
import stat
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.entry import Fingerprint, NotTaken, status_problem
from daybreak.feeds.drop_folder.entry_name import (
    ERROR_INFO,
    EntryName,
    folder_priority,
    name_problem,
    parse_name,
    priority_in_name,
)
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.feeds.drop_folder.sidecar import BadSidecar, read_sidecar

CANDIDATES: Final = 20_000  # files that are remembered while they wait; more stay in the folder until these are taken
STAGING: Final = ".daybreak"  # the folder in the watched one through which files leave
Report = Callable[[str, str], None]
IsKnown = Callable[[str, Fingerprint], bool]


class Candidate(Struct, frozen=True):
    """A file that may be taken, as it was when it was looked at. `level` orders candidates: the most urgent first."""

    entry: EntryName
    fingerprint: Fingerprint
    level: int

    @property
    def order(self) -> tuple[int, int, str]:
        return self.level, self.fingerprint.modified, self.entry.path


class FolderScan:
    """Looks at the entries of one watched folder. `report` is told what is left alone, and why."""

    def __init__(self, watch: FolderWatch, default_level: int, report: Report) -> None:
        self._watch = watch
        self.level = default_level if watch.priority is None else watch.priority
        self._report = report
        own = (watch.done, watch.failed)
        self._own = {STAGING, *(path.name for path in own if path is not None and not path.is_absolute())}

    def scan(self, root: FolderHandle, is_known: IsKnown) -> list[Candidate]:
        """The most urgent candidates of the whole folder, in order, without those that are known."""
        return heapq.nsmallest(CANDIDATES, self._all(root, is_known), key=lambda candidate: candidate.order)

    def _all(self, root: FolderHandle, is_known: IsKnown) -> Iterator[Candidate]:
        subfolders: list[str] = []
        yield from self._in(root, "", subfolders, is_known)
        for name in subfolders:
            try:
                with root.open_folder(name) as folder:
                    yield from self._in(folder, name, None, is_known)
            except OSError as error:
                self._report(name, f"it cannot be opened: {error.strerror or error}")

    def _in(
        self, folder: FolderHandle, label: str, subfolders: list[str] | None, is_known: IsKnown
    ) -> Iterator[Candidate]:
        for name in folder.names():
            if not label and name in self._own:
                continue
            if subfolders is not None and folder_priority(name) is not None and _is_folder(folder, name):
                subfolders.append(name)
                continue
            found = self._look(folder, label, name, is_known)
            if found is not None:
                yield found

    def look_at(self, root: FolderHandle, paths: Iterable[str], is_known: IsKnown) -> Iterator[Candidate]:
        """The candidates among these paths, which are relative to the folder."""
        for path in paths:
            label, _, name = path.rpartition("/")
            if not label:
                found = None if name in self._own else self._look(root, "", name, is_known)
            elif folder_priority(label) is None:
                continue
            else:
                try:
                    with root.open_folder(label) as folder:
                        found = self._look(folder, label, name, is_known)
                except OSError:
                    continue
            if found is not None:
                yield found

    def _look(self, folder: FolderHandle, label: str, name: str, is_known: IsKnown) -> Candidate | None:
        entry = parse_name(label, name, self._watch.pattern, self._watch.done_marker)
        if entry is None:
            return None
        problem = name_problem(name)
        if problem:
            self._report(entry.path, problem)
            return None
        try:
            status = folder.stat(name)
        except OSError:  # gone since it was listed
            return None
        if entry.leftover in ("error", "completed") and not self._is_leftover(folder, entry):
            return None
        problem = status_problem(status, self._watch.max_size)
        if problem:
            if not (stat.S_ISDIR(status.st_mode) and folder_priority(name) is not None and not label):
                self._report(entry.path, problem)
            return None
        fingerprint = Fingerprint.of(status)
        if is_known(entry.path, fingerprint) or self._lacks_marker(folder, entry):
            return None
        return Candidate(entry, fingerprint, self._level_of(folder, entry))

    def _is_leftover(self, folder: FolderHandle, entry: EntryName) -> bool:
        """Files may be named `.error` for other reasons: then the pattern decides."""
        matches = any(fnmatchcase(name, self._watch.pattern) for name in (entry.name, entry.title))
        return matches or folder.has(entry.title + ERROR_INFO)

    def _lacks_marker(self, folder: FolderHandle, entry: EntryName) -> bool:
        """Whether the file waits for its done marker. Files of the old format never have one."""
        marker = self._watch.done_marker
        return marker is not None and not entry.leftover and not folder.has(entry.name + marker)

    def _level_of(self, folder: FolderHandle, entry: EntryName) -> int:
        """The priority. What is wrong with a sidecar shows when the file is taken."""
        with contextlib.suppress(NotTaken, BadSidecar):
            beside = read_sidecar(folder, entry).priority
            if beside is not None:
                return beside
        named = priority_in_name(entry.title)
        if named is None and entry.folder:
            named = folder_priority(entry.folder)
        return self.level if named is None else named


def _is_folder(folder: FolderHandle, name: str) -> bool:
    try:
        return stat.S_ISDIR(folder.stat(name).st_mode)
    except OSError:
        return False
