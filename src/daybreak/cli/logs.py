"""What a worker says while it runs: log lines on stderr, safe for a terminal."""

from __future__ import annotations

import logging

from daybreak.cli.text import safe


class SafeFormatter(logging.Formatter):
    """Errors of jobs are words of strangers: what would steer a terminal is spelt out."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), lines=True)


def to_stderr(*, verbose: bool = False) -> None:
    """Show our own log lines, unless the user's code has set up logging already."""
    ours = logging.getLogger("daybreak")
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    if ours.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("{asctime} {levelname:<7} {message}", "%Y-%m-%d %H:%M:%S", style="{"))
    ours.addHandler(handler)
