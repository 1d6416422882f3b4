"""Disks that fail: at the n-th step with an error, with the death of the process, or with a power cut."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from daybreak.stores.directory.disk import Disk

STEPS = ("open", "write", "allocate", "truncate", "sync", "rename", "unlink", "make_folder")


class Killed(BaseException):
    """The process died here."""


class CountingDisk(Disk):
    """Calls `_at_step` before each step that changes the disk. `fail_at` counts from `arm`."""

    def __init__(self) -> None:
        self.steps = 0
        self.fail_at = 0
        self.failed = ""

    def arm(self, fail_at: int) -> None:
        self.steps, self.fail_at, self.failed = 0, fail_at, ""

    def _at_step(self, name: str) -> bool:
        """Whether this is the step that fails."""
        self.steps += 1
        if self.steps != self.fail_at:
            return False
        self.failed = name
        return True

    def open(self, path, flags):
        self._step("open")
        return super().open(path, flags)

    def write(self, descriptor, data, at):
        if self._at_step("write"):
            super().write(descriptor, data[: len(data) // 2], at)
            self._fail()
        return super().write(descriptor, data, at)

    def allocate(self, descriptor, size):
        self._step("allocate")
        super().allocate(descriptor, size)

    def truncate(self, descriptor, size):
        self._step("truncate")
        super().truncate(descriptor, size)

    def sync(self, descriptor):
        self._step("sync")
        super().sync(descriptor)

    def rename(self, old, new):
        self._step("rename")
        super().rename(old, new)

    def unlink(self, path):
        self._step("unlink")
        super().unlink(path)

    def make_folder(self, path):
        self._step("make_folder")
        super().make_folder(path)

    def _step(self, name: str) -> None:
        if self._at_step(name):
            self._fail()

    def _fail(self) -> None:
        raise NotImplementedError


class ErrorDisk(CountingDisk):
    """The n-th step fails, and with `lasting` all after it."""

    def __init__(self, code: int = errno.EIO, *, lasting: bool = False) -> None:
        super().__init__()
        self._code = code
        self._lasting = lasting

    def _at_step(self, name: str) -> bool:
        return super()._at_step(name) or (self._lasting and bool(self.failed) and self.fail_at > 0)

    def _fail(self) -> None:
        raise OSError(self._code, os.strerror(self._code))


class KilledDisk(CountingDisk):
    """The process dies at the n-th step: no later step happens."""

    def _at_step(self, name: str) -> bool:
        return super()._at_step(name) or bool(self.failed)

    def _fail(self) -> None:
        raise Killed


class PowerCutDisk(KilledDisk):
    """The power fails at the n-th step. `cut` then leaves only what was synced: contents by file, names by folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        for place in self._folders():
            self._note_names(place)
            for path in place.iterdir():
                if path.is_file():
                    self._contents[path.stat().st_ino] = path.read_bytes()

    def _folders(self) -> list[Path]:
        return [path for path in (self._folder, *self._folder.rglob("*")) if path.is_dir()]

    def _note_names(self, folder: Path) -> None:
        self._names[folder] = {path.name: path.stat().st_ino for path in folder.iterdir() if path.is_file()}

    def sync(self, descriptor):
        super().sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self._note_names(path)
        else:
            self._contents[os.fstat(descriptor).st_ino] = path.read_bytes()

    def cut(self) -> None:
        contents = dict(self._contents)
        for folder in self._folders():
            for path in folder.iterdir():
                if path.is_file():
                    path.unlink()
        for folder, names in self._names.items():
            for name, inode in names.items():
                (folder / name).write_bytes(contents.get(inode, b""))


def copied(folder: Path, to: Path) -> Path:
    """A copy of a folder, for one trial."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to
