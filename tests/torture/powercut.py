"""A disk that can lose its power: records what SQLite asks of its files, then rebuilds what a cut could have left.

What counts as kept: bytes of a file after its sync returned; a file's name after the folder was synced, which the unix
VFS does with the first sync of a journal or write-ahead log it opened. All else may be kept, lost or, for the last
write that reached the disk, torn at a sector. Not modelled: a disk that lies about a sync, and damage to bytes outside
of what was being written (SQLite's own assumption too: powersafe overwrite)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

SECTOR = 512
LOGS = ("-wal", "-journal")


@dataclass(frozen=True, slots=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Ended when it stands in the trace; covers what was written before `begun`, an index into the trace."""

    file: str
    begun: int
    folder: bool


@dataclass(frozen=True, slots=True)
class FailedSync:
    """The sync failed. As Linux does, the pages count as clean from then on: whoever reads the file sees them, no later
    sync writes them."""

    file: str
    begun: int


@dataclass(frozen=True, slots=True)
class Create:
    file: str


@dataclass(frozen=True, slots=True)
class Delete:
    file: str
    folder: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Not of the disk: something the test knows at this moment."""

    what: Any


Op = Write | Truncate | Sync | FailedSync | Create | Delete | Mark


class Recorder(apsw.VFS):
    """The default VFS of this platform, with a trace of every change. WAL's shared memory passes through: it is
    rebuilt after a cut anyway."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")
        self.name = name
        self.trace: list[Op] = []
        self._alive: set[str] = set()
        self._failing: list[str] = []

    def mark(self, what: Any) -> int:
        self.trace.append(Mark(what))
        return len(self.trace) - 1

    def fail_sync(self, file: str) -> None:
        """The next sync of this file fails, once."""
        self._failing.append(file)

    def fails(self, file: str) -> bool:
        if file in self._failing:
            self._failing.remove(file)
            return True
        return False

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's word
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        called = None if path is None else Path(path).name
        if called is not None and called not in self._alive:
            # Made here or just before by the program itself, empty either way.
            self._alive.add(called)
            self.trace.append(Create(called))
        return RecordedFile(self, name, flags, called)

    def xDelete(self, filename, syncdir):  # noqa: N802
        super().xDelete(filename, syncdir)
        self._alive.discard(Path(filename).name)
        self.trace.append(Delete(Path(filename).name, syncdir))


class RecordedFile(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: Any, flags: list[int], called: str | None) -> None:
        super().__init__("", name, flags)
        self._recorder = recorder
        self._trace = recorder.trace
        self._called = called
        self._folder_next = called is not None and called.endswith(LOGS)

    def xWrite(self, data, offset):  # noqa: N802
        if self._called is not None:
            self._trace.append(Write(self._called, offset, bytes(data)))
        return super().xWrite(data, offset)

    def xTruncate(self, newsize):  # noqa: N802
        if self._called is not None:
            self._trace.append(Truncate(self._called, newsize))
        return super().xTruncate(newsize)

    def xSync(self, flags):  # noqa: N802
        begun = len(self._trace)
        if self._called is not None and self._recorder.fails(self._called):
            self._trace.append(FailedSync(self._called, begun))
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)
        if self._called is not None:
            self._trace.append(Sync(self._called, begun, self._folder_next))
            self._folder_next = False


@contextlib.contextmanager
def recording(name: str) -> Iterator[Recorder]:
    recorder = Recorder(name)
    try:
        yield recorder
    finally:
        recorder.unregister()


# -- the disk ----------------------------------------------------------------------------------------------------------

Mode = Literal["synced", "all", "subset"]


