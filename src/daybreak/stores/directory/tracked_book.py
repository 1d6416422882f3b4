"""The data of the memory store, which also notes what each operation changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from daybreak.core.model import Record
from daybreak.core.resource_gauge import Gauge
from daybreak.stores.directory.changes import Change, JobImage, TotalImage
from daybreak.stores.directory.entry import Entry, entry_of
from daybreak.stores.kernel.port import HeldLease
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.kernel.totals import Counter
from daybreak.stores.memory.book import Book, Key
from daybreak.stores.memory.transaction import MemoryTransaction

K = TypeVar("K")
V = TypeVar("V")


class Now(NamedTuple):
    """The store's wall and steady time, in microseconds."""

    wall: int
    steady: int


class TouchedDict(dict[K, V]):
    """A dict that notes which keys were set or deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[K] = set()

    def __setitem__(self, key: K, value: V) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self.touched.add(key)
        super().__delitem__(key)

    def pop(self, key: K, *default: V) -> V:  # type: ignore[override]
        self.touched.add(key)
        return super().pop(key, *default)


class TrackedBook(Book):
    """Notes the jobs, keys, names, records, resources and counters that are written; `change` gives the after-images of
    all that changed since the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.own_jobs: TouchedDict[int, Row] = TouchedDict()
        self.own_keys: TouchedDict[str, Key] = TouchedDict()
        self.own_uniques: TouchedDict[str, int] = TouchedDict()
        self.own_records: TouchedDict[tuple[str, str], Record] = TouchedDict()
        self.own_gauges: TouchedDict[str, Gauge] = TouchedDict()
        self.own_totals: TouchedDict[tuple[LaneName, int], dict[str, Counter]] = TouchedDict()
        self.jobs, self.keys, self.uniques = self.own_jobs, self.own_keys, self.own_uniques
        self.records, self.gauges, self.totals = self.own_records, self.own_gauges, self.own_totals
        self.beaten: set[int] = set()  # jobs of which only the end of the lease has changed
        self._fed_to = 0

    def begin(self, now: Now) -> TrackedTransaction:
        """Begin a transaction on this data."""
        return TrackedTransaction(self, now.wall, now.steady)

    def entry(self, seq: int) -> Entry:
        """What the folder keeps of a job."""
        row = self.jobs[seq]
        return entry_of(row, self.keys_of_job.get(row.id, ()))

    # -- after-images --------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> set[int]:
        """The jobs that were written."""
        return {seq for seq in self.own_jobs.touched if seq in self.jobs}

    @property
    def gone(self) -> set[int]:
        """The jobs that were deleted."""
        return {seq for seq in self.own_jobs.touched if seq not in self.jobs}

    @property
    def is_changed(self) -> bool:
        """Whether more was changed than the ends of leases."""
        is_fed = self.feed_start + len(self.feed) != self._fed_to
        return is_fed or any(one.touched for one in (self.own_jobs, *self._others()))

    def _others(self) -> tuple[TouchedDict, ...]:  # type: ignore[type-arg]
        return self.own_keys, self.own_uniques, self.own_records, self.own_gauges, self.own_totals

    def forget_changes(self) -> None:
        """Count everything as written."""
        for one in (self.own_jobs, *self._others()):
            one.touched.clear()
        self.beaten.clear()
        self._fed_to = self.feed_start + len(self.feed)

    def change(self, number: int, now: Now, stems: dict[int, str], placed: set[int]) -> Change:
        """The after-images of what was changed. `stems` are those of the changed and deleted jobs; those in `placed`
        have their arguments on disk."""
        return Change(
            number=number,
            wall=now.wall,
            steady=now.steady,
            seq=self.seq,
            revision=self.revision,
            feed_start=self.feed_start,
            feed=self.feed[max(self._fed_to - self.feed_start, 0) :],
            jobs=[image_of(self.entry(seq), stems[seq], with_args=seq not in placed) for seq in sorted(self.changed)],
            gone={seq: stems[seq] for seq in sorted(self.gone) if seq in stems},
            beats={seq: (self.jobs[seq].until or 0, self.jobs[seq].term) for seq in sorted(self.beaten)},
            keys={name: self.keys.get(name) for name in self.own_keys.touched},
            uniques={name: self.uniques.get(name) for name in self.own_uniques.touched},
            records=[(*name, self.records.get(name)) for name in self.own_records.touched],
            gauges={name: self.gauges[name] for name in self.own_gauges.touched},
            totals=[
                TotalImage(lane, priority, self.totals[lane, priority]) for lane, priority in self.own_totals.touched
            ],
        )


class TrackedTransaction(MemoryTransaction):
    """One transaction. A plain heartbeat is noted as such: it need not be durable."""

    book: TrackedBook

    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        before = set(self.book.own_jobs.touched)
        super().write_leases(leases)
        for lease in leases:
            is_plain = (lease.alone, lease.ahead, lease.checkpoint, lease.progress) == (None,) * 4
            if is_plain and lease.seq not in before:
                self.book.own_jobs.touched.discard(lease.seq)
                self.book.beaten.add(lease.seq)


def image_of(entry: Entry, stem: str, *, with_args: bool) -> JobImage:
    """The after-image of a job."""
    stripped = replace(entry, spec=replace(entry.spec, args=b""))
    return JobImage(stripped, stem, entry.spec.args if with_args else None)
