"""The key of a point, by which a second submission finds its job.

A point is a task, its version and its arguments in canonical form. Equal points are separate jobs: the second one has
the occurrence 1, the third 2. The key of a job is the digest of run, epoch, point and occurrence, so it is short
whatever the run is called, and the same in every process."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

KEY_PREFIX: Final = "run:"
_DIGEST_SIZE: Final = 16
_write_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_read: Final = msgspec.json.Decoder().decode


class Point(NamedTuple):
    """One point: its key, the digest of what it stands for, and that digest as a number."""

    key: str
    digest: str
    number: int


class PointKeys:
    """Makes the keys of one pass over the points of a run. `distinct` says that no two points are equal: then nothing
    is remembered of those that were seen."""

    def __init__(self, run: str, epoch: int, task: str, version: int, *, distinct: bool = False) -> None:
        self._of_run = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self._of_run.update(msgspec.json.encode([run, epoch, task, version]))
        self._seen: dict[bytes, int] | None = None if distinct else {}

    def point(self, args: bytes) -> Point:
        """The point of these encoded arguments, the next one of its kind."""
        digest = self._of_run.copy()
        digest.update(_write_sorted(_read(args)))
        found = digest.digest()
        if self._seen is not None:
            occurrence = self._seen.get(found, 0)
            self._seen[found] = occurrence + 1
            if occurrence:
                digest.update(b"%d" % occurrence)
                found = digest.digest()
        text = found.hex()
        return Point(KEY_PREFIX + text, text, int.from_bytes(found))


class PointSet:
    """A digest of a set of points that does not depend on their order: the sum of their digests."""

    def __init__(self) -> None:
        self.total = 0
        self._sum = 0

    def add(self, number: int) -> None:
        self.total += 1
        self._sum += number

    def digest(self) -> str:
        return f"{self._sum % (1 << 8 * _DIGEST_SIZE):032x}"
