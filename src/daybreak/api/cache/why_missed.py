"""Why a job found no known result: the parts of its key that differ from those of the nearest entry."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from msgspec import Struct

from daybreak import values
from daybreak.client.client import Client
from daybreak.core.events import Event
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import Job, State
from daybreak.core.text import counted
from daybreak.store.protocol import CacheEntry, CacheQuery
from daybreak.tasks.cache_key import ARGUMENT, OTHERS, SALT, SOURCE, VARIABLE, VERSION

COMPARED: Final = 2000  # the most recently used entries of the task, of which the nearest is found
PAGE: Final = 500
EARLIER: Final = 200  # the most recent completed jobs of the task, among which one may have computed the same
VALUE_CHARS: Final = 60

Kind = Literal["argument", "source", "version", "environment", "salt", "others"]
Outcome = Literal["uncached", "cached", "followed", "following", "computed", "waiting"]


class Difference(Struct, frozen=True, kw_only=True):
    """One part that differs. `name` is that of the argument, the variable or the helper. `before` is its value in the
    nearest entry and `now` that of the job, as far as they can still be read; secrets are ***."""

    kind: Kind
    name: str = ""
    before: str | None = None
    now: str | None = None

    @property
    def text(self) -> str:
        """The difference in words."""
        values_ = "" if self.before is None or self.now is None else f": {self.before} before, {self.now} now"
        if values_ and self.before == self.now:
            beyond = (
                "beyond what is shown of it" if str(self.now).endswith("…") else "in a default or a value of an enum"
            )
            values_ = f", {beyond}: {self.now}"
        match self.kind:
            case "argument":
                return f"the argument {self.name!r}{values_}"
            case "source":
                return f"the code of the task{values_}"
            case "version":
                return f"the version{values_}"
            case "environment":
                return f"the environment {self.name!r}"
            case "salt":
                return f"the salt {self.name!r}"
            case _:
                return "arguments beyond those that are kept by name"


class CacheWhy(Struct, frozen=True, kw_only=True):
    """What the cache did for a job. A job that had to be computed is compared with the `nearest` known result of its
    task, one that was there before it if possible: `differences` are the parts of the key that differ."""

    job: str
    task: str
    flight: str | None
    outcome: Outcome
    cached_from: str | None = None
    nearest: CacheEntry | None = None
    differences: tuple[Difference, ...] = ()
    text: str = ""


async def cache_why(client: Client, job_id: str) -> CacheWhy:
    """What the cache did for a job, and if it had to be computed, what differs. Raises JobNotFound."""
    job = await client.get(job_id)
    outcome = _outcome(job, await client.history(job_id))
    found = CacheWhy(
        job=job.id, task=job.spec.task, flight=job.spec.flight, outcome=outcome, cached_from=job.cached_from
    )
    match outcome:
        case "uncached":
            return _told(
                found,
                "it is not cached: its task has no cache, or it was submitted with cache=False, by a schedule or by a "
                "saga",
            )
        case "cached":
            return _told(found, f"its result was known: it is that of job {job.cached_from}")
        case "followed":
            return _told(found, f"it waited for job {job.cached_from}, which computed the same, and has its result")
        case "following":
            return _told(found, "it waits for another job that computes the same")
    nearest = await _nearest(client, job)
    if (nearest is None or nearest.flight != job.spec.flight) and (earlier := await _earlier(client, job)):
        return _told(
            found,
            f"job {earlier} computed the same before, but its result was no longer kept: it was dropped, was to be "
            "computed anew, was too old, or made room for others",
        )
    if nearest is None:
        return _told(found, f"nothing else is known of the task {job.spec.task!r}")
    differences = await _differences(client, job, nearest)
    return CacheWhy(
        job=job.id,
        task=job.spec.task,
        flight=job.spec.flight,
        outcome=outcome,
        nearest=nearest,
        differences=differences,
        text=_text(nearest, differences),
    )


def _told(found: CacheWhy, text: str) -> CacheWhy:
    return CacheWhy(
        job=found.job, task=found.task, flight=found.flight, outcome=found.outcome, cached_from=found.cached_from,
        text=text,
    )  # fmt: skip


def _outcome(job: Job, history: list[Event]) -> Outcome:
    if job.spec.flight is None:
        return "uncached"
    if job.cached_from is not None:
        followed = any(event.kind == "blocked" and is_flight_cause(event.note) for event in history)
        return "followed" if followed else "cached"
    if job.state is State.BLOCKED and is_flight_cause(job.blocked_on):
        return "following"
    return "computed" if job.attempt else "waiting"


async def _nearest(client: Client, job: Job) -> CacheEntry | None:
    """The entry of the task with the fewest parts that differ; of several, one that was there before the job, then the
    most recently used. Results of the job itself, and later ones of its flight, say nothing."""
    best: tuple[int, bool, CacheEntry] | None = None
    cursor, read = None, 0
    while read < COMPARED:
        page = await client.store.cached(CacheQuery(task=job.spec.task, limit=PAGE, cursor=cursor))
        read += len(page.entries)
        for entry in page.entries:
            is_later = entry.created_at > job.created_at
            if entry.job == job.id or (is_later and entry.flight == job.spec.flight):
                continue
            rank = (len(_changed(entry.parts, job.spec.flight_parts)), is_later, entry)
            if best is None or rank[:2] < best[:2]:
                best = rank
        if (cursor := page.cursor) is None:
            break
    return None if best is None else best[2]


async def _earlier(client: Client, job: Job) -> str | None:
    """The latest job that computed the same before this one was submitted, among the recent ones of its task."""
    page = await client.find(task=job.spec.task, state=State.COMPLETED, limit=EARLIER)
    for other in page.jobs:
        is_before = other.finished_at is not None and other.finished_at <= job.created_at
        if is_before and other.spec.flight == job.spec.flight and other.id != job.id and other.cached_from is None:
            return other.id
    return None


def _changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]


async def _differences(client: Client, job: Job, nearest: CacheEntry) -> tuple[Difference, ...]:
    names = _changed(nearest.parts, job.spec.flight_parts)
    [other] = await client.store.get([nearest.job])
    before = {} if other is None else _arguments(other)
    now = _arguments(job)
    return tuple(_difference(name, nearest.parts, job.spec.flight_parts, before, now) for name in names)


def _difference(
    name: str, old: dict[str, str], new: dict[str, str], before: dict[str, str], now: dict[str, str]
) -> Difference:
    if name.startswith(ARGUMENT):
        argument = name.removeprefix(ARGUMENT)
        if not before:
            return Difference(kind="argument", name=argument)
        unset = "its default"
        return Difference(
            kind="argument", name=argument, before=before.get(argument, unset), now=now.get(argument, unset)
        )
    if name == VERSION:
        return Difference(kind="version", before=old.get(name), now=new.get(name))
    if name == SOURCE:
        pythons = {side.get(name, "").partition("-")[0] for side in (old, new)}
        if len(pythons) == 1 or "" in pythons:
            return Difference(kind="source")
        return Difference(
            kind="source", before=f"Python {old[name].partition('-')[0]}", now=f"Python {new[name].partition('-')[0]}"
        )
    if name.startswith(VARIABLE):
        return Difference(kind="environment", name=name.removeprefix(VARIABLE))
    if name.startswith(SALT):
        return Difference(kind="salt", name=name.removeprefix(SALT))
    return Difference(kind="others", name=OTHERS)


def _arguments(job: Job) -> dict[str, str]:
    """The arguments of a job as short texts, without secrets."""
    shown = values.shown(job.spec.args)
    return {name: _short(value) for name, value in shown.items()} if isinstance(shown, dict) else {}


def _short(value: Any) -> str:
    if isinstance(value, dict) and {"sha256", "name"} <= value.keys():
        return f"{value['name']} sha256:{str(value['sha256'])[:12]}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_CHARS else f"{text[: VALUE_CHARS - 1]}…"


def _text(nearest: CacheEntry, differences: tuple[Difference, ...]) -> str:
    if not differences:
        return (
            f"the result of job {nearest.job} has the same key: it was not there, or was not to be used, when this job "
            "was submitted"
        )
    if len(differences) == 1:
        return f"it differs from the nearest known result, of job {nearest.job}, in {differences[0].text}"
    parts = "; ".join(one.text for one in differences)
    return (
        f"it differs from the nearest known result, of job {nearest.job}, in {counted(len(differences), 'part')}: "
        f"{parts}"
    )
