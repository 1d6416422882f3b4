"""Drives sagas: when a job of a saga ends, the next step or the next undo is submitted.

Every change is one `put` of the saga's record by compare-and-set, with the next job in it, so any number of drivers may
run, and one that is killed leaves nothing half. A durable follower tells one of them at a time of every job that ends.
A sweep over the sagas that have not ended repairs what no event told: while no driver ran, or after its events were
purged."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.client.client import Client
from daybreak.client.feed_follower import FeedFollower
from daybreak.client.saga_changes import drive_saga, stop_step
from daybreak.client.saga_record import StoredSaga, forget_mark, read_saga, saga_of_label
from daybreak.core.events import Event, ends_job
from daybreak.core.model import Record
from daybreak.core.units import span
from daybreak.store.protocol import SAGA_MARK_KIND, SAGAS_TOPIC, Store, Watch
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.services")

FOLLOWER_KIND: Final = "follower"
FOLLOWER_NAME: Final = "sagas"
IDLE_INTERVAL: Final = timedelta(minutes=15)  # without any saga; a new one wakes the driver
SWEEP_INTERVAL: Final = timedelta(minutes=1)  # of the driver that follows the feed
# The others sweep more often, so that a saga hardly waits until a dead driver is replaced; less often with more sagas.
SHORTEST_SWEEP: Final = timedelta(seconds=2)
SWEEP_PER_SAGA: Final = timedelta(milliseconds=50)
SWEEP_CHUNK: Final = 100


class SagaDriver:
    """A service. It follows the feed while there are sagas that have not ended."""

    def __init__(self, store: Store, world: World, *, name: str) -> None:
        self._store = store
        self._world = world
        self._name = name
        self._client = Client(store, by=name, world=world)
        self._follower: FeedFollower | None = None
        self._following: asyncio.Task[None] | None = None
        self._next_sweep_at = 0
        self._unreadable: set[str] = set()

    def watch(self) -> Watch:
        return self._store.watch([SAGAS_TOPIC])

    async def tick(self) -> timedelta:
        """Sweep if that is due, and return the delay until the next sweep."""
        marks = await self._store.records(SAGA_MARK_KIND)
        if not marks:
            await self.close()
            return IDLE_INTERVAL
        self._follow()
        now = self._world.steady()
        if now >= self._next_sweep_at:
            await self.sweep(marks)
            now = self._world.steady()
            self._next_sweep_at = now + span(self._interval(len(marks)))
        return timedelta(microseconds=max(self._next_sweep_at - now, 1000))

    def _interval(self, sagas: int) -> timedelta:
        if self._follower is not None and self._follower.is_holding:
            return SWEEP_INTERVAL
        return min(max(SWEEP_PER_SAGA * sagas, SHORTEST_SWEEP), SWEEP_INTERVAL)

    def _follow(self) -> None:
        if self._following is None or self._following.done():
            self._follower = FeedFollower(
                FOLLOWER_KIND, FOLLOWER_NAME, self._store, self._world, handle=self.handle, wants=ends_job
            )
            self._following = asyncio.create_task(self._follower.run())

    async def close(self) -> None:
        """Stop following the feed."""
        following, self._following, self._follower = self._following, None, None
        self._next_sweep_at = 0
        if following is None:
            return
        following.cancel()
        # Not awaited directly: if this task is cancelled too, because the worker stops, that must not be taken for the
        # end of the follower.
        await asyncio.wait([following])
        if not following.cancelled():
            following.result()

    async def handle(self, event: Event) -> None:
        """Do what follows from the end of a job, if it belongs to a saga."""
        run_id = saga_of_label(event.run)
        if run_id is None:
            return
        try:
            await drive_saga(self._client, run_id, event.job)
        except (msgspec.MsgspecError, ValueError) as error:
            self._report_once(run_id, error)

    async def sweep(self, marks: list[Record] | None = None) -> None:
        """Compare every saga that has not ended with the job that it waits for."""
        found = await self._store.records(SAGA_MARK_KIND) if marks is None else marks
        for start in range(0, len(found), SWEEP_CHUNK):
            await self._sweep([mark.name for mark in found[start : start + SWEEP_CHUNK]])

    async def _sweep(self, run_ids: list[str]) -> None:
        waiting: dict[str, str] = {}
        for run_id in run_ids:
            found = await self._read(run_id)
            if found is None or found.saga.moving:
                continue
            if found.saga.progress.is_finished:
                await forget_mark(self._store, run_id)
            elif found.saga.progress.current_job:
                await stop_step(self._store, found.saga, by=self._name)
                waiting[run_id] = found.saga.progress.current_job
        if not waiting:
            return
        for run_id, job in zip(waiting, await self._store.get(list(waiting.values())), strict=True):
            if job is None or job.is_final:
                await drive_saga(self._client, run_id)

    async def _read(self, run_id: str) -> StoredSaga | None:
        try:
            found = await read_saga(self._store, run_id)
        except (msgspec.MsgspecError, ValueError) as error:
            self._report_once(run_id, error)
            return None
        if found is None:
            await forget_mark(self._store, run_id)
        return found

    def _report_once(self, run_id: str, error: Exception) -> None:
        if run_id not in self._unreadable:
            self._unreadable.add(run_id)
            _log.error("saga %s cannot be driven by this process: %s", run_id, error)
