"""The orchestrator: the names of the article and of PyPLECS. Everything that waits does so in the store: priorities,
retries and their delays survive this process, and several processes can take from the same queues."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from daybreak import BadInput, Daybreak, Retry
from daybreak.adapters.plecs import copy_by_content
from daybreak.api.queues import LeaseHandle
from daybreak.core.errors import JobNotFound, ResultTimeout
from daybreak.core.model import UNFINISHED, State
from orchestration.batches import NO_BATCHES, BatchSimulationExecutor, SimulationServer
from orchestration.cache import SimulationCache
from orchestration.callbacks import Callbacks
from orchestration.dispatcher import LOOK_EVERY, TRANSIENT, Dispatcher, settle
from orchestration.priorities import TaskPriority, priority_of
from orchestration.selection import PREFIX, Selection
from orchestration.tasks import SimulationRequest, SimulationResult, SimulationTask, data_of, request_from, task_of

logger = logging.getLogger(__name__)

BATCH_SIZE: Final = 4
T = TypeVar("T")


def _complete(lease: LeaseHandle, task: SimulationTask, returned: Any) -> None:
    found = returned if isinstance(returned, SimulationResult) else SimulationResult(task.task_id, True, returned)
    try:
        lease.complete(found.stored())
    except BadInput as error:  # it cannot be stored, and would be no better the next time
        lease.fail(error, permanent=True)
        raise


class SimulationOrchestrator:
    """Orchestrator with priority queue, batches, retries and callbacks.

    The methods of the article block; those of PyPLECS' code are async. `retry` is Daybreak's: the preset "simulator"
    has three attempts, delays of 2 s and 4 s, and retries no error that it does not know. Pinned models are in the
    folder `models`."""

    def __init__(
        self,
        plecs_server: SimulationServer | None = None,
        batch_size: int | None = None,
        *,
        app: Daybreak | None = None,
        models: str | Path | None = None,
        retry: Retry | str | int = "simulator",
        cache: SimulationCache | None = None,
    ) -> None:
        self.app = app if app is not None else Daybreak("simulations.db")
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        self._models = models
        self._retry = retry
        self.cache = cache if cache is not None else SimulationCache(self.app)
        self._callbacks = Callbacks(self.app, PREFIX, self.get_task)
        self._selection = Selection(self.app)
        self._dispatcher = Dispatcher(self._selection, self._callbacks)
        if plecs_server is not None:
            self.set_plecs_server(plecs_server)

    def set_plecs_server(self, server: SimulationServer) -> None:
        self._dispatcher.executor = BatchSimulationExecutor(server, self.batch_size)
        # A server that cannot tell its version, such as one for tests, counts by what it is.
        self.cache.engine = getattr(server, "engine", None) or (lambda: type(server).__qualname__)

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def register_callback(self, event: str, callback: Callable[..., Any]) -> None:
        """Have it called for every such event of this process."""
        self._callbacks.add(event, callback)

    add_callback = register_callback

    def remove_callback(self, event: str, callback: Callable[..., Any]) -> None:
        self._callbacks.remove(event, callback)

    # -- in ------------------------------------------------------------------------------------------------------------

    def submit(
        self, request: SimulationRequest, priority: TaskPriority = TaskPriority.NORMAL, *, use_cache: bool = True
    ) -> str:
        """Accepted and durable when this returns, with the content that the model has now. Answers the task's id."""
        return self._run(self._submit(request, priority, use_cache))

    async def submit_simulation(
        self, request: SimulationRequest, priority: TaskPriority = TaskPriority.NORMAL, use_cache: bool = True
    ) -> str:
        """As `submit`; and the dispatcher starts, if there is a server. Tasks submitted within 0.1 s share batches."""
        task_id = await self._spawn(self._submit(request, priority, use_cache))
        if self._dispatcher.executor is not None:
            self._dispatcher.start(gather=True)
        return task_id

    async def _submit(self, given: SimulationRequest, priority: TaskPriority, use_cache: bool) -> str:
        urgent, request = priority_of(priority), request_from(given)
        model = await asyncio.to_thread(copy_by_content, request.model_file, self._models)
        data = data_of(request, model, use_cache=use_cache)
        flight = await asyncio.to_thread(self.cache.flight, request, model) if use_cache else None
        settings = None if flight is None else self.cache.settings
        item = await self.app.queue(PREFIX + model.stem).aadd(
            data, priority=urgent, retry=self._retry, flight=flight, cache=settings
        )
        return item.id

    # -- looking -------------------------------------------------------------------------------------------------------

    def get_task(self, task_id: str) -> SimulationTask | None:
        """The task as it stands; None for an id that is no simulation."""
        return self._run(self._task(task_id))

    async def get_task_status(self, task_id: str) -> SimulationTask | None:
        return await self._spawn(self._task(task_id))

    async def _task(self, task_id: str) -> SimulationTask | None:
        try:
            job = await self.app.job(task_id).ainfo()
        except JobNotFound:
            return None
        return task_of(job) if job.queue.startswith(PREFIX) else None

    def list_tasks(self) -> list[SimulationTask]:
        """All tasks that the store has, the most urgent first."""
        queues = dict.fromkeys(tally.queue for tally in self._run(self._selection.tallies()))
        return sorted(task_of(job) for queue in queues for job in self.app.find(queue=queue))

    def get_orchestrator_stats(self) -> dict[str, Any]:
        """Numbers of the store, over all processes; batches and the executor are those of this one."""
        cache_stats = self.cache.get_cache_stats()
        tallies = self._run(self._selection.tallies())
        done = {state: sum(tally.n for tally in tallies if tally.state is state) for state in State}
        executor = self._dispatcher.executor.stats if self._dispatcher.executor else NO_BATCHES
        return {
            "total_submitted": sum(done.values()),
            "total_completed": done[State.COMPLETED],
            "total_failed": done[State.FAILED],
            "total_cancelled": done[State.CANCELLED],
            "total_cached_hits": cache_stats["hits"],
            "total_batches": executor["batches_executed"],
            "queue_size": sum(done[state] for state in UNFINISHED if state is not State.RUNNING),
            "active_tasks": done[State.RUNNING],
            "executor": {"batch_size": self.batch_size, **executor, "is_processing": self._dispatcher.is_processing},
            "cache_stats": cache_stats,
        }

    # -- out -----------------------------------------------------------------------------------------------------------

    def get_next_task(self) -> SimulationTask | None:
        """The most urgent task, for this caller alone; None if none waits."""
        batch = self.get_next_batch(1)
        return batch[0] if batch else None

    def get_next_batch(self, max_batch_size: int = 4) -> list[SimulationTask]:
        """The most urgent task, and others of the same model within one level of it, for this caller alone. Tasks of
        other models in between do not end the batch; they are the next one."""
        return self._run(self._selection.take(max_batch_size))

    # -- running -------------------------------------------------------------------------------------------------------

    def execute_task(self, task: SimulationTask) -> SimulationResult:
        """One attempt of a task that was taken. What it raises is raised here too; the store decides on a retry."""
        lease = task.taken()
        try:
            result = self._execute_simulation(task)
        except Exception as error:
            lease.fail(error, permanent=not isinstance(error, TRANSIENT))
            raise
        _complete(lease, task, result)
        return result

    def execute_task_with_retry(
        self, task: SimulationTask, max_retries: int = 3, base_delay: float = 2.0
    ) -> SimulationResult:
        """Attempts of a task that was taken, one after the other, in this thread: `max_retries` of them, the first
        included, with delays of `base_delay` that double. Other tasks can be taken meanwhile."""
        lease = task.taken()
        if max_retries < 1:
            raise BadInput(f"max_retries={max_retries}: it counts attempts, the first included; write 1 or more")
        delay = timedelta(seconds=base_delay)
        policy = Retry(attempts=max_retries, delay=delay, strategy="exponential", cap=delay * 2**10, unknown="fail")
        attempts = 0

        @self.app.retrying(policy)
        def attempt() -> SimulationResult:
            nonlocal attempts
            attempts += 1
            lease.progress(0.0, f"attempt {attempts}/{max_retries}")
            logger.info("task %s: attempt %d/%d", task.task_id, attempts, max_retries)
            return self._execute_simulation(task)

        try:
            result = attempt()
        except TRANSIENT as error:
            text = f"Task {task.task_id} failed after {attempts} attempts. Last error: {error}"
            lease.fail(RuntimeError(text), permanent=True)
            raise RuntimeError(text) from error
        except Exception as error:
            lease.fail(error, permanent=True)
            raise
        _complete(lease, task, result)
        return result

    def _execute_simulation(self, task: SimulationTask) -> SimulationResult:
        """One simulation by itself. Replace it to run something else, which may return any plain data."""
        [result] = self._dispatcher.ready_executor().execute_batch([task])
        if result.error is not None:
            raise result.error
        return result

    def report_progress(self, task_id: str, percent: float, message: str = "") -> bool:
        """How far a task is that runs here, from 0 to 100; False if it does not. PLECS itself says nothing of it during
        a run."""
        task = self._selection.held.get(task_id)
        if task is None:
            return False
        task.taken().progress(percent / 100, message)
        return True

    # -- the dispatcher ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take batches and run them, one at a time, until `stop`."""
        self._dispatcher.start()

    async def stop(self) -> None:
        """Let the batch that runs end. Whatever waits stays in the store."""
        running = self._dispatcher.stop()
        if running is not None:
            await asyncio.wrap_future(running)

    # -- waiting and cancelling ----------------------------------------------------------------------------------------

    async def wait_for_completion(
        self,
        task_id: str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> SimulationTask | None:
        """The task once it is final. None when so many seconds have passed, or for an id that is no simulation."""
        if await self.get_task_status(task_id) is None:
            return None
        limit = None if timeout is None else timedelta(seconds=timeout)
        try:
            await self.app.job(task_id).await_(limit)
        except ResultTimeout:
            return None
        return await self.get_task_status(task_id)

    async def wait_for_all_tasks(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Whether every accepted task has become final within so many seconds: an empty queue is not enough."""
        until = None if timeout is None else time.monotonic() + timeout
        while any(tally.n for tally in await self._spawn(self._selection.tallies()) if tally.state in UNFINISHED):
            if until is not None and time.monotonic() >= until:
                return False
            await asyncio.sleep(LOOK_EVERY / 4)
        return True

    def cancel(self, task_id: str) -> bool:
        """Whether the task will end CANCELLED: False if it is final already, or unknown."""
        return self._run(self._cancel(task_id))

    async def cancel_task(self, task_id: str) -> bool:
        return await self._spawn(self._cancel(task_id))

    async def _cancel(self, task_id: str) -> bool:
        if await self._task(task_id) is None:
            return False
        amendment = await self.app.job(task_id).acancel()
        held = self._selection.held.get(task_id)
        if amendment.verdict == "requested" and held is not None:
            # PLECS cannot stop a run. The task ends now, and the result is dropped when it comes.
            await settle(held.taken().arelease())
        return amendment.verdict in ("done", "requested")

    # -- both worlds ---------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.app.portal.run(work)

    async def _spawn(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self.app.portal.spawn(work))

    def __enter__(self) -> Self:
        self._dispatcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running = self._dispatcher.stop()
        if running is not None:
            running.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
