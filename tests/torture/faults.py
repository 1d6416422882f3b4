"""A disk of which one chosen operation fails, once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import apsw


class Faulty(apsw.VFS):
    """The default VFS, whose n-th change of a file (write, truncate, sync or delete) fails with a given code."""

    def __init__(self, name: str, nth: int, code: int) -> None:
        super().__init__(name, base="")
        self.name = name
        self.has_failed = False
        self._left = nth
        self._code = code

    def heal(self) -> None:
        """Nothing fails any more. Needed before a close: SQLite forgives a failure there, apsw brings it up again."""
        self._left = -1

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_failed = True
            trouble = apsw.exception_for(self._code)
            trouble.args = ("what SQLite says of it",)
            raise trouble

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's word
        return FaultyFile(self, name, flags)

    def xDelete(self, filename, syncdir):  # noqa: N802
        self.count()
        super().xDelete(filename, syncdir)


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: Faulty, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data, offset):  # noqa: N802
        self._disk.count()
        return super().xWrite(data, offset)

    def xTruncate(self, newsize):  # noqa: N802
        self._disk.count()
        return super().xTruncate(newsize)

    def xSync(self, flags):  # noqa: N802
        self._disk.count()
        return super().xSync(flags)


@contextlib.contextmanager
def faulty(nth: int, code: int) -> Iterator[Faulty]:
    disk = Faulty("faulty", nth, code)
    try:
        yield disk
    finally:
        disk.unregister()
