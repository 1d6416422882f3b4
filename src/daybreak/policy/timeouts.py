"""How long an attempt may run."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.model import Options
from daybreak.units import LONGEST

LEVELS: Final = 5


def limit_for(options: Options, timeouts: int) -> timedelta | None:
    """The execution limit of the next attempt: the base, longer by `escalate` for each attempt that timed out, at most
    five times over."""
    if options.timeout is None:
        return None
    longer = min(options.escalate ** min(timeouts, LEVELS), max(1.0, LONGEST / options.timeout))
    return options.timeout * longer
