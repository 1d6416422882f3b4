"""What a worker says while it runs: log lines on stderr, safe for a terminal."""

from __future__ import annotations

import logging
from typing import Final

from daybreak.cli.text import safe

LINE: Final = "{asctime} {levelname:<7} {message}"
TIME: Final = "%Y-%m-%d %H:%M:%S"


class SafeFormatter(logging.Formatter):
    """Errors of jobs are words of strangers: what would steer a terminal is spelt out, and every line of a record but
    the first is indented, so that none can pass for a record of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record).rstrip("\n"), lines=True).replace("\n", "\n    ")


def to_stderr(*, verbose: bool = False) -> None:
    """Show our own log lines, unless the user's code has set up logging already."""
    ours = logging.getLogger("daybreak")
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    if ours.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter(LINE, TIME, style="{"))
    ours.addHandler(handler)