@dataclass
class Image:
    """The bytes of one file: those that are safe, and the changes that are not."""

    safe: bytearray = field(default_factory=bytearray)
    loose: list[tuple[int, Write | Truncate]] = field(default_factory=list)

    def sync(self, begun: int) -> None:
        for index, op in self.loose:
            if index < begun:
                apply(self.safe, op)
        self.loose = [(index, op) for index, op in self.loose if index >= begun]

    def fail_sync(self, begun: int) -> None:
        self.loose = [(index, op) for index, op in self.loose if index >= begun]

    def after_cut(self, mode: Mode, chance: random.Random) -> bytes:
        left = bytearray(self.safe)
        kept = [op for _, op in self.loose if mode == "all" or (mode == "subset" and chance.random() < 0.6)]
        if mode == "subset" and kept and isinstance(kept[-1], Write):
            kept[-1] = torn(kept[-1], chance)
        for op in kept:
            apply(left, op)
        return bytes(left)


def apply(content: bytearray, op: Write | Truncate) -> None:
    if isinstance(op, Truncate):
        del content[op.size :]
        content.extend(bytes(op.size - len(content)))
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


def torn(write: Write, chance: random.Random) -> Write:
    """What reached the disk ends, or begins, at a sector of the disk."""
    first = -(-write.offset // SECTOR) * SECTOR
    edges = [edge - write.offset for edge in range(first, write.offset + len(write.data) + 1, SECTOR)]
    if not edges:
        return write if chance.random() < 0.5 else Write(write.file, write.offset, b"")
    edge = chance.choice(edges)
    if chance.random() < 0.5:
        return Write(write.file, write.offset, write.data[:edge])
    return Write(write.file, write.offset + edge, write.data[edge:])


class Disk:
    """Plays a trace; at any point it can tell what a power cut would leave."""

    def __init__(self) -> None:
        self._live: dict[str, Image] = {}
        self._named: dict[str, Image] = {}
        self._renames: list[tuple[str, Image | None]] = []
        self._at = 0

    def play(self, trace: list[Op], until: int) -> None:
        """Go on in the trace up to, not including, `until`."""
        for index in range(self._at, until):
            self._do(index, trace[index])
        self._at = max(self._at, until)

    def _do(self, index: int, op: Op) -> None:
        match op:
            case Create(file):
                self._live[file] = Image()
                self._renames.append((file, self._live[file]))
            case Delete(file, folder):
                self._live.pop(file, None)
                self._renames.append((file, None))
                if folder:
                    self._sync_folder()
            case Write(file) | Truncate(file):
                self._live[file].loose.append((index, op))
            case FailedSync(file, begun):
                self._failed(file, begun)
            case Sync(file, begun, folder):
                if file in self._live:
                    self._live[file].sync(begun)
                if folder:
                    self._sync_folder()

    def _failed(self, file: str, begun: int) -> None:
        if file in self._live:
            self._live[file].fail_sync(begun)

    def _sync_folder(self) -> None:
        rename(self._named, self._renames)
        self._renames = []

    def after_cut(self, mode: Mode, chance: random.Random) -> dict[str, bytes]:
        named = dict(self._named)
        kept = {"synced": 0, "all": len(self._renames), "subset": chance.randint(0, len(self._renames))}[mode]
        rename(named, self._renames[:kept])
        return {file: image.after_cut(mode, chance) for file, image in named.items()}


def rename(named: dict[str, Image], renames: list[tuple[str, Image | None]]) -> None:
    for file, image in renames:
        if image is None:
            named.pop(file, None)
        else:
            named[file] = image


def interesting(trace: list[Op], db: str, n: int, chance: random.Random) -> list[int]:
    """Where to cut: a third anywhere, a third while the main file changes (open, migration, checkpoint), a third right
    behind an acknowledgement, where a promise has just been made."""
    main = [i for i, op in enumerate(trace) if not isinstance(op, Mark) and not op.file.endswith("-wal")]
    marks = [i + 1 for i, op in enumerate(trace) if isinstance(op, Mark)]
    pick = [chance.randrange(len(trace) + 1) for _ in range(n - 2 * (n // 3))]
    pick += [chance.choice(main) + chance.randint(0, 1) for _ in range(n // 3)]
    pick += [chance.choice(marks) for _ in range(n // 3)]
    return sorted(pick)
