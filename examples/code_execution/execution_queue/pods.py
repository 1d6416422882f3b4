"""The pods of one machine: a folder that all pod workers of the machine share, as the nodes of a cluster share its API.

| file | meaning |
|---|---|
| `SAGA.floor` | pods of this saga with a fence below this number must not run |
| `SAGA.FENCE.pod` | this pod was started. While it runs, a lock is held on the file; its outcome is in it afterwards |

The lock is gone when its process is, so a pod worker that was killed is known by a pod without lock and outcome."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOREVER: Final = 1 << 62
KEPT: Final = 7 * 24 * 3600.0  # seconds; longer than a broker delivers a command again


class PodRuns(Exception):
    """This pod runs now, in this or another pod worker."""


class PodDied(Exception):
    """This pod was started, and its pod worker died before it ended."""


class Pod:
    """A pod that was started here, or its outcome if it had ended before."""

    def __init__(self, file: int, outcome: bytes) -> None:
        self._file = file
        self.outcome = outcome

    def end(self, outcome: bytes) -> None:
        """Keep its outcome. It is durable when this returns."""
        os.write(self._file, outcome)
        os.fsync(self._file)
        self.outcome = outcome


class Pods:
    """The folder. Every method may be called by several processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def begin(self, saga: str, fence: int) -> Iterator[Pod]:
        """Start a pod, once: the lock is held until the block ends. Raises PodRuns or PodDied if it was started before
        and has not ended."""
        file = os.open(self._folder / f"{saga}.{fence}.pod", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PodRuns(f"{saga}.{fence}") from None
            content = os.pread(file, os.fstat(file).st_size, 0)
            if content == b"started":
                raise PodDied(f"{saga}.{fence}")
            if not content:
                os.write(file, b"started")
                os.fsync(file)
            yield Pod(file, content.removeprefix(b"started"))
        finally:
            os.close(file)

    def is_wanted(self, saga: str, fence: int) -> bool:
        """Whether this pod may run: nobody deleted it, or created a newer one."""
        return fence >= self._floor(saga)

    def supersede(self, saga: str, fence: int) -> None:
        """End the pods of older attempts."""
        self._raise_floor(saga, fence)

    def delete(self, saga: str) -> None:
        """End every pod of this saga, also those that were not started yet."""
        self._raise_floor(saga, FOREVER)

    def running(self) -> list[str]:
        """The pods that run now."""
        return [path.stem for path in sorted(self._folder.glob("*.pod")) if self._is_locked(path)]

    def forget_old(self) -> None:
        """Delete what is too old to be asked for again."""
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - KEPT and not self._is_locked(path):
                    path.unlink()

    def _floor(self, saga: str) -> int:
        try:
            return int((self._folder / f"{saga}.floor").read_text(encoding="ascii") or 0)
        except FileNotFoundError:
            return 0

    def _raise_floor(self, saga: str, floor: int) -> None:
        with (self._folder / f"{saga}.floor").open("a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if floor > int(file.read() or 0):
                file.truncate(0)
                file.write(str(floor))

    @staticmethod
    def _is_locked(path: Path) -> bool:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
