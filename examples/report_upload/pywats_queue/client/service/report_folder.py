"""The folder of reports: `NAME.queued`, `.processing`, `.error` with `NAME.error.info`, and `.completed`.

Every change is one rename, so that a crash leaves a report under one of these names. A file that somebody else takes
away is no error: it is no longer there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

QUEUED, PROCESSING, ERROR, COMPLETED = "queued", "processing", "error", "completed"
STATES: Final = (QUEUED, PROCESSING, ERROR, COMPLETED)
DEFAULT_PRIORITY: Final = 5
MAX_SIDE_FILE: Final = 64 * 1024
MAX_DOUBLINGS: Final = 10
_PRIORITY_IN_NAME: Final = re.compile(r"\.p(10|[1-9])$")
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class ErrorInfo(NamedTuple):
    """What `NAME.error.info` says: the last error, when it was, and how many attempts failed so far."""

    error: str = ""
    at: datetime | None = None
    attempts: int = 0
    is_permanent: bool = False


class ReportFolder:
    """The files of one folder. Only regular files count: links, folders and pipes are left alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> dict[str, dict[str, float]]:
        """The names of reports in each state, with the time at which each got this state or, for an error, at which it
        was written."""
        found: dict[str, dict[str, float]] = {state: {} for state in STATES}
        for entry, name, state in self._entries():
            with contextlib.suppress(OSError):  # it was taken away just now
                about = entry.stat(follow_symlinks=False)
                found[state][name] = about.st_mtime if state == ERROR else about.st_ctime
        return found

    def counts(self) -> Counter[str]:
        return Counter(state for _, _, state in self._entries())

    def _entries(self) -> Iterator[tuple[os.DirEntry[str], str, str]]:
        with os.scandir(self.path) as entries:
            for entry in entries:
                name, dot, state = entry.name.rpartition(".")
                if dot and name and state in STATES and entry.is_file(follow_symlinks=False):
                    yield entry, name, state

    def file(self, name: str, state: str) -> Path:
        return self.path / f"{name}.{state}"

    def move(self, name: str, before: str, *after: str) -> bool:
        """Give a report the first of these states whose file name is free: another report with the same name is never
        overwritten. False if the report is not there, or no name is free."""
        for state in after:
            if not os.path.lexists(self.file(name, state)):
                try:
                    self.file(name, before).rename(self.file(name, state))
                except FileNotFoundError:
                    return False
                return True
        return False

    def read(self, name: str, state: str) -> bytes:
        """The content of a report; a link that took its place is not followed."""
        descriptor = os.open(self.file(name, state), os.O_RDONLY | _NO_LINKS)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{name}.{state} is not a regular file")
            return file.read()

    def delete(self, name: str, state: str) -> None:
        self.file(name, state).unlink(missing_ok=True)
        self._info_file(name).unlink(missing_ok=True)

    # -- side files ----------------------------------------------------------------------------------------------------

    def priority(self, name: str) -> int:
        """From `NAME.meta.json`, or from a name such as `NAME.p1.queued`; otherwise 5."""
        told = _read_json(self.path / f"{name}.meta.json").get("priority")
        if isinstance(told, int) and not isinstance(told, bool) and 1 <= told <= 10:
            return told
        found = _PRIORITY_IN_NAME.search(name)
        return int(found[1]) if found else DEFAULT_PRIORITY

    def _info_file(self, name: str) -> Path:
        return self.path / f"{name}.error.info"

    def info(self, name: str) -> ErrorInfo:
        told = _read_json(self._info_file(name))
        attempts = told.get("attempts")
        if isinstance(attempts, bool) or not isinstance(attempts, int) or not 0 <= attempts <= 1000:
            attempts = 0
        return ErrorInfo(
            str(told.get("error", "")), _time(told.get("timestamp")), attempts, bool(told.get("permanent"))
        )

    def write_info(self, name: str, info: ErrorInfo) -> None:
        at = info.at or datetime.now(UTC)
        told: dict[str, Any] = {"error": info.error, "timestamp": at.isoformat(), "attempts": info.attempts}
        if info.is_permanent:
            told["permanent"] = True
        scratch = self.path / f".{name}.error.info"
        scratch.write_text(json.dumps(told), encoding="utf-8")
        scratch.replace(self._info_file(name))


def wait_left(info: ErrorInfo, delay: timedelta) -> timedelta:
    """How long a failed report still waits for its next attempt: twice as long after each one."""
    if info.at is None or info.attempts < 1:
        return timedelta()
    whole: timedelta = delay * 2 ** min(info.attempts - 1, MAX_DOUBLINGS)
    return max(min(info.at + whole - datetime.now(UTC), whole), timedelta())


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_json(path: Path) -> dict[str, Any]:
    """A small JSON object; empty if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINKS)
        with os.fdopen(descriptor, "rb") as file:
            told = json.loads(file.read(MAX_SIDE_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
