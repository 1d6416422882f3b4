"""What a process caches of the file between transactions; valid until another connection commits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apsw

from daybreak.core.model import QueueSettings
from daybreak.core.resource_gauge import Gauge
from daybreak.stores.kernel.row import LaneName
from daybreak.stores.kernel.transaction import Cell
from daybreak.stores.sqlite.rows import Counters
from daybreak.stores.sqlite.statements import sql


class StoreCache:
    """Lanes, settings, counts, gauges and the latest numbers. `last_id` is no smaller than any id in the file: ids
    rise, so most new ids need no query."""

    def __init__(self) -> None:
        self.lanes: dict[LaneName, int] = {}
        self.names: dict[int, LaneName] = {}
        self.of_queue: dict[str, list[tuple[str, int, int]]] = {}
        self.settings: dict[str, QueueSettings] = {}
        self.revision: int | None = -1  # of the settings
        self.last_seq: int | None = None
        self.last_id: str | None = None
        self.last_pos: int | None = None
        self.tallies: Counter[Cell] | None = None
        self.totals: dict[tuple[LaneName, int], Counters] = {}
        self.gauges: dict[str, Gauge] = {}

    def refreshed(self, db: apsw.Connection) -> StoreCache:
        """The part of this cache that is still valid after a commit of another connection."""
        cache = StoreCache()
        found: Any = db.execute(sql.read_state).fetchone()
        cache.last_seq, cache.last_id, cache.last_pos, lanes, cache.revision = found
        if cache.revision == self.revision:
            cache.settings = self.settings
        if lanes == len(self.names):
            cache.lanes, cache.names, cache.of_queue = self.lanes, self.names, self.of_queue
        return cache

    def add_lane(self, number: int, name: LaneName) -> None:
        self.lanes[name] = number
        self.names[number] = name
        self.of_queue.setdefault(name[0], []).append((name[1], name[2], number))
