"""Retention: how long a finished job is kept."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.model import Options, State


def keep_for(options: Options, state: State) -> timedelta | None:
    """How long a job in this final state is kept; None is forever. Failed jobs are the dead letters: they are kept
    longer by default."""
    return options.keep_failed if state is State.FAILED else options.keep_completed
