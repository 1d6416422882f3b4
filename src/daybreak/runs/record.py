"""What the store keeps of a run: one record of kind `run`, of bounded size, changed only by compare-and-set.

A run that has not ended also has a mark, a small record of kind `active run`, so that the watch finds the runs to look
at without reading the records of all runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput, RecordChanged, RunNotFound, TooLarge
from daybreak.core.model import Put, Record
from daybreak.policy.admit import check_name
from daybreak.policy.runs import Accuracy, Look
from daybreak.store.protocol import Store

KIND: Final = "run"
MARK_KIND: Final = "active run"
NAME_LIMIT: Final = 150
NOTICE_LIMIT: Final = 10
PAST_LIMIT: Final = 20  # earlier epochs that the record still describes
CAS_ATTEMPTS: Final = 50
_EPOCH: Final = re.compile(r"#(\d{1,9})$")


class Column(Struct, frozen=True, omit_defaults=True):
    """A parameter that varies: its first values as people read them, and whether there are more."""

    name: str
    values: tuple[str, ...] = ()
    more: bool = False


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The points of a sweep in few bytes. `points` is a digest of the set of all points, in any order."""

    total: int
    points: str
    columns: tuple[Column, ...] = ()
    fixed: dict[str, str] = {}


class Figures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of a run that has ended, and how good the predictions of its end were."""

    counts: dict[str, int]
    reasons: dict[str, int] = {}
    finished_at: datetime
    accuracy: Accuracy | None = None


class RunNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody is to be told. It is written with the change that it tells of, and `sent_at` once it was sent or,
    with an `error`, given up. `taken_at` is when the process `taken_by` began to send it."""

    id: str
    change: str
    at: datetime
    text: str
    taken_at: datetime | None = None
    taken_by: str = ""
    sent_at: datetime | None = None
    error: str = ""


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mark of an active run: when the watch looks again, and what it predicted so far."""

    next_in: float = 0.0
    done: int = 0
    looks: tuple[Look, ...] = ()


class PastEpoch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier submission of the run, before `fresh`."""

    epoch: int
    task: str
    version: int
    code: str
    total: int
    started_at: datetime


class RunRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. `epoch` counts how often it was begun anew (`fresh`); the jobs of each epoch have their own label.

    `base` is the number of the first point: the points that an accepted change adds are numbered after the older ones.
    `submitted` is set once every point has a job. `suspending` is set while waiting jobs of a paused run have yet to be
    suspended. `forgiven` failures do not count for `stop_after`. `changes` counts the changes after which the run must
    be counted anew. `orphans` is set while unfinished jobs of points that a change took
    away have yet to be cancelled. `code` is the digest of the task's code at submission."""

    task: str
    version: int
    code: str
    design: Summary
    created_at: datetime
    started_at: datetime
    by: str = ""
    epoch: int = 1
    base: int = 0
    submitted: bool = False
    orphans: bool = False
    orphaned: int = 0
    queue: str = "default"
    priority: int = 5
    options: dict[str, str] = {}
    stop_after: int | None = None
    notify: tuple[str, ...] = ()
    paused: str = ""
    paused_at: datetime | None = None
    suspending: bool = False
    forgiven: int = 0
    changes: int = 0
    cancelled: bool = False
    deleting: bool = False
    figures: Figures | None = None
    notices: tuple[RunNotice, ...] = ()
    past: tuple[PastEpoch, ...] = ()


def label_of(name: str, epoch: int) -> str:
    """The run that the jobs of an epoch name. A new epoch has its own, so that counts never mix the two."""
    return name if epoch == 1 else f"{name}#{epoch}"


def split_label(label: str) -> tuple[str, int | None]:
    """The name and the epoch of a label; None if it names no epoch."""
    found = _EPOCH.search(label)
    return (label, None) if found is None else (label[: found.start()], int(found[1]))


def check_run_name(name: object) -> str:
    """The name of a run, or an error that says what is wrong with it."""
    if not isinstance(name, str):
        raise BadInput(f"the name of a run is a text, not {name!r:.60}: write name='overnight'")
    if not name.strip():
        raise BadInput("a run needs a name, by which it is found again: write name='overnight'")
    if len(name) > NAME_LIMIT:
        raise TooLarge(f"run: the name has {len(name)} characters, the limit is {NAME_LIMIT}")
    check_name("run", name)
    if name != name.strip():
        raise BadInput(f"run: the name {name!r} begins or ends with a space; write {name.strip()!r}")
    if _EPOCH.search(name):
        raise BadInput(f"run: the name {name!r} ends like the number of an epoch; leave the # out")
    return name


async def read_run(store: Store, name: str) -> tuple[RunRecord | None, int]:
    """The record of a run and its revision; None and 0 if there is no such run."""
    for record in await store.records(KIND, name):
        return msgspec.json.decode(record.value, type=RunRecord), record.revision
    return None, 0


async def write_run(store: Store, name: str, run: RunRecord, expect: int) -> bool:
    """Write the record if its revision is still the expected one. A run without a mark gets one: the watch removes it
    when there is nothing left to do."""
    put = Put(kind=KIND, name=name, value=msgspec.json.encode(run), expect=expect)
    [written, _] = await store.put([put, Put(kind=MARK_KIND, name=name, value=b"{}", expect=0)])
    return written is not None


async def change_run(store: Store, name: str, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
    """Change the record, again if another process changed it meanwhile. A change that changes nothing is not
    written."""
    for _ in range(CAS_ATTEMPTS):
        before, revision = await read_run(store, name)
        if before is None:
            raise RunNotFound(name, await run_names(store))
        after = change(before)
        if after == before or await write_run(store, name, after, revision):
            return after
    raise RecordChanged("run", name)


def read_mark(record: Record) -> Mark:
    """The mark in a record."""
    try:
        return msgspec.json.decode(record.value, type=Mark)
    except msgspec.MsgspecError:  # written by another version
        return Mark()


async def run_names(store: Store) -> list[str]:
    """The names of all runs, the newest first."""
    found = [(msgspec.json.decode(record.value, type=_Created), record.name) for record in await store.records(KIND)]
    return [name for _, name in sorted(found, key=lambda one: one[0].created_at, reverse=True)]


class _Created(Struct):
    created_at: datetime
