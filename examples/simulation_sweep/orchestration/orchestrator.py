"""The orchestrator: tasks are items of Daybreak's queues, one queue for each content of a model.

Everything that waits does so in the store: priorities, retries and their delays survive this process, and several
processes can take from the same queues. The dispatcher never sleeps for a task that failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from daybreak import BadInput, Daybreak, LeaseLost, Retry, Transient
from daybreak.adapters.plecs import copy_by_content
from daybreak.core.errors import JobNotFound, WrongState
from daybreak.core.model import UNFINISHED, State
from daybreak.store.protocol import Tally
from orchestration.batches import BatchSimulationExecutor, SimulationServer
from orchestration.callbacks import Callbacks
from orchestration.priorities import TaskPriority, priority_of, task_priority
from orchestration.reuse import ResultReuse
from orchestration.tasks import SimulationRequest, SimulationResult, SimulationTask, data_of, task_of

logger = logging.getLogger(__name__)

PREFIX: Final = "simulations:"
LOOK_EVERY: Final = 0.1  # seconds; retries that fall due, and tasks of other processes
TRANSIENT: Final = (Transient, ConnectionError, TimeoutError, OSError)

T = TypeVar("T")


class SimulationOrchestrator:
    """Orchestrator with priority queue, batches, retries and callbacks.

    The methods of the article block; those of PyPLECS' code are async. `retry` is Daybreak's: the preset "simulator"
    has three attempts, delays of 2 s and 4 s, and retries no error that it does not know. Pinned models are in the
    folder `models`."""

    def __init__(
        self,
        plecs_server: SimulationServer | None = None,
        batch_size: int = 4,
        *,
        app: Daybreak | None = None,
        models: str | Path | None = None,
        retry: Retry | str | int = "simulator",
    ) -> None:
        self.app = app if app is not None else Daybreak("simulations.db")
        self.batch_size = batch_size
        self._models = models
        self._retry = retry
        self._executor: BatchSimulationExecutor | None = None
        self._reuse = ResultReuse()
        self._callbacks = Callbacks(self.app, PREFIX, self.get_task)
        self._held: dict[str, SimulationTask] = {}
        self._dispatcher: Future[None] | None = None
        self._stopping = False
        self._is_processing = False
        if plecs_server is not None:
            self.set_plecs_server(plecs_server)

    def set_plecs_server(self, server: SimulationServer) -> None:
        self._executor = BatchSimulationExecutor(server, self.batch_size)

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
        return await self._spawn(self._submit(request, priority, use_cache))

    async def _submit(self, request: SimulationRequest, priority: TaskPriority, use_cache: bool) -> str:
        urgent = priority_of(priority)
        model = await asyncio.to_thread(copy_by_content, request.model_file, self._models)
        data = data_of(request, model, use_cache=use_cache)
        item = await self.app.queue(PREFIX + model.stem).aadd(data, priority=urgent, retry=self._retry)
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
        found = [task_of(job) for queue in self._run(self._queues()) for job in self.app.find(queue=queue)]
        return sorted(found)

    def get_orchestrator_stats(self) -> dict[str, Any]:
        """Numbers of the store, over all processes; hits, batches and the executor are those of this one."""
        tallies = self._run(self._tallies())
        done = {state: sum(tally.n for tally in tallies if tally.state is state) for state in State}
        executor = self._executor.stats if self._executor else {}
        return {
            "total_submitted": sum(done.values()),
            "total_completed": done[State.COMPLETED],
            "total_failed": done[State.FAILED],
            "total_cancelled": done[State.CANCELLED],
            "total_cached_hits": self._reuse.hits,
            "total_batches": executor.get("batches_executed", 0),
            "queue_size": sum(done[state] for state in UNFINISHED if state is not State.RUNNING),
            "active_tasks": done[State.RUNNING],
            "executor": {"batch_size": self.batch_size, **executor, "is_processing": self._is_processing},
            "cache_stats": {"total_entries": len(self._reuse), "hits": self._reuse.hits},
        }

    async def _tallies(self) -> list[Tally]:
        client = await self.app.client()
        return [tally for tally in await client.tallies(task="item") if tally.queue.startswith(PREFIX)]

    async def _queues(self) -> list[str]:
        return list(dict.fromkeys(tally.queue for tally in await self._tallies()))

    # -- out -----------------------------------------------------------------------------------------------------------

    def get_next_task(self) -> SimulationTask | None:
        """The most urgent task, for this caller alone; None if none waits."""
        batch = self.get_next_batch(1)
        return batch[0] if batch else None

    def get_next_batch(self, max_batch_size: int = 4) -> list[SimulationTask]:
        """The most urgent task, and others of the same model within one level of it, for this caller alone. Tasks of
        other models in between do not end the batch; they are the next one."""
        return self._run(self._next_batch(max_batch_size))

    async def _next_batch(self, limit: int) -> list[SimulationTask]:
        if limit < 1:
            raise BadInput(f"a batch of {limit}: write 1 or more")
        while True:
            queue, count, level = await self._choose()
            if not queue:
                return []
            leases = await self.app.queue(queue).atake(min(limit, count))
            tasks = []
            for lease in leases:
                if abs(task_priority(lease.priority).value - level) > 1:
                    await lease.arelease()  # another process took what this batch was chosen for
                else:
                    tasks.append(task_of(await self.app.job(lease.id).ainfo(), lease))
            if tasks:
                self._held.update({task.task_id: task for task in tasks})
                return tasks

    async def _choose(self) -> tuple[str, int, int]:
        """The queue of the most urgent task, how many of it are within one level, and the level."""
        tallies = await self._tallies()
        if any(tally.n for tally in tallies if tally.state is State.SCHEDULED):
            await (await self.app.client()).store.advance()  # retries that have fallen due are queued again
            tallies = await self._tallies()
        waiting = [tally for tally in tallies if tally.state is State.QUEUED and tally.n]
        if not waiting:
            return "", 0, 0
        most_urgent = min(tally.priority for tally in waiting)
        heads = sorted({tally.queue for tally in waiting if tally.priority == most_urgent})
        queue = heads[0] if len(heads) == 1 else await self._oldest(heads)
        level = task_priority(most_urgent).value
        near = [t.n for t in waiting if t.queue == queue and task_priority(t.priority).value - level <= 1]
        return queue, sum(near), level

    async def _oldest(self, queues: Iterable[str]) -> str:
        """The queue whose first task was submitted first."""
        client = await self.app.client()
        heads = [(await client.find(queue=queue, state=State.QUEUED, limit=1)).jobs for queue in queues]
        return min((jobs[0] for jobs in heads if jobs), key=lambda job: job.id).spec.queue

    # -- running -------------------------------------------------------------------------------------------------------

    def execute_task(self, task: SimulationTask) -> SimulationResult:
        """One attempt of a task that was taken. What it raises is raised here too; the store decides on a retry."""
        lease = _lease_of(task)
        try:
            result = self._execute_simulation(task)
        except Exception as error:
            lease.fail(error, permanent=not isinstance(error, TRANSIENT))
            raise
        finally:
            self._held.pop(task.task_id, None)
        lease.complete(result.stored())
        return result

    def execute_task_with_retry(
        self, task: SimulationTask, max_retries: int = 3, base_delay: float = 2.0
    ) -> SimulationResult:
        """Attempts of a task that was taken, one after the other, in this thread: `max_retries` of them, the first
        included, with delays of `base_delay` that double. Other tasks can be taken meanwhile."""
        lease = _lease_of(task)
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
        finally:
            self._held.pop(task.task_id, None)
        lease.complete(result.stored())
        return result

    def _execute_simulation(self, task: SimulationTask) -> SimulationResult:
        """One simulation by itself. Replace it to run something else."""
        [result] = self._with_server().execute_batch([task])
        if result.error is not None:
            raise result.error
        return result

    def report_progress(self, task_id: str, percent: float, message: str = "") -> None:
        """How far a task is that runs here, from 0 to 100. PLECS itself says nothing of it during a run."""
        task = self._held.get(task_id)
        if task is not None and task.lease is not None:
            task.lease.progress(percent / 100, message)

    # -- the dispatcher ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take batches and run them, one at a time, until `stop`."""
        self._begin()

    async def stop(self) -> None:
        """Let the batch that runs end. Whatever waits stays in the store."""
        self._stopping = True
        if self._dispatcher is not None:
            await asyncio.wrap_future(self._dispatcher)
        self._dispatcher = None

    def _begin(self) -> None:
        self._with_server()
        if self._dispatcher is None:
            self._stopping = False
            self._dispatcher = self.app.portal.spawn(self._dispatch())

    def _with_server(self) -> BatchSimulationExecutor:
        if self._executor is None:
            raise BadInput("no PLECS server: SimulationOrchestrator(server), or set_plecs_server(server)")
        return self._executor

    async def _dispatch(self) -> None:
        was_empty = True
        # Taking starts the services of the store in this process: what another one left when it died comes back.
        await self.app.queue(f"{PREFIX}none").atake()
        while not self._stopping:
            try:
                batch = await self._next_batch(self.batch_size)
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
        self._is_processing = True
        try:
            self._callbacks.emit("on_batch_started", batch)
            results: list[SimulationResult] = []
            for part in _parts([task for task in batch if not await self._reused(task)]):
                results += await self._run_part(part)
            self._callbacks.emit("on_batch_completed", batch, results)
        finally:
            self._is_processing = False
            for task in batch:
                self._held.pop(task.task_id, None)

    async def _run_part(self, part: list[SimulationTask]) -> list[SimulationResult]:
        try:
            results = await asyncio.to_thread(self._with_server().execute_batch, part)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of these tasks
            for task in part:
                await self._fail(task, error)
            return []
        for task, result in zip(part, results, strict=True):
            if result.error is not None:
                await self._fail(task, result.error)
                continue
            if task.use_cache:
                self._reuse.put(task.result_key, result)
            await self._settle(_lease_of(task).acomplete(result.stored()))
        return results

    async def _reused(self, task: SimulationTask) -> bool:
        found = self._reuse.get(task.result_key) if task.use_cache else None
        if found is None:
            return False
        stored = {**found.stored(), "cached": True, "metadata": dict(task.request.metadata)}
        await self._settle(_lease_of(task).acomplete(stored))
        return True

    async def _fail(self, task: SimulationTask, error: Exception) -> None:
        await self._settle(_lease_of(task).afail(error, permanent=not isinstance(error, TRANSIENT)))

    async def _settle(self, outcome: Coroutine[Any, Any, None]) -> None:
        # A task that was cancelled meanwhile has its outcome: this one is dropped.
        with contextlib.suppress(LeaseLost, WrongState):
            await outcome

    # -- waiting and cancelling ----------------------------------------------------------------------------------------

    async def wait_for_completion(self, task_id: str, timeout: float | None = None) -> SimulationTask:  # noqa: ASYNC109
        """The task once it is final. TimeoutError when so many seconds have passed."""
        limit = None if timeout is None else timedelta(seconds=timeout)
        await self.app.job(task_id).await_(limit)
        task = await self.get_task_status(task_id)
        assert task is not None
        return task

    async def wait_for_all_tasks(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Whether every accepted task has become final within so many seconds: an empty queue is not enough."""
        until = None if timeout is None else time.monotonic() + timeout
        while any(tally.n for tally in await self._spawn(self._tallies()) if tally.state in UNFINISHED):
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
        held = self._held.get(task_id)
        if amendment.verdict == "requested" and held is not None:
            # PLECS cannot stop a run. The task ends now, and the result is dropped when it comes.
            await self._settle(_lease_of(held).arelease())
        return amendment.verdict in ("done", "requested")

    # -- both worlds ---------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.app.portal.run(work)

    async def _spawn(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self.app.portal.spawn(work))

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._dispatcher is not None:
            self._dispatcher.result()
        self._dispatcher = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def _lease_of(task: SimulationTask) -> Any:
    if task.lease is None:
        raise BadInput(f"task {task.task_id} was not taken here: get_next_task() and get_next_batch() take tasks")
    return task.lease


def _parts(tasks: list[SimulationTask]) -> list[list[SimulationTask]]:
    """First attempts together, and each retry alone: a task that brings PLECS down must not take others with it."""
    first = [task for task in tasks if task.retry_count == 0]
    return ([first] if first else []) + [[task] for task in tasks if task.retry_count > 0]
