"""`daybreak worker` that counts what it asks of its store: calls, looks at the data version, SQL statements."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

import apsw

from benchmarks.starts import PLACE
from daybreak.cli import main
from daybreak.stores.sqlite.connections import OpenStore

COUNTS = "counts"
KINDS = ("calls", "looks", "statements")
SIZE = struct.calcsize(f"={len(KINDS)}q")


def read(place: Path) -> dict[str, int]:
    return dict(zip(KINDS, struct.unpack(f"={len(KINDS)}q", (place / COUNTS).read_bytes()), strict=True))


class Counts:
    def __init__(self, place: Path) -> None:
        with (place / COUNTS).open("w+b") as file:
            file.truncate(SIZE)
            self._shared = mmap.mmap(file.fileno(), SIZE)

    def add(self, kind: str) -> None:
        at = KINDS.index(kind) * 8
        struct.pack_into("=q", self._shared, at, struct.unpack_from("=q", self._shared, at)[0] + 1)


def _count(counts: Counts, kind: str, name: str) -> None:
    before = getattr(OpenStore, name)

    def counted(self: OpenStore, *args: Any, **kwargs: Any) -> Any:
        counts.add(kind)
        return before(self, *args, **kwargs)

    setattr(OpenStore, name, counted)


def _counted_main() -> None:
    counts = Counts(Path(os.environ[PLACE]))
    for name in ("write", "write_now", "read"):
        _count(counts, "calls", name)
    _count(counts, "looks", "has_changed")
    apsw.connection_hooks.append(lambda db: db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda _: counts.add("statements")))
    sys.argv[1:1] = ["worker"]
    main()


if __name__ == "__main__":
    _counted_main()
