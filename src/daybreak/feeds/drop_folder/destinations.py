"""Where a file goes when its job has ended, and the notes beside it.

A file leaves in two steps: it is renamed into a folder of its own in `.daybreak/`, looked at there, and then renamed to
its destination. So what is moved or deleted is what was looked at, even if a program puts another file under the same
name in between. The name of that folder says which job the file belongs to; what a kill leaves there is delivered by
the next start, or put back. No rename replaces anything."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.feeds.drop_folder.entry import Fingerprint
from daybreak.feeds.drop_folder.entry_name import ERROR_INFO, SIDECAR, EntryName
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.feeds.drop_folder.folder_scan import STAGING
from daybreak.system.file_content import PIECE

ERROR_NOTE: Final = ".error.json"
NOTE: Final = ".note.json"
_TRIES: Final = 1000
Parse = Callable[[str, str], EntryName | None]


class Ending(Struct, frozen=True, kw_only=True):
    """What becomes of a file. `place` is a folder in the watched one or an absolute path; None deletes the file. `note`
    is written beside it, under its new name and `suffix`. `job` is empty if the file never became a job."""

    place: Path | None
    job: str = ""
    note: Mapping[str, object] | None = None
    suffix: str = NOTE
    marker: str | None = None


class Staged(Struct, frozen=True):
    """A file on its way out, in a folder of `.daybreak/` that is named after this."""

    job: str
    inode: int
    modified: int
    folder: str

    @property
    def label(self) -> str:
        return f"{self.job or '-'}.{self.inode:x}.{self.modified:x}.{self.folder}"

    @classmethod
    def parse(cls, label: str) -> Staged | None:
        """What the name of such a folder says; None if it is no such name."""
        parts = label.split(".")
        try:
            job, inode, modified, folder = parts
            return cls(job.removeprefix("-"), int(inode, 16), int(modified, 16), folder)
        except ValueError:
            return None


def move_away(root: FolderHandle, entry: EntryName, fingerprint: Fingerprint, ending: Ending) -> bool:
    """Move or delete a file that is still what its fingerprint says. False if it is gone, or another one by now."""
    staged = Staged(ending.job, fingerprint.inode, fingerprint.modified, entry.folder)
    with _home(root, entry.folder) as folder:
        if not _is(folder, entry.name, staged):
            return False
        with root.open_folder(STAGING, create=True) as staging:
            with staging.open_folder(staged.label, create=True) as own:
                try:
                    folder.move(entry.name, own, entry.name)
                except (FileNotFoundError, FileExistsError):  # another watcher moves it
                    return False
                is_same = _is(own, entry.name, staged)
                if is_same:
                    _deliver(root, own, folder, entry, ending)
                else:
                    _put_back(own, entry.name, folder)
            staging.rmdir(staged.label)
    return is_same


def _deliver(root: FolderHandle, own: FolderHandle, folder: FolderHandle, entry: EntryName, ending: Ending) -> None:
    if ending.place is None:
        _move_companions(folder, entry, None, "")
        own.unlink(entry.name)
    else:
        with open_place(root, ending.place) as target:
            new_name = _free_name(target, entry.title, ending.job)
            if ending.note is not None:
                target.write(new_name + ending.suffix, msgspec.json.format(msgspec.json.encode(ending.note)) + b"\n")
            _move_companions(folder, entry, target, new_name)
            _move_across(own, entry.name, target, new_name)
    _delete_marker(folder, entry, ending.marker)


def open_place(root: FolderHandle, place: Path) -> FolderHandle:
    """Open a destination, and create it. A name in the watched folder must be a real folder, not a link."""
    if not place.is_absolute():
        return root.open_folder(str(place), create=True)
    place.mkdir(parents=True, exist_ok=True)
    return FolderHandle.open(place)


def _home(root: FolderHandle, label: str) -> FolderHandle:
    return root.open_folder(label or ".")


# -- what a kill left --------------------------------------------------------------------------------------------------


def staged_files(root: FolderHandle) -> list[Staged]:
    """The files that a killed watcher left on their way out."""
    try:
        staging = root.open_folder(STAGING)
    except OSError:
        return []
    with staging:
        return [found for found in map(Staged.parse, staging.names()) if found is not None]


def finish_staged(root: FolderHandle, staged: Staged, ending: Ending | None, parse: Parse) -> bool:
    """Deliver a file that is what its folder says, or put it back if there is no ending. False if it was not there."""
    found = False
    with contextlib.ExitStack() as stack:
        staging = stack.enter_context(root.open_folder(STAGING))
        own = stack.enter_context(staging.open_folder(staged.label))
        folder = stack.enter_context(root.open_folder(staged.folder or ".", create=bool(staged.folder)))
        for name in list(own.names()):
            entry = parse(staged.folder, name)
            if ending is not None and entry is not None and _is(own, name, staged):
                _deliver(root, own, folder, entry, ending)
            else:
                _put_back(own, name, folder)
            found = True
        staging.rmdir(staged.label)
    return found


def _put_back(staging: FolderHandle, name: str, folder: FolderHandle) -> bool:
    """Rename a file back. If its name has been taken meanwhile, it gets another one."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - a name, not a path
    for number in range(1, _TRIES):
        try:
            folder_name = name if number == 1 else f"{stem}-{number}{suffix}"
            staging.move(name, folder, folder_name)
        except FileExistsError:
            continue
        except OSError:
            return False
        return True
    return False


