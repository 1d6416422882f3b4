"""The dispatcher: takes batches and runs them, one at a time. It never waits for a task that failed: retries and their
delays are in the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final

from daybreak import BadInput, LeaseLost, Transient
from daybreak.core.errors import WrongState
from orchestration.batches import BatchSimulationExecutor
from orchestration.callbacks import Callbacks
from orchestration.selection import PREFIX, Selection
from orchestration.tasks import SimulationResult, SimulationTask

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.1  # seconds; for retries that fall due, and tasks of other processes
TRANSIENT: Final = (Transient, ConnectionError, TimeoutError, OSError)


class Dispatcher:
    """Runs in the background of the app. A task whose result is known is completed as it is submitted, and never comes
    here."""

    def __init__(self, selection: Selection, callbacks: Callbacks) -> None:
        self.executor: BatchSimulationExecutor | None = None
        self.is_processing = False
        self._selection = selection
        self._callbacks = callbacks
        self._running: Future[None] | None = None
        self._is_stopping = False
        self._is_registered = False

    def start(self, *, gather: bool = False) -> None:
        """Start it, if it does not run. With `gather`, it waits a moment first for tasks that are on their way."""
        self.ready_executor()
        if self._running is None:
            self._is_stopping = False
            self._running = self._selection.app.portal.spawn(self._run(LOOK_EVERY if gather else 0.0))

    def stop(self) -> Future[None] | None:
        """Ends when the batch that runs has ended. Whatever waits stays in the store."""
        self._is_stopping = True
        running, self._running = self._running, None
        return running

    async def _end(self) -> None:
        """The app closes, or the program ends, and nobody called `stop`: the batch that runs is the last one."""
        running = self.stop()
        if running is not None:
            await asyncio.wrap_future(running)

    def ready_executor(self) -> BatchSimulationExecutor:
        if self.executor is None:
            raise BadInput("no PLECS server: SimulationOrchestrator(server), or set_plecs_server(server)")
        return self.executor

    async def _run(self, first_look_in: float) -> None:
        was_empty = True
        await asyncio.sleep(first_look_in)
        # Taking starts the services of the store in this process: what another one left when it died comes back.
        await self._selection.app.queue(f"{PREFIX}none").atake()
        if not self._is_registered:  # now, so that it runs before what gives back the tasks that are held
            self._is_registered = True
            self._selection.app.portal.on_close(self._end)
        while not self._is_stopping:
            try:
                batch = await self._selection.take(self.ready_executor().batch_size)
                if batch:
                    was_empty = False
                    await self._run_batch(batch)
                    continue
            except Exception:
                logger.exception("the dispatcher goes on")
            if not was_empty:
                was_empty = True
                self._callbacks.emit("on_queue_empty")
            await asyncio.sleep(LOOK_EVERY)

    async def _run_batch(self, batch: list[SimulationTask]) -> None:
        self.is_processing = True
        try:
            self._callbacks.emit("on_batch_started", batch)
            results: list[SimulationResult] = []
            for part in _parts(batch):
                results += await self._run_part(part)
            self._callbacks.emit("on_batch_completed", batch, results)
        finally:
            self.is_processing = False

    async def _run_part(self, part: list[SimulationTask]) -> list[SimulationResult]:
        try:
            results = await asyncio.to_thread(self.ready_executor().execute_batch, part)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of these tasks
            for task in part:
                await fail(task, error)
            return []
        for task, result in zip(part, results, strict=True):
            if result.error is not None:
                await fail(task, result.error)
                continue
            await settle(task.taken().acomplete(result.stored()))
        return results


async def fail(task: SimulationTask, error: Exception) -> None:
    await settle(task.taken().afail(error, permanent=not isinstance(error, TRANSIENT)))


async def settle(outcome: Coroutine[Any, Any, None]) -> None:
    """Report an outcome. A task that was cancelled meanwhile has its own: this one is dropped."""
    with contextlib.suppress(LeaseLost, WrongState):
        await outcome


def _parts(tasks: list[SimulationTask]) -> list[list[SimulationTask]]:
    """First attempts together, and each retry alone: a task that brings PLECS down must not take others with it."""
    first = [task for task in tasks if task.retry_count == 0]
    return ([first] if first else []) + [[task] for task in tasks if task.retry_count > 0]
