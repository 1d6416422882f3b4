"""Flights: jobs that would compute the same result, of which one runs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from daybreak.core.model import Caching, JobSpec
from daybreak.core.units import span

FLIGHT_CAUSE_PREFIX: Final = "flight "  # `blocked_on` of a job that waits for the result of its flight
FOLLOWERS_PER_COMMIT: Final = 200  # followers that one transaction completes
DROPPED_PER_COMMIT: Final = 500  # entries that one transaction drops from the cache
FIRST_TO_DROP: Final = 8  # of these, how many are read at first
MAX_ENTRIES_PER_TASK: Final = 100_000

_CONTENT_MARK: Final = b'{"$":["file'
_CONTENTS: Final = re.compile(rb'\{"\$":\["file[^"]*",\{"sha256":"([0-9a-f]{64})","size":(\d{1,15})[,}]')


def flight_cause(flight: str) -> str:
    """What a job is blocked on that waits for the result of this flight."""
    return FLIGHT_CAUSE_PREFIX + flight


def is_flight_cause(cause: str | None) -> bool:
    """Whether a job that is blocked on this waits for the result of its flight."""
    return cause is not None and cause.startswith(FLIGHT_CAUSE_PREFIX)


def flight_of(spec: JobSpec) -> str | None:
    """The flight of a job, if its results are kept. A job that its holder runs computes no result."""
    return None if spec.options.cache is None or spec.holder is not None else spec.flight


def until_of(caching: Caching, steady: int) -> int | None:
    """Until when a result that is known from now on may be used; None is for as long as there is room."""
    ttl: timedelta | None = caching.ttl
    return None if ttl is None else steady + span(ttl)


def has_room(caching: Caching | None, entries: int, size: int) -> bool:
    """Whether a task may keep so many results of so many bytes together."""
    limit = None if caching is None else caching.size
    return entries <= MAX_ENTRIES_PER_TASK and (limit is None or size <= limit)


def room_of(result: bytes) -> int:
    """How many bytes a result takes: its own, and those of the contents beside the jobs to which it refers."""
    if _CONTENT_MARK not in result:
        return len(result)
    return len(result) + sum({digest: int(size) for digest, size in _CONTENTS.findall(result)}.values())


def result_note(job: str) -> str:
    """The note of the event of a job that is completed with the result of another one."""
    return f"result of {job}"
