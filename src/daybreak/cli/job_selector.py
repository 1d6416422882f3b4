"""Finds the job that a word on the command line means: an id, a part of an id, `last`, or `last~2`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from daybreak.cli.errors import NotFound
from daybreak.cli.output import note
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import Job
from daybreak.core.text import counted, number, safe

MAX_SCANNED: Final = 10_000  # jobs that are read, the newest first, to find a part of an id
MIN_PART: Final = 4  # characters
_PAGE: Final = 1000
_MAX_NAMED: Final = 5  # candidates in an error
_ID_LENGTH: Final = 36
_LAST: Final = re.compile(r"last(?:~(\d{1,9}))?")
# The dashboard shortens ids to their beginning and end, with an ellipsis between them.
_PART: Final = re.compile(r"([0-9a-f-]*)(?:…|\.\.\.)([0-9a-f-]*)|([0-9a-f-]+)")


async def job_id_of(client: Client, word: str) -> str:
    """The id that the word means. A full id is returned as it is, without a call."""
    return (await job_ids_of(client, (word,)))[0]


async def job_ids_of(client: Client, words: Sequence[str], *, announce: bool = False) -> tuple[str, ...]:
    """The ids that the words mean. All are found before anything is returned, so that a word that means no job, or
    several, changes nothing. With `announce`, a note says which job each selector meant."""
    selectors = [word for word in dict.fromkeys(words) if len(word) < _ID_LENGTH]
    if not selectors:
        return tuple(words)
    places = {word: position_of(word) for word in selectors}
    parts = {word: _part(word) for word, place in places.items() if place is None}
    furthest = max((place for place in places.values() if place is not None), default=-1)
    newest, is_all = await _newest(client, MAX_SCANNED if parts else min(furthest + 1, MAX_SCANNED))
    found: dict[str, str] = {}
    for word, place in places.items():
        if place is None:
            job = _only(word, [job for job in newest if _matches(job.id, parts[word])], is_all=is_all)
        elif place < len(newest):
            job = newest[place]
        else:
            raise NotFound(_too_far(word, len(newest), is_all=is_all))
        found[word] = job.id
        if announce:
            note(f"{safe(word)} is the job {job.id} of {safe(job.spec.task)!r}, {job.state.value}")
    return tuple(found.get(word, word) for word in words)


def position_of(word: str) -> int | None:
    """0 for `last`, 2 for `last~2`; None for any other word."""
    found = _LAST.fullmatch(word)
    return None if found is None else int(found[1] or 0)


def _part(word: str) -> tuple[str, str] | str:
    """The characters of an id, in lower case; or its beginning and its end, if the word has an ellipsis."""
    found = _PART.fullmatch(word.lower())
    if found is None or sum(len(part or "") for part in found.groups()) < MIN_PART:
        raise NotFound(
            f"{word!r} is no job id; write an id, at least {MIN_PART} characters of its beginning or its end, "
            "or last for the newest job and last~2 for the third newest"
        )
    return found[3] or (found[1], found[2])


def _matches(job_id: str, part: tuple[str, str] | str) -> bool:
    if isinstance(part, str):
        return job_id.startswith(part) or job_id.endswith(part)
    beginning, end = part
    return job_id.startswith(beginning) and job_id.endswith(end)


async def _newest(client: Client, limit: int) -> tuple[list[Job], bool]:
    """The newest jobs, the newest first, and whether these are all jobs of the store."""
    found: list[Job] = []
    cursor = None
    while len(found) < limit:
        page = await client.find(limit=min(_PAGE, limit - len(found)), cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found, True
    return found, False


def _only(word: str, candidates: list[Job], *, is_all: bool) -> Job:
    if not candidates:
        where = "no job of this store" if is_all else f"none of the newest {number(MAX_SCANNED)} jobs"
        hint = "" if is_all else "; older jobs were not searched, so write the id of an older job in full"
        raise NotFound(f"no job {word!r}: {where} has an id that begins or ends so{hint}")
    if len(candidates) > 1:
        named = [f"{job.id} ({safe(job.spec.task)}, {job.state.value})" for job in candidates[:_MAX_NAMED]]
        more = len(candidates) - _MAX_NAMED
        named += [f"and {counted(more, 'other')}"] if more > 0 else []
        raise BadInput(
            f"{word!r} may mean {counted(len(candidates), 'job')}; write more characters, for example from the end "
            "of the id:\n  " + "\n  ".join(named)
        )
    return candidates[0]


def _too_far(word: str, n: int, *, is_all: bool) -> str:
    if is_all:
        return f"no job {word!r}: this store has {counted(n, 'job') if n else 'no jobs'}"
    return f"no job {word!r}: only the newest {number(MAX_SCANNED)} jobs can be counted so; write the id"
