"""Resources: their gauges, and who waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daybreak.core.resource_gauge import Gauge
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.gauge_rows import gauge_of, values_of
from daybreak.stores.postgres.statement_transaction import StatementTransaction


class ResourceTables(StatementTransaction):
    """The table `gauge`. Only a transaction that has the resource lock reads or changes it."""

    def lock_resources(self) -> None:
        """Take the lock on all resources until the end of the transaction. It must be the transaction's first lock."""
        time = self.value(self.sql.lock_gauges)
        if not self._is_given:
            self._advance_time(time)
        self._has_resource_lock = True

    def read_gauges(self, names: Sequence[str]) -> Mapping[str, Gauge]:
        if not self._has_resource_lock:
            raise faults.NeedsResourceLock
        gauges = {name: Gauge() for name in names}
        for name, *values in self.rows(self.sql.load_gauges, (Texts(names),)):
            gauges[name], self._waiting[name] = gauge_of(*values)
        return gauges

    def write_gauges(self, gauges: Mapping[str, Gauge]) -> None:
        changed = {**gauges, **{name: self.gauges[name] for name in self._recounted}}
        self._recounted.clear()
        columns = zip(*(values_of(gauge, self._waiting[name]) for name, gauge in changed.items()), strict=True)
        self.run(self.sql.put_gauges, (Texts(list(changed)), *(Bigints(column) for column in columns)))

    def gauges_to_look_at(self, limit: int) -> list[str]:
        return [name for (name,) in self.rows(self.sql.gauges_to_look_at, (self.steady, limit))]

    def waiting(self, cause: str, limit: int) -> int:  # noqa: ARG002 - the count is kept
        self.gauges.load((cause,))
        return self._waiting[cause]

    def waiting_by_lane(self, cause: str, limit: int) -> list[list[int]]:
        lanes: dict[int, list[int]] = {}
        for lane, seq in self.rows(self.sql.waiting_in_lanes, {"cause": cause, "limit": limit}):
            lanes.setdefault(lane, []).append(seq)
        return [lanes[lane] for lane in sorted(lanes, key=self.name_of)]

    def prepare_resources(self, resources: Sequence[str], *, is_bounded: bool, has_holders: bool) -> None:
        if self._has_resource_lock:
            self.gauges.load(resources)
        elif has_holders or (is_bounded and self.value(self.sql.has_max_waiting, (Texts(resources),))):
            raise faults.NeedsResourceLock

    def max_waiting(self, resource: str) -> int | None:
        # Without the lock, no resource of the new jobs has such a limit: see prepare_resources.
        return super().max_waiting(resource) if self._has_resource_lock else None
