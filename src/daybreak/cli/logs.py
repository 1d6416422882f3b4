"""Log lines of a worker on stderr, with escape sequences made harmless."""

from __future__ import annotations

import logging
from typing import Final

from daybreak.core.text import safe

LINE_FORMAT: Final = "{asctime} {levelname:<7} {message}"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


class SafeFormatter(logging.Formatter):
    """Formats log records whose text may come from jobs and cannot be trusted. Control characters are escaped, and
    every line of a record but the first is indented, so that no line can pass for a record of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record).rstrip("\n"), lines=True).replace("\n", "\n    ")


def to_stderr(*, verbose: bool = False) -> None:
    """Print Daybreak's log lines on stderr, unless the user's code has already configured logging."""
    logger = logging.getLogger("daybreak")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter(LINE_FORMAT, TIME_FORMAT, style="{"))
    logger.addHandler(handler)
