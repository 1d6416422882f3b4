"""What one operation changed, as after-images: the records of the journal."""

from __future__ import annotations

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import Record
from daybreak.core.resource_gauge import Gauge
from daybreak.stores.directory.entry import Entry
from daybreak.stores.kernel.row import LaneName
from daybreak.stores.memory.book import Key


class JobImage(Struct, frozen=True):
    """A job after an operation. Its arguments never change: `args` is None except in the first image, and the entry
    itself holds none."""

    entry: Entry
    stem: str
    args: bytes | None = None


class TotalImage(Struct, frozen=True):
    """The counters of one lane and priority."""

    lane: LaneName
    priority: int
    of: dict[str, tuple[int, int]]


class Change(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One operation. `number` counts the operations of the store. None in a map means that the entry was deleted.

    `wall` and `steady` are the times of the operation. `beats` are plain heartbeats: the end and the length of leases,
    by seq. `gone` are deleted jobs, by seq, with their stems. `feed` are the new events, each with its steady time."""

    number: int
    wall: int
    steady: int
    seq: int
    revision: int
    feed_start: int
    feed: list[tuple[int, Event]] = []
    jobs: list[JobImage] = []
    gone: dict[int, str] = {}
    beats: dict[int, tuple[int, int]] = {}
    keys: dict[str, Key | None] = {}
    uniques: dict[str, int | None] = {}
    records: list[tuple[str, str, Record | None]] = []
    gauges: dict[str, Gauge] = {}
    totals: list[TotalImage] = []


class Rest(Struct, kw_only=True):
    """Everything that is not in the files of jobs, as of the operation `number`: the file `state.json`.

    `layout` names the layout in which the files of this folder are written."""

    version: int = 1
    layout: str = "daybreak"
    number: int = 0
    wall: int = 0
    steady: int = 0
    seq: int = 0
    revision: int = 0
    feed_start: int = 0
    feed: list[tuple[int, Event]] = []
    keys: dict[str, Key] = {}
    uniques: dict[str, int] = {}
    records: list[Record] = []
    gauges: dict[str, Gauge] = {}
    totals: list[TotalImage] = []
