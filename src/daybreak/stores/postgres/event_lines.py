"""Events as lines of JSON, without the job's id and with times in microseconds. This module is the format of histories.

A line is {"n":..,"at":.. followed by the tail, which is written before the number and the time are known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.events import Event, shorten_history
from daybreak.core.model import Reason, State
from daybreak.core.units import micros, moment

_NON_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
SEPARATOR: Final = "\x1f"  # between the ids in a row of the feed


class Tail(Struct, omit_defaults=True):
    kind: str
    by: str = ""
    state: State | None = None
    reason: Reason | None = None
    task: str | None = None
    queue: str | None = None
    priority: int | None = None
    attempt: int | None = None
    fence: int | None = None
    run_at: int | None = None
    progress: float | None = None
    note: str = ""
    error: str = ""
    run: str | None = None
    owner: str | None = None
    replaced_by: str | None = None
    deadline: int | None = None


class _Line(Tail, kw_only=True, omit_defaults=True):
    n: int
    at: int


_encode = msgspec.json.Encoder().encode
_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_decode_line = msgspec.json.Decoder(_Line).decode


def tail(event: Event) -> str:
    """An event without its number, time and job: `,"kind":...}`."""
    text = "," + _encode(
        Tail(
            event.kind, event.by, event.state, event.reason, event.task, event.queue, event.priority, event.attempt,
            event.fence, None if event.run_at is None else micros(event.run_at), event.progress, event.note,
            event.error, event.run, event.owner, event.replaced_by,
            None if event.deadline is None else micros(event.deadline),
        )
    ).decode()[1:]  # fmt: skip
    # A database that is not UTF8 cannot store every character, and an error message may contain any.
    return text if text.isascii() else _NON_ASCII.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def write(event: Event) -> str:
    return f'{{"n":{event.n},"at":{micros(event.at)}{tail(event)}'


def read(text: str | None, job: str) -> list[Event]:
    """The events of one job."""
    return [] if not text else [_event(line, job) for line in _decode_lines(text)]


def read_feed(text: str, runs: Iterable[int], ids: str, start: int, most: int) -> tuple[list[Event], int]:
    """Some events of one row of the feed, and how many it has. Each line is the event of a run of jobs."""
    jobs = ids.split(SEPARATOR)
    found: list[Event] = []
    at = 0
    for line, run in zip(_decode_lines(text), runs, strict=True):
        found += [_event(line, job) for job in jobs[max(start, at) : min(at + run, start + most)]]
        at += run
    return found, len(jobs)


def feed_row(events: Sequence[tuple[str, str]]) -> tuple[str, list[int], str]:
    """Events (job, line) as one row of the feed: ids, runs, lines."""
    groups = [(line, [job for job, _ in of]) for line, of in groupby(events, key=itemgetter(1))]
    return (
        SEPARATOR.join(job for job, _ in events),
        [len(jobs) for _, jobs in groups],
        "\n".join(line for line, _ in groups),
    )


def _event(line: _Line, job: str) -> Event:
    run_at: datetime | None = None if line.run_at is None else moment(line.run_at)
    return Event(
        n=line.n, kind=line.kind, job=job, at=moment(line.at), by=line.by, state=line.state, reason=line.reason,
        task=line.task, queue=line.queue, priority=line.priority, attempt=line.attempt, fence=line.fence, run_at=run_at,
        progress=line.progress, note=line.note, error=line.error, run=line.run, owner=line.owner,
        replaced_by=line.replaced_by, deadline=None if line.deadline is None else moment(line.deadline),
    )  # fmt: skip


_STARTED: Final = '"kind":"started"'  # cannot occur inside a text, where the quotes are escaped


def last_holder(history: str | None) -> str | None:
    """The worker of a job's latest attempt; None if it was never started. Decodes only the line that names it."""
    if not history or (at := history.rfind(_STARTED)) < 0:
        return None
    end = history.find("\n", at)
    return _decode_line(history[history.rfind("\n", 0, at) + 1 : len(history) if end < 0 else end]).by


def last_time(history: str | None) -> datetime | None:
    """The time of a job's latest event; None if none is stored. Decodes only the last line."""
    if not history:
        return None
    return moment(_decode_line(history[history.rfind("\n") + 1 :]).at)


def joined(history: str | None, line: str) -> str:
    return line if history is None else f"{history}\n{line}"


def shorten(first: Event, history: str) -> str:
    """The same history, shortened. `first` is the `submitted` event, which is usually not stored with it."""
    is_stored = read(history.partition("\n")[0], first.job)[0].n == 1
    return "\n".join(write(event) for event in shorten_history(whole(first, history))[0 if is_stored else 1 :])


def whole(first: Event, history: str | None) -> list[Event]:
    """All events. The history begins with the first event only if that has more than the row: for adopted jobs and for
    jobs whose expiry was shortened."""
    later = read(history, first.job)
    return later if later and later[0].n == 1 else [first, *later]
