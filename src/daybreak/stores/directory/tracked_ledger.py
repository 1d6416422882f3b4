"""The ledger of the memory store, which also notes what each operation changes."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from daybreak.core.events import Event
from daybreak.core.model import Reason, Record, State
from daybreak.core.resource_gauge import Gauge
from daybreak.store.protocol import Beat, Extended
from daybreak.stores.directory.changes import Change, JobImage, TotalImage
from daybreak.stores.memory.book import Key, Now
from daybreak.stores.memory.counts import Counts
from daybreak.stores.memory.entry import Entry
from daybreak.stores.memory.ledger import Ledger
from daybreak.stores.memory.ready import Lane

_NOTHING = (None,) * 4
K = TypeVar("K")
V = TypeVar("V")


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


class TrackedLedger(Ledger):
    """Every small move notes the job, key, record, resource or counter that it changes; `change` gives the after-images
    of all that changed since the last one."""

    __slots__ = (
        "_beaten", "_cells", "_fed_to", "_gauged", "_own_keys", "_own_records", "_own_uniques", "_written_gauges",
        "changed", "gone",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._own_keys: TouchedDict[str, Key] = TouchedDict()
        self._own_uniques: TouchedDict[str, Entry] = TouchedDict()
        self._own_records: TouchedDict[tuple[str, str], Record] = TouchedDict()
        self.keys, self.uniques, self.records = self._own_keys, self._own_uniques, self._own_records
        self.changed: dict[int, Entry] = {}
        self.gone: dict[int, Entry] = {}
        self._beaten: dict[int, Entry] = {}
        self._gauged: set[str] = set()
        self._written_gauges: dict[str, Gauge] = {}
        self._cells: set[tuple[Lane, int]] = set()
        self._fed_to = 0

    # -- the small moves -----------------------------------------------------------------------------------------------

    def _record_event(self, entry: Entry, event: Event, now: Now) -> None:
        super()._record_event(entry, event, now)
        self.changed[entry.seq] = entry

    def _enter(self, entry: Entry) -> None:
        super()._enter(entry)
        self.changed[entry.seq] = entry

    def _assign_key(self, key: str, digest: str, entry: Entry, at: int) -> None:
        super()._assign_key(key, digest, entry, at)
        self.changed[entry.seq] = entry

    def drop(self, entry: Entry, now: Now, *, keys_for: timedelta | None, lives_on: bool = False) -> None:
        super().drop(entry, now, keys_for=keys_for, lives_on=lives_on)
        self._own_keys.touched.update(entry.keys)
        self.gone[entry.seq] = entry

    def extend(self, beat: Beat, now: Now) -> Extended:
        answer = super().extend(beat, now)
        if answer.held:
            said = (beat.alone, beat.begun, beat.checkpoint, beat.progress)
            noted = self._beaten if said == _NOTHING else self.changed
            noted[beat.seq] = self.jobs[beat.seq]
        return answer

    def gauge(self, resource: str) -> Gauge:
        self._gauged.add(resource)
        return super().gauge(resource)

    def _counts(self, entry: Entry) -> Counts:
        self._cells.add((entry.lane, entry.priority))
        return super()._counts(entry)

    def place(self, entry: Entry) -> None:
        """Enter a job that was loaded."""
        super()._enter(entry)

    def end(self, entry: Entry, state: State, reason: Reason | None, now: Now, *, by: str, note: str) -> None:
        """End a waiting job without an outcome."""
        self._finish(entry, state, now, by=by, reason=reason, note=note)

    # -- after-images --------------------------------------------------------------------------------------------------

    def forget_changes(self) -> None:
        """Count everything as written."""
        self.forget_links()
        for touched in (self._gauged, self._cells, self.changed, self.gone, self._beaten):
            touched.clear()
        self._fed_to = self.feed_start + len(self.feed)

    def forget_links(self) -> None:
        """Count keys, unique names and records as written."""
        for touched in (self._own_keys.touched, self._own_uniques.touched, self._own_records.touched):
            touched.clear()

    def note_gauges(self) -> None:
        """Count the resources as written."""
        self._written_gauges = {name: copy.copy(gauge) for name, gauge in self.gauges.items()}

    @property
    def is_changed(self) -> bool:
        """Whether more was changed than the ends of leases."""
        touched = self._own_keys.touched or self._own_uniques.touched or self._own_records.touched or self._cells
        fed_to = self.feed_start + len(self.feed)
        return bool(self.changed or self.gone or touched or fed_to != self._fed_to or self._changed_gauges())

    @property
    def is_beaten(self) -> bool:
        """Whether leases were extended."""
        return bool(self._beaten)

    def _changed_gauges(self) -> dict[str, Gauge]:
        present = {name: self.gauges[name] for name in self._gauged if name in self.gauges}
        return {name: gauge for name, gauge in present.items() if gauge != self._written_gauges.get(name)}

    def change(self, number: int, now: Now, stems: dict[int, str], placed: set[int]) -> Change:
        """The after-images of what was changed. `stems` are those of the changed jobs; those in `placed` have their
        arguments on disk."""
        gauges = {name: copy.copy(gauge) for name, gauge in self._changed_gauges().items()}
        self._written_gauges.update(gauges)
        return Change(
            number=number,
            wall=now.wall,
            steady=now.steady,
            seq=self.seq,
            revision=self.revision,
            feed_start=self.feed_start,
            feed=self.feed[max(self._fed_to - self.feed_start, 0) :],
            jobs=[
                image_of(entry, stems[seq], with_args=seq not in placed)
                for seq, entry in self.changed.items()
                if seq not in self.gone
            ],
            gone={seq: stems[seq] for seq in self.gone if seq in stems},
            beats={seq: (entry.until or 0, entry.term) for seq, entry in self._beaten.items()},
            keys={name: self.keys.get(name) for name in self._own_keys.touched},
            uniques={name: _seq_of(self.uniques.get(name)) for name in self._own_uniques.touched},
            records=[(*name, self.records.get(name)) for name in self._own_records.touched],
            gauges=gauges,
            totals=[TotalImage(lane, priority, self.totals[lane, priority].of) for lane, priority in self._cells
                    if (lane, priority) in self.totals],
        )  # fmt: skip


def image_of(entry: Entry, stem: str, *, with_args: bool) -> JobImage:
    stripped = replace(entry, spec=replace(entry.spec, args=b""))
    return JobImage(stripped, stem, entry.spec.args if with_args else None)


def _seq_of(entry: Entry | None) -> int | None:
    return None if entry is None else entry.seq