def _is(folder: FolderHandle, name: str, staged: Staged) -> bool:
    """Whether this is the file that was accepted. A rename changes nothing but the change time."""
    try:
        status = folder.stat(name)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_ino, status.st_mtime_ns) == (staged.inode, staged.modified)


def _free_name(target: FolderHandle, title: str, job: str) -> str:
    """The file's own name, or one with the end of the job's id if there is a file of that name."""
    if not target.has(title):
        return title
    stem, suffix = os.path.splitext(title)  # noqa: PTH122
    tag = job[-8:] or "again"
    room = 200 - len(suffix)
    for number in range(1, _TRIES):
        more = f"-{number}" if number > 1 else ""
        name = f"{stem[:room]}.{tag}{more}{suffix}"
        if not target.has(name):
            return name
    raise FileExistsError(errno.EEXIST, "too many files of this name", title)


def _delete_marker(folder: FolderHandle, entry: EntryName, marker: str | None) -> None:
    """Last of all: without its marker, a file that a kill left behind would never count as complete."""
    if marker is None:
        return
    for name in {entry.name + marker, entry.title + marker}:
        with contextlib.suppress(OSError):
            folder.unlink(name)


def _move_companions(folder: FolderHandle, entry: EntryName, target: FolderHandle | None, new_name: str) -> None:
    """The sidecar goes with its file. Before it: the job knows what the sidecar said."""
    names = [(entry.title + SIDECAR, SIDECAR)]
    if entry.name != entry.title:
        names += [(entry.name + SIDECAR, SIDECAR), (entry.title + ERROR_INFO, ERROR_INFO)]
    for name, suffix in names:
        with contextlib.suppress(OSError):
            if target is None:
                folder.unlink(name)
            else:
                _move_across(folder, name, target, new_name + suffix)


def _move_across(source: FolderHandle, name: str, target: FolderHandle, new_name: str) -> None:
    """Move, also to another file system: then by a copy that is durable before the original goes."""
    try:
        source.move(name, target, new_name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, name, target, new_name)
        source.unlink(name)


def _copy(source: FolderHandle, name: str, target: FolderHandle, new_name: str) -> None:
    unfinished = f".daybreak-{secrets.token_hex(8)}"
    descriptor = source.open_file(name)
    try:
        with target.new_file(unfinished) as copy:
            while piece := os.read(descriptor, PIECE):
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
    finally:
        os.close(descriptor)
    target.move(unfinished, target, new_name)
