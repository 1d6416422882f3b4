"""Daybreak: the app. It composes the layers below and decides nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

from daybreak.api.batch_task import BatchTask, RegisterBatch, Results
from daybreak.api.hooks import Hooks
from daybreak.api.job_handle import JobHandle, as_completed
from daybreak.api.job_info import JobInfo, info_of
from daybreak.api.portal import Portal, blocking, blocking_iter
from daybreak.api.store_sessions import Sessions
from daybreak.api.task import Task
from daybreak.client.client import Client
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import BadInput
from daybreak.core.model import Reason, State
from daybreak.core.units import counted, duration, priority
from daybreak.policy.parse_options import parse_options
from daybreak.store.protocol import Page
from daybreak.stores import store_for
from daybreak.system.platform import whoami
from daybreak.system.ports import RealWorld, World
from daybreak.tasks.admission_rules import Admission, apply_rules, check_rule
from daybreak.tasks.batches import BatchDefinition
from daybreak.tasks.context import Context
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.options import (
    BatchTaskOptions,
    JobOptions,
    TaskOptions,
    WorkerOptions,
    check_batch_options,
    check_task_options,
)
from daybreak.tasks.registry import Definition, Program

if TYPE_CHECKING:
    from daybreak import config
    from daybreak.api.cache import CacheHandle
    from daybreak.api.locks import Lock, Waiter
    from daybreak.api.locks.retry import Retrying
    from daybreak.api.locks.slots import ResourceHandle
    from daybreak.api.locks.time_limit import TimeLimit
    from daybreak.api.queues import QueueHandle
    from daybreak.api.resources import ResourceInfo
    from daybreak.api.schedules import ScheduleDeclaration, ScheduleHandle, ScheduleInfo
    from daybreak.api.spooled_submits import SpooledSubmits
    from daybreak.api.stats import Stats
    from daybreak.api.trends import Trends
    from daybreak.client.finish import Finished
    from daybreak.core.model import Failure, Retry
    from daybreak.feeds.bridge import Bridge
    from daybreak.feeds.bridge.declaration import Read
    from daybreak.feeds.drop_folder import FolderWatch
    from daybreak.files import FileStore
    from daybreak.runs.run import Run
    from daybreak.runs.run_info import RunInfo
    from daybreak.runs.submission import SweepPlan
    from daybreak.sagas.saga import Saga
    from daybreak.sagas.saga_info import SagaInfo
    from daybreak.sagas.saga_run import SagaRun
    from daybreak.spool import SpoolStatus
    from daybreak.worker.settings import WorkerSettings
    from daybreak.worker.supervisor.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
States = State | str | Iterable[State | str] | None
PAGE: Final = 500  # jobs that `find` fetches at a time


class Daybreak:
    """An app: tasks, and the store that holds their jobs. Connections open on first use.

    The store is `url`; without it the one that DAYBREAK_URL, daybreak.toml or pyproject.toml names; without those the
    file daybreak.db in the working directory. `files` is where the contents of files are kept: a folder,
    s3://bucket/prefix, or "store"; by default in a folder beside a SQLite file, else in the store. `spool` is a local
    file that takes jobs while the store cannot be reached. `imports` names modules that define more tasks. `by` is
    recorded with every change made through this app."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "",
        by: str | None = None,
        imports: Iterable[str] = (),
        files: str | None = None,
        spool: str | os.PathLike[str] | None = None,
        world: World | None = None,
    ) -> None:
        self.name = name
        self.by = whoami() if by is None else by
        self.program = Program()
        self.imports = [imports] if isinstance(imports, str) else list(imports)
        self._url = url
        self._files = files
        self._spool = None if spool is None else os.fspath(spool)
        self.world = world or RealWorld()
        self.hooks = Hooks(self.world)
        self.watches: list[FolderWatch] = []
        self.declared_schedules: dict[str, ScheduleDeclaration] = {}
        # By name; one that a function declared, and nobody keeps, is forgotten with it.
        self.declared_sagas: WeakValueDictionary[str, Saga] = WeakValueDictionary()
        self.bridges: list[Bridge] = []
        self._settings: config.Settings | None = None
        self._open_sessions: Sessions | None = None
        # One lock per process id: a lock that another thread held at a fork would never be released in the child.
        self._open_lock: dict[int, threading.Lock] = {}

    def __repr__(self) -> str:
        return f"<Daybreak on {self.settings.store}, {counted(len(self.program), 'task')}>"

    @property
    def settings(self) -> config.Settings:
        if self._settings is None:
            from daybreak import config  # noqa: PLC0415

            self._settings = config.resolve(self._url, files=self._files, spool=self._spool)
        return self._settings

    def use(self, url: str) -> None:
        """Switch to another store."""
        self._url = url
        self._settings = None
        if self._open_sessions is not None:
            self._open_sessions.close()
            self._open_sessions = None

    @property
    def _sessions(self) -> Sessions:
        """The open stores of this process, one per event loop."""
        if self._open_sessions is None:
            # Without the lock, two threads that start at the same time would each open a store.
            with self._open_lock.setdefault(os.getpid(), threading.Lock()):
                if self._open_sessions is None:
                    url, connect_timeout = self.settings.url, ConnectTimeout(self.world)
                    self._open_sessions = Sessions(
                        lambda: store_for(url, connect_timeout),
                        self.world,
                        self.by,
                        connect_timeout,
                        (self.settings.files, url),
                        self.settings.spool,
                    )
                    self._open_sessions.hooks = self.hooks
        return self._open_sessions

    @property
    def portal(self) -> Portal:
        """The event loop thread that runs blocking calls."""
        return self._sessions.portal

    _portal = portal

    async def client(self) -> Client:
        """The async client of the running loop, for operations that have no method here."""
        return await self._sessions.client()

    async def file_store(self) -> FileStore:
        """The contents of files and large results, for use on the running loop."""
        return await self._sessions.files.store()

    # -- declarations --------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> _Register: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function as a task: `@app.task` or `@app.task(retry=3, timeout="10m", ...)`. A `timeout` is
        fixed; `Adaptive("10m")` follows how long the task's jobs take. The options are those of
        `daybreak.tasks.options.TaskOptions`."""
        check_task_options(options)
        own = {name: options.pop(name) for name in Definition.OWN if name in options}

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            definition = Definition(function, **_own(own), options=parse_options(**options))
            self.program.add(definition)
            return self._task(definition)

        return register if function is None else register(function)

    @overload
    def batch_task(
        self, function: Callable[[Context, list[T]], Coroutine[Any, Any, Results[R]]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def batch_task(self, function: Callable[[Context, list[T]], Results[R]], /) -> BatchTask[T, R]: ...
    @overload
    def batch_task(self, function: Callable[[list[T]], Coroutine[Any, Any, Results[R]]], /) -> BatchTask[T, R]: ...
    @overload
    def batch_task(self, function: Callable[[list[T]], Results[R]], /) -> BatchTask[T, R]: ...
    @overload
    def batch_task(self, /, **options: Unpack[BatchTaskOptions]) -> RegisterBatch: ...
    def batch_task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function that takes a list of items and returns a result for each, in order:
        `def f(items: list[T]) -> list[R | Exception]`. Each item is submitted as a job of its own.

        A worker calls it with at most `size` items at once. They have the same batch key: `by` names a field of the
        item, or several, or is a function of the item; without it, items with the same first `File` go together. A call
        that is not full waits until its first job is `linger` old. An exception in the returned list fails the job of
        that item alone. If the function raises, it is called again with half of the items, until the items that fail
        are known. The other options are those of a task."""
        check_batch_options(options)
        own = {name: options.pop(name) for name in Definition.OWN if name in options}
        batching = {name: options.pop(name) for name in ("size", "by", "linger") if name in options}

        def register(function: Callable[..., Any]) -> BatchTask[Any, Any]:
            definition = BatchDefinition(function, **batching, **_own(own), options=parse_options(**options))
            self.program.add(definition)
            return BatchTask(definition, self)

        return register if function is None else register(function)

    def _task(self, definition: Definition) -> Task[..., Any]:
        if isinstance(definition, BatchDefinition):
            return BatchTask(definition, self)
        return Task(definition, self)

    def find_task(self, name: str) -> Task[..., Any]:
        """Return a registered task by its name or an alias. UnknownTask names the closest match."""
        return self._task(self.program[name])

    def rule(self, function: F) -> F:
        """Register an admission rule: a function that is called for every job before it is accepted, and for every
        lock. It takes an `Admission` and returns its changes (`{"priority": "high"}`) or None; it raises NotAllowed to
        refuse."""
        check_rule(function)
        self.program.rules.append(function)
        return function

    def setup(self, function: F) -> F:
        """Register a function that every child calls before its first job. It may take `shared`, which jobs see as
        `ctx.shared`, and it may be a generator: the code after its yield runs when the child ends."""
        _check_call("setup", function, "nothing, or `shared`", 0, 1)
        self.program.setups.append(function)
        return function

    def wrap(self, function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """Register a generator function around every job: the code before its yield runs before the job, the code after
        it runs after the job. It must be a sync generator, also for async tasks."""
        if inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise BadInput(
                f"wrap {_name_of(function)} is async, but sync tasks have no event loop to await it on: "
                "write def instead of async def"
            )
        _check_call("wrap", function, "the context", 1)
        self.program.wraps.append(_managed("wrap", function))
        return function

    def lifespan(self, function: F) -> F:
        """Register a generator function, sync or async, that spans a worker's life. If it yields a dict, jobs find its
        entries in `ctx.shared`."""
        _check_call("lifespan", function, "nothing", 0)
        self.program.lifespans.append(_managed("lifespan", function))
        return function

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        """Register a function that is called for job events of these kinds; `*` means all kinds."""
        return self.hooks.on(*kinds, durable=durable, name=name)

    def watch(
        self,
        folder: str | os.PathLike[str],
        task: Task[..., Any] | str,
        *,
        name: str | None = None,
        pattern: str = "*",
        priority: object = None,  # noqa: A002, RUF100
        done: str | os.PathLike[str] = "done",
        failed: str | os.PathLike[str] = "failed",
        settle: object = "500ms",
        done_marker: str | bool | None = None,
        queue: str | None = None,
        delete: bool = False,
        retry: Retry | int | str | None = None,
        max_running: int | None = 5,
        capacity: int | None = 10_000,
        max_size: int | str = "1GB",
        polling: bool = False,
    ) -> FolderWatch:
        """Watch a folder: every complete file that is put into it becomes a job of the task, which gets it as a pinned
        `File`. Every worker of this app watches it, and `daybreak watch` does without a worker.

        A file is complete if it has not changed for `settle`, and with a `done_marker` also if there is a file
        `NAME.done`. When its job has ended, it moves to `done` or `failed`, which are folders in the watched one or
        full paths; with `delete` it is deleted if the job completed. Its priority is that of `NAME.meta.json`, of a
        name such as `report.p1.json`, of a folder `1/` or `critical/`, or the one given here. The queue, by default
        named after the task, starts with `max_running` and `capacity`; if it is full, files stay in the folder. Files
        of the same name and content are one job; watches with a `name` count theirs separately."""
        from daybreak.feeds.drop_folder.declaration import add_watch  # noqa: PLC0415 - few apps watch folders

        return add_watch(
            self, folder, task, name=name, pattern=pattern, priority=priority, done=done, failed=failed, settle=settle,
            done_marker=done_marker, queue=queue, delete=delete, retry=retry, max_running=max_running,
            capacity=capacity, max_size=max_size, polling=polling,
        )  # fmt: skip

    @overload
    def schedule(
        self, name: str, task: Task[..., Any] | str, *, cron: str | None = None, every: object = None,
        at: object = None, tz: object = None, args: Mapping[str, Any] | Sequence[Any] | None = None,
        catch_up: Literal["skip", "latest", "all"] = "latest", overlap: Literal["skip", "queue", "allow"] = "skip",
        grace: object = "1m", jitter: object = None,
    ) -> ScheduleHandle: ...  # fmt: skip
    @overload
    def schedule(
        self, name: str, task: None = None, *, cron: str | None = None, every: object = None, at: object = None,
        tz: object = None, args: Mapping[str, Any] | Sequence[Any] | None = None,
        catch_up: Literal["skip", "latest", "all"] = "latest", overlap: Literal["skip", "queue", "allow"] = "skip",
        grace: object = "1m", jitter: object = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]: ...  # fmt: skip
    def schedule(self, name: str, task: Task[..., Any] | str | None = None, **options: Any) -> Any:
        """Declare a schedule: a job of the task at every tick. Workers write it to the store when they start, and every
        worker and server fires the ticks, each once; `app.schedule(...).save()` writes it now. Without a task it is a
        decorator, for above `@app.task`.

        The ticks are those of a `cron` expression in the zone `tz` (default UTC), the multiples of an interval
        (`every="15m"`), or given instants (`at`). `args` are the arguments of the jobs. A tick is on time for `grace`;
        `catch_up` decides about those that were missed: "skip", the "latest" or "all". `overlap` decides about a tick
        whose earlier job has not ended: "skip" it, "queue" it behind that job, or "allow" both to run. `jitter` delays
        each job by up to this long."""
        from daybreak.api.schedules.declared import declare  # noqa: PLC0415 - many programs have no schedules
        from daybreak.api.schedules.handle import ScheduleHandle  # noqa: PLC0415

        if task is None:

            def register(task: Task[..., Any]) -> Task[..., Any]:
                self.schedule(name, task, **options)
                return task

            return register
        found = self.find_task(task) if isinstance(task, str) else task
        if not isinstance(found, Task):
            raise BadInput(f"schedule {name!r:.60}: {found!r:.60} is no task: write @app.task above the function")
        declared = declare(name, found, **options)
        if declared.name in self.declared_schedules:
            raise BadInput(f"two schedules are named {declared.name!r}: give one of them another name")
        self.declared_schedules[declared.name] = declared
        self.program.fed_queues.append(found.queue)
        return ScheduleHandle(self, declared.name, declared)

    def find_schedule(self, name: str) -> ScheduleHandle:
        """Return a handle on a schedule by its name. The first operation on the handle shows whether it exists."""
        from daybreak.api.schedules.handle import ScheduleHandle  # noqa: PLC0415
        from daybreak.client.schedule_changes import check_schedule_name  # noqa: PLC0415

        return ScheduleHandle(self, check_schedule_name(name), self.declared_schedules.get(name))

    async def aschedules(self) -> list[ScheduleInfo]:
        """Every schedule of the store, by name."""
        from daybreak.api.schedules.info import all_schedules  # noqa: PLC0415

        return await self._sessions.here(self._with_client(all_schedules))

    schedules = blocking(aschedules)

    def bridge(
        self,
        url: str,
        task: Task[..., Any] | str | None = None,
        *,
        incoming: str | None = None,
        outgoing: str | None = None,
        dead: str | None = None,
        name: str | None = None,
        form: str = "message",
        read: Read | None = None,
        queue: str | None = None,
        events: Iterable[str] | None = None,
        every_task: bool = False,
        source: str | None = None,
        max_running: int | None = None,
        capacity: int | None = 10_000,
    ) -> Bridge:
        """Connect a message broker: `nats://`, `kafka://`, `amqp://` or `redis://`. Every worker of this app runs the
        bridge, and `daybreak bridge` does without a worker.

        Each message of the topic `incoming` becomes one job of the task; a message that cannot is put into the topic
        `dead`, by default the incoming one with `.dead`, with the reason. With `form="arguments"` the whole message is
        the job's arguments; `read` is a function for messages of other systems. The queue, by default named after the
        task, starts with `max_running` and `capacity`; if it is full, messages stay in their topic. Events of the
        task's jobs, with `every_task` of all jobs, are sent to the topic `outgoing` as CloudEvents from `source`:
        all but `progress`, or those of the kinds `events`. Bridges with the same `name`, by default the incoming
        topic, share the messages."""
        from daybreak.feeds.bridge.declaration import add_bridge  # noqa: PLC0415 - few apps have bridges

        return add_bridge(
            self, url, task, incoming=incoming, outgoing=outgoing, dead=dead, name=name, form=form, read=read,
            queue=queue or "", events=events, every_task=every_task, source=source, max_running=max_running,
            capacity=capacity,
        )  # fmt: skip

    # -- sagas ---------------------------------------------------------------------------------------------------------

    def saga(self, name: str, *, undo_tries: int = 5) -> Saga:
        """A saga of this app's tasks: `app.saga("execute").step(allocate, undo=release)`. Its steps run one after the
        other, each a job; if one of them does not complete, those that did are undone in reverse order."""
        from daybreak.sagas.saga import Saga  # noqa: PLC0415 - many programs have no sagas

        return Saga(name, undo_tries=undo_tries, app=self)

    def find_saga(self, id: str) -> SagaRun:  # noqa: A002 - the name that users know
        """Return a handle on a saga by its id. The first operation on the handle shows whether it exists."""
        from daybreak.sagas.saga_run import SagaRun  # noqa: PLC0415

        return SagaRun(self, id)

    async def asagas(self, *, state: str | None = None, name: str | None = None) -> list[SagaInfo]:
        """The sagas of the store, the newest first: all, those in a state, or of a name."""
        from daybreak.sagas.saga_info import all_sagas  # noqa: PLC0415

        return await self._sessions.here(self._with_client(functools.partial(all_sagas, state=state, name=name)))

    sagas = blocking(asagas)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the name that users know
        """Return a handle on a job by its id. The first operation on the handle shows whether the job exists."""
        if not isinstance(id, str):
            raise BadInput(f"a job's id is a string, not {id!r:.60}")
        return JobHandle(self._sessions, self.program, id, self.worker_command)

    async def afind(
        self,
        *,
        state: States = None,
        reason: Reason | str | None = None,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        run: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        priority: object = None,  # noqa: A002, RUF100
        tag: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Iterate over the jobs that match, newest first. If only queued jobs are selected, they come in the order in
        which they will run. Pages are fetched during the iteration. `app.job(info.id)` is the handle of a job."""
        where = _where(
            state=state,
            reason=reason,
            queue=queue,
            task=task,
            run=run,
            owner=owner,
            key=key,
            priority=priority,
            tag=tag,
        )
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise BadInput(f"find(limit={limit!r:.40}): limit is the largest number of jobs; leave it out for all jobs")
        left, cursor = limit, None
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = await self._sessions.here(self._page(where, size, cursor))
            for job in page.jobs:
                whole, decode = await self._sessions.files.whole(job)
                yield info_of(whole, self.program, decode)
            left = None if left is None else left - len(page.jobs)
            if (cursor := page.cursor) is None:
                return

    find = blocking_iter(afind)

    async def _page(self, where: Mapping[str, Any], limit: int, cursor: str | None) -> Page:
        return await (await self._sessions.client()).find(limit=limit, cursor=cursor, **where)

    async def acount(
        self,
        *,
        state: States = None,
        reason: Reason | str | None = None,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        run: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        priority: object = None,  # noqa: A002, RUF100
        tag: str | None = None,
    ) -> int:
        """Count the jobs that match. The store keeps counts by state, queue, task and priority; any other filter scans
        the jobs."""
        where = _where(
            state=state,
            reason=reason,
            queue=queue,
            task=task,
            run=run,
            owner=owner,
            key=key,
            priority=priority,
            tag=tag,
        )
        counts = await self._sessions.here(self._with_client(lambda client: client.count(**where)))
        return sum(counts.values())

    count = blocking(acount)

    async def afinish(
        self,
        job: JobHandle[Any] | str,
        result: object = None,
        *,
        fence: int | None = None,
        error: BaseException | Failure | str | None = None,
        permanent: bool = False,
        cancelled: bool = False,
        timed_out: bool = False,
        note: str = "",
        by: str | None = None,
    ) -> Finished:
        """End a job whose work went on elsewhere (`ctx.detach`): with its result, or with how it ended otherwise.

        `fence` is the number that `ctx.fence` gave to the attempt; without it, the attempt that is detached now is
        ended. A result has the type that the task returns, or its plain form. An `error` is an exception or a text, and
        is retried as that of any attempt unless it is `permanent`. The same outcome again answers as the first time.
        AttemptOver if the attempt has ended otherwise."""
        from daybreak.api.detached_jobs import Report, finish  # noqa: PLC0415 - few programs finish jobs

        report = Report(
            result=result, error=error, permanent=permanent, cancelled=cancelled, timed_out=timed_out, note=note
        )
        return await self._sessions.here(
            finish(self._sessions, self.program, self.hooks, _job_id(job), report, fence=fence, by=by)
        )

    finish = blocking(afinish)

    async def aextend(
        self, job: JobHandle[Any] | str, deadline: object, *, fence: int | None = None, by: str | None = None
    ) -> JobInfo:
        """Give a job whose work goes on elsewhere a new deadline, counted from now."""
        until = duration(deadline, "deadline")
        extended = await self._sessions.here(
            self._with_client(lambda client: client.extend(_job_id(job), until, fence=fence, by=by))
        )
        whole, decode = await self._sessions.files.whole(extended)
        return info_of(whole, self.program, decode)

    extend = blocking(aextend)

    def queue(self, name: str) -> QueueHandle:
        """Return a handle on a queue: to add and take items without workers, to inspect, pause and change it."""
        from daybreak.api.queues import QueueHandle  # noqa: PLC0415 - not needed where workers take the jobs

        return QueueHandle(lambda: self._sessions, self.hooks, name)

    def resource(self, name: str) -> ResourceHandle:
        """Return a handle on a shared resource: to inspect it, and to change it while it is in use."""
        from daybreak.api.locks.slots import ResourceHandle  # noqa: PLC0415

        return ResourceHandle(lambda: self._sessions, name)

    async def aresources(self) -> list[ResourceInfo]:
        """Every resource that is in use, waited for or set up."""
        from daybreak.api.resources import all_resources  # noqa: PLC0415

        return await self._sessions.here(self._with_client(all_resources))

    resources = blocking(aresources)

    def lock(
        self,
        *names: str,
        priority: object = "normal",  # noqa: A002, RUF100
        wait: object = "5m",
        lease: object = "10s",
        on_lost: Callable[[Lock], object] | None = None,
        owner: str | None = None,
    ) -> Lock:
        """Return a lock on one name or several, for `with`, `async with` or as a decorator. Waiters are served by
        priority. A waiter gives up after `wait`; None waits forever. `owner` names the holder if it is not this app's
        `by`."""
        from daybreak.api.locks import Lock  # noqa: PLC0415

        if self.program.rules:
            priority = self._lock_priority(names, _priority(priority), owner)
        return Lock(
            lambda: self._sessions, names, priority=priority, wait=wait, lease=lease, on_lost=on_lost, owner=owner
        )

    def _lock_priority(self, names: tuple[str, ...], priority: int, owner: str | None) -> int:
        request = Admission(
            task="lock", args={"names": names}, by=self.by, queue="lock", priority=priority, owner=owner
        )
        return apply_rules(self.program.rules, request).priority

    def retrying(self, retry: object = "default", *, resource: str | None = None) -> Retrying:
        """Apply the retry policy of jobs to code that is not a job, as a decorator: `@app.retrying(3)`. With a
        resource, each attempt also holds one of its slots."""
        from daybreak.api.locks.retry import Retrying  # noqa: PLC0415

        return Retrying(retry, None if resource is None else self.resource(resource))

    def limit_time(
        self,
        kind: str,
        resource: str,
        *,
        base: object = None,
        adaptive: bool = True,
        bounds: tuple[float, float] = (0.5, 3.0),
        pace: float = 0.1,
        window: object = "24h",
        escalate: float = 1.5,
        escalate_after: int = 3,
        max_escalations: int = 5,
    ) -> TimeLimit:
        """Return a time limit for code that is not a job: `async with app.limit_time("connection", "db"):`. The kinds
        are wait, acquisition, renewal, connection and operation; each has a default base.

        An `adaptive` limit follows the durations of the last `window`, between two multiples of the base, the `bounds`.
        With a higher `pace`, fewer durations are enough to move it. After `escalate_after` timeouts in a row the limit
        is multiplied by `escalate`, at most `max_escalations` times."""
        from daybreak.api.locks.time_limit import TimeLimit  # noqa: PLC0415
        from daybreak.policy.timeouts import LimitRules  # noqa: PLC0415

        lowest, highest = bounds
        rules = LimitRules(
            adaptive=adaptive, lowest=lowest, highest=highest, pace=pace, window=duration(window, "window"),
            escalate=escalate, escalate_after=escalate_after, max_escalations=max_escalations,
        )  # fmt: skip
        return TimeLimit(lambda: self._sessions, kind, resource, base=base, rules=rules)

    @property
    def cache(self) -> CacheHandle:
        """The known results of cached tasks: what they saved, why a job found none, and how to drop them."""
        from daybreak.api.cache import CacheHandle  # noqa: PLC0415 - few programs ask

        return CacheHandle(self._sessions)

    async def astats(self, queue: str | None = None) -> Stats:
        """Totals of one queue or of all queues: jobs, time limits and retries."""
        from daybreak.api.stats import stats_of  # noqa: PLC0415

        return await self._sessions.here(self._with_client(lambda client: stats_of(client, queue)))

    stats = blocking(astats)

    async def atrends(
        self, since: object = "24h", *, by: str = "queue", resolution: str | None = None, queue: str | None = None
    ) -> Trends:
        """What happened since `since`, and how long jobs waited and ran, in one queue or in all queues.

        `since` is an age such as "7d", a timedelta, or an aware datetime; at most 30 days. `by` is "queue", "priority"
        or "task"; `resolution` is "minute", "hour" or "day", chosen by the age if left out."""
        from daybreak.api.trends import trends_of  # noqa: PLC0415

        return await self._sessions.here(
            self._with_client(lambda client: trends_of(client, since, by=by, resolution=resolution, queue=queue))
        )

    trends = blocking(atrends)

    async def alocks(self) -> list[Waiter]:
        """All lock holders, then all waiters in the order in which they will get the lock."""
        from daybreak.api.locks import all_waiters  # noqa: PLC0415

        return await self._sessions.here(self._with_client(all_waiters))

    locks = blocking(alocks)

    async def _with_client(self, call: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        return await call(await self._sessions.client())

    async def aas_completed(self, jobs: Iterable[JobHandle[R]], timeout: object = None) -> AsyncIterator[JobHandle[R]]:  # noqa: ASYNC109
        """Iterate over the jobs in the order in which they become final."""
        limit = None if timeout is None else duration(timeout, "timeout")
        async for handle in as_completed(self._sessions, jobs, limit):
            yield handle

    as_completed = blocking_iter(aas_completed)

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def asweep(
        self,
        task: Task[..., Any],
        grid: Mapping[str, Any] | None = None,
        *,
        rows: Any = None,
        fixed: Mapping[str, Any] | None = None,
        samples: Any = None,
        seed: int = 0,
        name: str,
        fresh: bool = False,
        accept_changes: bool = False,
        stop_after: int | None = None,
        notify: Any = None,
        **options: Unpack[JobOptions],
    ) -> Run:
        """Submit a job for each point of a sweep, as one run. The same call again continues the run: what has a job is
        not submitted a second time, whatever was killed in between.

        In a `grid`, a list, a range or an array varies, and anything else is the same for every point. `rows` are a
        list of mappings, the path of a CSV file or a data frame; `samples` draws points, repeatable by `seed`. `fixed`
        are further arguments. If the points or the task's code are not as they were when the run was submitted before,
        RunChanged says how; `accept_changes` continues it all the same, and `fresh` runs every point anew.

        `stop_after=k` pauses the run if its first k jobs to end fail alike. `notify` tells somebody when the run ends
        or pauses: "desktop", a command as a list of words, or the address of a webhook. The options are those of
        `task.using(...)`."""
        refuse_during_import("sweep")
        from daybreak.runs.sweep import sweep  # noqa: PLC0415 - many programs have no runs

        return await sweep(
            self, task, grid, rows=rows, fixed=fixed, samples=samples, seed=seed, name=name, fresh=fresh,
            accept_changes=accept_changes, stop_after=stop_after, notify=notify, options=options,
        )  # fmt: skip

    sweep = blocking(asweep)

    async def aplan_sweep(
        self,
        task: Task[..., Any],
        grid: Mapping[str, Any] | None = None,
        *,
        rows: Any = None,
        fixed: Mapping[str, Any] | None = None,
        samples: Any = None,
        seed: int = 0,
        name: str,
        fresh: bool = False,
        accept_changes: bool = False,
        **options: Unpack[JobOptions],
    ) -> SweepPlan:
        """What `sweep` would do with the same arguments: how many points there are, have run and would run, and what
        has changed since the run was submitted. Nothing is written."""
        from daybreak.runs.sweep import plan_sweep  # noqa: PLC0415

        return await plan_sweep(
            self, task, grid, rows=rows, fixed=fixed, samples=samples, seed=seed, name=name, fresh=fresh,
            accept_changes=accept_changes, options=options,
        )  # fmt: skip

    plan_sweep = blocking(aplan_sweep)

    async def afind_run(self, name: str) -> Run:
        """A handle on the run of this name; RunNotFound says what comes closest. `NAME#1` is how the run was before it
        was begun anew with `fresh`."""
        from daybreak.runs.sweep import find_run  # noqa: PLC0415

        return await find_run(self, name)

    find_run = blocking(afind_run)

    async def aruns(self) -> list[RunInfo]:
        """Every run of the store, the newest first."""
        from daybreak.runs.run_info import all_runs  # noqa: PLC0415

        return await self._sessions.here(self._with_client(all_runs))

    runs = blocking(aruns)

    # -- workers -------------------------------------------------------------------------------------------------------

    def worker_command(self) -> str:
        """The command that starts a worker for this app."""
        from daybreak.worker.target import target_of  # noqa: PLC0415

        target = target_of(self)
        return "with app.worker(): ..." if target is None else f"daybreak worker {_short(target)}"

    def worker_settings(self, **options: Unpack[WorkerOptions]) -> WorkerSettings:
        """Parse worker options. They override those of the settings file."""
        from daybreak.api.background_worker import settings_of  # noqa: PLC0415 - loaded with the first worker only

        return settings_of(self.settings.worker, options)

    def worker(self, **settings: Unpack[WorkerOptions]) -> AbstractContextManager[Worker]:
        """Run a worker with its own children in the background of the block. At the end of the block, running jobs
        finish first."""
        refuse_during_import("worker")
        from daybreak.api.background_worker import in_background  # noqa: PLC0415

        return in_background(self, self.worker_settings(**settings))

    def aworker(self, **settings: Unpack[WorkerOptions]) -> AbstractAsyncContextManager[Worker]:
        """Run a worker with its own children in the background of the block. At the end of the block, running jobs
        finish first."""
        refuse_during_import("worker")
        from daybreak.api.background_worker import in_async_background  # noqa: PLC0415

        return in_async_background(self, self.worker_settings(**settings))

    def work(self, until: Literal["idle"] | JobHandle[Any] | Run = "idle", **settings: Unpack[WorkerOptions]) -> None:
        """Run a worker here until every job that this app can run has ended, or until the given job or run has."""
        refuse_during_import("work")
        from daybreak.api.background_worker import until_idle  # noqa: PLC0415

        if until == "idle":
            until_idle(self, self.worker_settings(**settings))
            return
        if not isinstance(until, JobHandle) and not _is_run(until):
            raise BadInput(f"work(until={until!r}): pass 'idle', a job handle or a run")
        with self.worker(**settings):
            until.wait()

    async def awork(
        self, until: Literal["idle"] | JobHandle[Any] | Run = "idle", **settings: Unpack[WorkerOptions]
    ) -> None:
        """Run a worker here until every job that this app can run has ended, or until the given job or run has."""
        refuse_during_import("work")
        from daybreak.api.background_worker import auntil_idle  # noqa: PLC0415

        if until == "idle":
            await auntil_idle(self, self.worker_settings(**settings))
            return
        if not isinstance(until, JobHandle) and not _is_run(until):
            raise BadInput(f"work(until={until!r}): pass 'idle', a job handle or a run")
        async with self.aworker(**settings):
            await until.await_()

    def run_worker(self, settings: WorkerSettings, target: str | None = None) -> int:
        """Run a worker in this thread until a signal stops it, as `daybreak worker` does. Returns the exit code."""
        from daybreak.api.background_worker import make_worker  # noqa: PLC0415
        from daybreak.worker.supervisor.process import serve  # noqa: PLC0415

        return serve(lambda: make_worker(self, settings, target), self.aclose)

    # -- spool ---------------------------------------------------------------------------------------------------------

    async def aspool_status(self) -> SpoolStatus:
        """What waits in the spool: how many jobs, since when, what was set aside, and the last error."""
        file = self._spooled.file
        return await file.thread.call(file.status)

    spool_status = blocking(aspool_status)

    async def aflush_spool(self) -> int:
        """Forward all jobs of the spool now, and return how many. Without this call they are forwarded in the
        background. Raises StoreUnavailable if the store is away."""
        return await self._sessions.here(self._spooled.flush())

    flush_spool = blocking(aflush_spool)

    @property
    def _spooled(self) -> SpooledSubmits:
        if self._sessions.spool is None:
            raise BadInput(
                "this app has no spool: name a local file, with Daybreak(url, spool='jobs.spool'), DAYBREAK_SPOOL or "
                "spool in daybreak.toml"
            )
        return self._sessions.spool

    # -- close ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the store's connections. Using the app again opens them again."""
        self.hooks.close()
        if self._open_sessions is not None:
            self._open_sessions.close()

    async def aclose(self) -> None:
        """Close the store's connections. Using the app again opens them again."""
        await asyncio.to_thread(self.hooks.close)
        if self._open_sessions is not None:
            await self._open_sessions.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _job_id(job: object) -> str:
    if isinstance(job, JobHandle):
        return job.id
    if isinstance(job, str):
        return job
    raise BadInput(f"{job!r:.60} is no job: pass its handle or its id")


def _is_run(value: object) -> bool:
    from daybreak.runs.run import Run  # noqa: PLC0415 - many programs have no runs

    return isinstance(value, Run)


class _Register(Protocol):
    """The type of `@app.task(...)`: a decorator that keeps the type of the function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


_priority = priority


def _where(*, task: object, **where: Any) -> dict[str, Any]:
    """Filters as the client takes them. `task` may be a task object or a name."""
    return {**where, "task": task.name if isinstance(task, Task) else task}


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the options that the task's definition stores itself."""
    own = dict(options)
    if "priority" in own:
        own["priority"] = priority(own["priority"])
    aliases = own.get("aliases", ())
    own["aliases"] = (aliases,) if isinstance(aliases, str) else tuple(aliases)
    return own


def _managed(decorator: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a generator function into a context manager. Any other function is checked when it is called: it must return
    a context manager."""
    if inspect.isasyncgenfunction(function):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextlib.contextmanager(function)
    error = (
        f"{decorator} {_name_of(function)} neither yields nor returns a context manager: "
        "write the code that runs before, then a bare yield, then the code that runs after"
    )
    if inspect.iscoroutinefunction(function):
        raise BadInput(error)

    @functools.wraps(function)
    def checked(*args: Any) -> Any:
        manager = function(*args)
        if not (hasattr(type(manager), "__enter__") or hasattr(type(manager), "__aenter__")):
            raise BadInput(error)
        return manager

    return checked


def _check_call(decorator: str, function: Callable[..., Any], arguments: str, *counts: int) -> None:
    """Check that the function can be called with one of these numbers of arguments."""
    if not callable(function):
        raise BadInput(f"{function!r:.80} is not a function: write @app.{decorator} above a def")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # the function is not written in Python
        return
    for count in counts:
        with contextlib.suppress(TypeError):
            signature.bind(*range(count))
            return
    raise BadInput(f"{decorator} {_name_of(function)} is called with {arguments}, but its signature is {signature}")


def _name_of(function: Callable[..., Any]) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))


def _short(target: str) -> str:
    """The target relative to the working directory."""
    here = str(Path.cwd()) + os.sep
    return target.removeprefix(here).removesuffix(":app") if target.startswith(here) else target
