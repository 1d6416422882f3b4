"""The reports that the stand-in has, one for each id, and what it counted."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

GRACE: Final = 0.02  # seconds: the clocks of two processes are not read at one instant


class Archive:
    """Reports by id, in memory and, if there is a folder, in a file each, from which a restarted stand-in reads them.

    uploads     how often each report was stored: more than once, if an answer was lost
    order       ids in the order in which the reports came first
    too_early   submissions of a report before the time that a Retry-After had asked for
    rejected    submissions that were no valid report
    unauthorized  requests with a wrong token
    most_at_once  the highest number of submissions at one time
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.reports: dict[str, dict[str, Any]] = {}
        self.uploads: Counter[str] = Counter()
        self.order: list[str] = []
        self.too_early = 0
        self.rejected = 0
        self.unauthorized = 0
        self.most_at_once = 0
        self._at_once = 0
        self._not_before: dict[str, float] = {}
        self._lock = threading.Lock()
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._load(self._folder)

    def store(self, report: dict[str, Any]) -> None:
        """Store a report, in the place of the one with the same id."""
        report_id = report["id"].lower()
        with self._lock:
            if self._folder is not None:
                _write(self._folder / f"{report_id}.json", report)
            self.reports[report_id] = report
            self.uploads[report_id] += 1
            if self.uploads[report_id] == 1:
                self.order.append(report_id)

    def get(self, report_id: str) -> dict[str, Any] | None:
        return self.reports.get(report_id.lower())

    def begin(self, report_id: str) -> None:
        """A submission of this report has arrived."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            if time.monotonic() < self._not_before.pop(report_id.lower(), 0.0) - GRACE:
                self.too_early += 1

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1

    def ask_to_wait(self, report_id: str, seconds: float) -> None:
        """The report was answered by a Retry-After of so many seconds."""
        with self._lock:
            self._not_before[report_id.lower()] = time.monotonic() + seconds

    def count_rejected(self) -> None:
        with self._lock:
            self.rejected += 1

    def count_unauthorized(self) -> None:
        with self._lock:
            self.unauthorized += 1

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {
                "reports": len(self.reports),
                "uploads": sum(self.uploads.values()),
                "uploaded_again": sum(count > 1 for count in self.uploads.values()),
                "too_early": self.too_early,
                "rejected": self.rejected,
                "unauthorized": self.unauthorized,
                "most_at_once": self.most_at_once,
            }

    def _load(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
            self.reports[path.stem] = json.loads(path.read_text(encoding="utf-8"))
            self.order.append(path.stem)
            self.uploads[path.stem] = 1


def _write(path: Path, report: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(report), encoding="utf-8")
    new.replace(path)
