"""Writes what jobs print and log to the store: at most once a second, and before their outcome is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from daybreak.client.job_logs import (
    HEAD_BYTES,
    KEEP_RUNS,
    TAIL_BYTES,
    index_put,
    log_kind,
    part_name,
    surplus_parts,
)
from daybreak.core.errors import StoreError
from daybreak.core.model import Lease, Put
from daybreak.store.protocol import Store
from daybreak.system.ports import Clock

_log = logging.getLogger("daybreak.worker")

SAVE_INTERVAL: Final = 1.0  # seconds between two writes while jobs run
PART_BYTES: Final = 8 * 1024


class RunLog:
    """The output of one lease: its first 64 KiB, and a little more than its last 64 KiB."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.is_new = True
        self._parts: dict[int, bytearray] = {}  # by their start, in this order
        self._end = 0
        self._open: int | None = None
        self._changed: set[int] = set()
        self._saved: set[int] = set()
        self._dropped: set[int] = set()

    @property
    def is_changed(self) -> bool:
        return bool(self._changed or self._dropped)

    def add(self, data: bytes, skipped: int) -> None:
        if skipped:
            self._end += skipped
            self._open = None
        while data:
            if self._open is None or len(self._parts[self._open]) >= PART_BYTES:
                self._open = self._end
                self._parts[self._open] = bytearray()
            part = self._parts[self._open]
            piece = data[: PART_BYTES - len(part)]
            part += piece
            self._changed.add(self._open)
            self._end += len(piece)
            data = data[len(piece) :]
        self._drop_middle()

    def _drop_middle(self) -> None:
        tail = [start for start in self._parts if start >= HEAD_BYTES]
        for start in tail:
            if start + len(self._parts[start]) > self._end - TAIL_BYTES:
                break
            del self._parts[start]
            self._changed.discard(start)
            if start in self._saved:
                self._saved.discard(start)
                self._dropped.add(start)

    def take(self) -> tuple[list[Put], set[int], set[int]]:
        """The changes, and what to give to `restore` if they could not be written."""
        kind, changed, dropped = log_kind(self.lease.job), self._changed, self._dropped
        puts = [
            *(Put(kind=kind, name=self._name(start), value=bytes(self._parts[start])) for start in sorted(changed)),
            *(Put(kind=kind, name=self._name(start), value=None) for start in sorted(dropped)),
        ]
        self._saved |= changed
        self._changed, self._dropped = set(), set()
        return puts, changed, dropped

    def restore(self, changed: set[int], dropped: set[int]) -> None:
        """Write these again with the next changes. Some may have been written."""
        self._changed |= {start for start in changed if start in self._parts}
        self._dropped |= dropped

    def _name(self, start: int) -> str:
        return part_name(self.lease.fence, self.lease.attempt, start)


class JobLogs:
    """The output of all jobs of a worker. `leases` returns those that are not settled."""

    def __init__(self, store: Store, clock: Clock, leases: Callable[[], Iterable[Lease]]) -> None:
        self._store = store
        self._clock = clock
        self._leases = leases
        self._runs: dict[tuple[int, int], RunLog] = {}
        self._saving = asyncio.Lock()  # writes must not overtake one another
        self._has_output = asyncio.Event()

    def add(self, lease: Lease, data: bytes, skipped: int) -> None:
        key = (lease.seq, lease.fence)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = RunLog(lease)
        run.add(data, skipped)
        self._has_output.set()

    async def save_before_settling(self, leases: Iterable[Lease]) -> None:
        """Write what these jobs have printed. Costs nothing if no job has printed."""
        if not self._runs:
            return
        found = [self._runs.get((lease.seq, lease.fence)) for lease in leases]
        await self._save([run for run in found if run is not None])

    async def run(self) -> None:
        """Write the output of running jobs, for ever."""
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            try:
                await self._save(list(self._runs.values()))
            except StoreError as error:
                self._has_output.set()
                _log.info("could not save the logs of jobs: %s", error)
            self._forget_settled()
            await self._clock.sleep(SAVE_INTERVAL)
            if self._runs:
                self._has_output.set()

    def _forget_settled(self) -> None:
        held = {(lease.seq, lease.fence) for lease in self._leases()}
        for key in [key for key in self._runs if key not in held]:
            del self._runs[key]

    async def _save(self, runs: list[RunLog]) -> None:
        async with self._saving:
            changed = [run for run in runs if run.is_changed]
            if not changed:
                return
            puts: list[Put] = []
            for run in changed:
                if run.is_new:
                    puts.append(index_put(run.lease.job))
                    if run.lease.fence > KEEP_RUNS:
                        puts += await surplus_parts(self._store, run.lease.job, run.lease.fence)
            taken = [(run, *run.take()) for run in changed]
            for _, changes, _, _ in taken:
                puts += changes
            try:
                await self._store.put(puts)
            except BaseException:
                for run, _, parts, dropped in taken:
                    run.restore(parts, dropped)
                raise
            for run in changed:
                run.is_new = False
