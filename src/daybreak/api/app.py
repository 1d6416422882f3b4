"""Daybreak: the app. Composes everything below, decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

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
from daybreak.tasks.context import Context
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.options import TaskOptions, WorkerOptions, check_task_options
from daybreak.tasks.registry import Definition, Program

if TYPE_CHECKING:
    from daybreak import config
    from daybreak.api.locks import Lock, Waiter
    from daybreak.api.locks.retry import Retrying
    from daybreak.api.locks.slots import ResourceHandle
    from daybreak.api.locks.time_limit import TimeLimit
    from daybreak.api.queues import QueueHandle
    from daybreak.api.resources import ResourceInfo
    from daybreak.api.stats import Stats
    from daybreak.api.trends import Trends
    from daybreak.worker.settings import WorkerSettings
    from daybreak.worker.supervisor.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
States = State | str | Iterable[State | str] | None
PAGE: Final = 500  # jobs that `find` fetches at a time


class Daybreak:
    """An app: tasks, and the store their jobs are in. Connections open on first use.

    The store is `url`, else what DAYBREAK_URL, daybreak.toml or pyproject.toml say, else the file daybreak.db here.
    `imports` names modules that define more tasks; `by` is written into every change that is made through this app."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "",
        by: str | None = None,
        imports: Iterable[str] = (),
        world: World | None = None,
    ) -> None:
        self.name = name
        self.by = whoami() if by is None else by
        self.program = Program()
        self.imports = [imports] if isinstance(imports, str) else list(imports)
        self._said = url
        self.world = world or RealWorld()
        self.hooks = Hooks(self.world)
        self._settings: config.Settings | None = None
        self._made: Sessions | None = None
        self._making: dict[int, threading.Lock] = {}  # by process: in a fork nobody would let go of the other's

    def __repr__(self) -> str:
        return f"<Daybreak on {self.settings.store}, {counted(len(self.program), 'task')}>"

    @property
    def settings(self) -> config.Settings:
        if self._settings is None:
            from daybreak import config  # noqa: PLC0415

            self._settings = config.resolve(self._said)
        return self._settings

    def use(self, url: str) -> None:
        """Work on another store from now on."""
        self._said = url
        self._settings = None
        if self._made is not None:
            self._made.close()
            self._made = None

    @property
    def _sessions(self) -> Sessions:
        """The open stores of this process, one per event loop."""
        if self._made is None:
            # Or two threads that begin together would each have their own store.
            with self._making.setdefault(os.getpid(), threading.Lock()):
                if self._made is None:
                    url, connecting = self.settings.url, ConnectTimeout(self.world)
                    self._made = Sessions(lambda: store_for(url, connecting), self.world, self.by, connecting)
        return self._made

    @property
    def portal(self) -> Portal:
        """Where blocking calls run."""
        return self._sessions.portal

    _portal = portal

    async def client(self) -> Client:
        """The async client of the running loop, for everything that has no method here."""
        return await self._sessions.client()

    # -- declaring -----------------------------------------------------------------------------------------------------

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
        """Register a function as a task: `@app.task` or `@app.task(retry=3, timeout="10m", ...)`. A `timeout` holds as
        written; `Adaptive("10m")` follows how long the task's jobs take. The options are those of
        `daybreak.tasks.options.TaskOptions`."""
        check_task_options(options)
        own = {name: options.pop(name) for name in Definition.OWN if name in options}

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            definition = Definition(function, **_own(own), options=parse_options(**options))
            self.program.add(definition)
            return self._task(definition)

        return register if function is None else register(function)

    def _task(self, definition: Definition) -> Task[..., Any]:
        return Task(definition, self)

    def find_task(self, name: str) -> Task[..., Any]:
        """A registered task by its name or an alias; UnknownTask says what comes closest."""
        return self._task(self.program[name])

    def rule(self, function: F) -> F:
        """Let a function judge every job of a task before it is accepted, and every lock: it takes an `Admission`, and
        returns what it changes (`{"priority": "high"}`) or None; it raises NotAllowed to refuse."""
        check_rule(function)
        self.program.rules.append(function)
        return function

    def setup(self, function: F) -> F:
        """Run in every child before its first job; may take `shared`, which jobs see as `ctx.shared`, and may yield."""
        _check_call("setup", function, "nothing, or `shared`", 0, 1)
        self.program.setups.append(function)
        return function

    def wrap(self, function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """A generator function around every job: what stands before its yield runs before, what stands after, after. It
        is no async one, also around async tasks."""
        if inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise BadInput(
                f"wrap {_called(function)} is async, and sync tasks have no loop to await it on: "
                "write def instead of async def"
            )
        _check_call("wrap", function, "the context", 1)
        self.program.wraps.append(_managed("wrap", function))
        return function

    def lifespan(self, function: F) -> F:
        """A generator function around a worker's life, sync or async; a dict it yields is found in `ctx.shared`."""
        _check_call("lifespan", function, "nothing", 0)
        self.program.lifespans.append(_managed("lifespan", function))
        return function

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        """Call a function when something of these kinds happens to a job; `*` is everything."""
        return self.hooks.on(*kinds, durable=durable, name=name)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the word users know
        """A handle on a job of which only the id is known. Whether it exists shows when something is asked of it."""
        if not isinstance(id, str):
            raise BadInput(f"a job's id is a text, not {id!r:.60}")
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
        """The jobs that match, newest first; queued ones alone in the order in which they will run. They are fetched
        page by page while one goes through them. `app.job(info.id)` is the handle that changes one."""
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
            raise BadInput(f"find(limit={limit!r:.40}): write how many jobs at most, or leave it out for all")
        left, cursor = limit, None
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = await self._sessions.here(self._page(where, size, cursor))
            for job in page.jobs:
                yield info_of(job, self.program)
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
        """How many jobs match. Without a filter, or by state, queue, task and priority, the store has the number ready;
        other filters look at every job that they may mean."""
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

    def queue(self, name: str) -> QueueHandle:
        """A handle on a queue: to add and take items without workers, to look at it, to pause it and change it."""
        from daybreak.api.queues import QueueHandle  # noqa: PLC0415 - not needed where workers do the taking

        return QueueHandle(lambda: self._sessions, self.hooks, name)

    def resource(self, name: str) -> ResourceHandle:
        """A handle on something that jobs share: to look at it, and to change it while it is in use."""
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
        """A lock, or several at once, for `with`, `async with` or as a decorator. Whoever waits stands in line by
        priority, for at most `wait`; None waits for ever. `owner` is for whom, where it is not for this app's `by`."""
        from daybreak.api.locks import Lock  # noqa: PLC0415

        if self.program.rules:
            priority = self._judged_lock(names, _priority(priority), owner)
        return Lock(
            lambda: self._sessions, names, priority=priority, wait=wait, lease=lease, on_lost=on_lost, owner=owner
        )

    def _judged_lock(self, names: tuple[str, ...], priority: int, owner: str | None) -> int:
        asked = Admission(task="lock", args={"names": names}, by=self.by, queue="lock", priority=priority, owner=owner)
        return apply_rules(self.program.rules, asked).priority

    def retrying(self, retry: object = "default", *, resource: str | None = None) -> Retrying:
        """The retry policy of jobs around code that is no job, as a decorator: `@app.retrying(3)`. With a resource,
        each try also holds a slot of it."""
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
        """A time limit around code that is no job: `async with app.limit_time("connection", "db"):`. Kinds are wait,
        acquisition, renewal, connection and operation; each has a base.

        An `adaptive` limit follows the durations of the last `window`, between two multiples of the base, the `bounds`.
        A higher `pace` lets fewer durations move it. A limit that was too short `escalate_after` times in a row is
        raised by the factor `escalate`, at most `max_escalations` times."""
        from daybreak.api.locks.time_limit import TimeLimit  # noqa: PLC0415
        from daybreak.policy.timeouts import LimitRules  # noqa: PLC0415

        lowest, highest = bounds
        rules = LimitRules(
            adaptive=adaptive, lowest=lowest, highest=highest, pace=pace, window=duration(window, "window"),
            escalate=escalate, escalate_after=escalate_after, max_escalations=max_escalations,
        )  # fmt: skip
        return TimeLimit(lambda: self._sessions, kind, resource, base=base, rules=rules)

    async def astats(self, queue: str | None = None) -> Stats:
        """What has happened so far, of one queue or of all: jobs, time limits and retries, in numbers."""
        from daybreak.api.stats import stats_of  # noqa: PLC0415

        return await self._sessions.here(self._with_client(lambda client: stats_of(client, queue)))

    stats = blocking(astats)

    async def atrends(
        self, since: object = "24h", *, by: str = "queue", resolution: str | None = None, queue: str | None = None
    ) -> Trends:
        """What happened since then, and how long jobs waited and ran, in one queue or in all.

        `since` is an age such as "7d", a timedelta, or an aware datetime; at most 30 days. `by` is "queue", "priority"
        or "task"; `resolution` is "minute", "hour" or "day", chosen by the age if left out."""
        from daybreak.api.trends import trends_of  # noqa: PLC0415

        return await self._sessions.here(
            self._with_client(lambda client: trends_of(client, since, by=by, resolution=resolution, queue=queue))
        )

    trends = blocking(atrends)

    async def alocks(self) -> list[Waiter]:
        """Everyone who holds a lock, then everyone who waits for one, the first in line first."""
        from daybreak.api.locks import all_waiters  # noqa: PLC0415

        return await self._sessions.here(self._with_client(all_waiters))

    locks = blocking(alocks)

    async def _with_client(self, ask: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        return await ask(await self._sessions.client())

    async def aas_completed(self, jobs: Iterable[JobHandle[R]], timeout: object = None) -> AsyncIterator[JobHandle[R]]:  # noqa: ASYNC109
        """The jobs in the order in which they become final."""
        limit = None if timeout is None else duration(timeout, "timeout")
        async for handle in as_completed(self._sessions, jobs, limit):
            yield handle

    as_completed = blocking_iter(aas_completed)

    # -- working -------------------------------------------------------------------------------------------------------

    def worker_command(self) -> str:
        """The command that starts a worker for this app."""
        from daybreak.worker.target import target_of  # noqa: PLC0415

        target = target_of(self)
        return "with app.worker(): ..." if target is None else f"daybreak worker {_short(target)}"

    def worker_settings(self, **said: Unpack[WorkerOptions]) -> WorkerSettings:
        """Worker settings from words, over those of the settings file."""
        from daybreak.api.background_worker import settings_of  # noqa: PLC0415 - what only workers need is loaded with the first

        return settings_of(self.settings.worker, said)

    def worker(self, **settings: Unpack[WorkerOptions]) -> AbstractContextManager[Worker]:
        """A worker in the background of the block, with children of its own. Leaving the block lets what runs end."""
        refuse_during_import("worker")
        from daybreak.api.background_worker import in_background  # noqa: PLC0415

        return in_background(self, self.worker_settings(**settings))

    def aworker(self, **settings: Unpack[WorkerOptions]) -> AbstractAsyncContextManager[Worker]:
        """A worker in the background of the block, with children of its own. Leaving the block lets what runs end."""
        refuse_during_import("worker")
        from daybreak.api.background_worker import in_async_background  # noqa: PLC0415

        return in_async_background(self, self.worker_settings(**settings))

    def work(self, until: Literal["idle"] | JobHandle[Any] = "idle", **settings: Unpack[WorkerOptions]) -> None:
        """Work here until every job this app could run has ended, or until a job has."""
        refuse_during_import("work")
        from daybreak.api.background_worker import until_idle  # noqa: PLC0415

        if until == "idle":
            until_idle(self, self.worker_settings(**settings))
            return
        if not isinstance(until, JobHandle):
            raise BadInput(f"work(until={until!r}): write 'idle' or a job's handle")
        with self.worker(**settings):
            until.wait()

    async def awork(self, until: Literal["idle"] | JobHandle[Any] = "idle", **settings: Unpack[WorkerOptions]) -> None:
        """Work here until every job this app could run has ended, or until a job has."""
        refuse_during_import("work")
        from daybreak.api.background_worker import auntil_idle  # noqa: PLC0415

        if until == "idle":
            await auntil_idle(self, self.worker_settings(**settings))
            return
        if not isinstance(until, JobHandle):
            raise BadInput(f"work(until={until!r}): write 'idle' or a job's handle")
        async with self.aworker(**settings):
            await until.await_()

    def run_worker(self, settings: WorkerSettings, target: str | None = None) -> int:
        """Work in this thread until a signal says otherwise: what `daybreak worker` does. Answers the exit code."""
        from daybreak.api.background_worker import make_worker  # noqa: PLC0415
        from daybreak.worker.supervisor.process import serve  # noqa: PLC0415

        return serve(lambda: make_worker(self, settings, target), self.aclose)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the store. Using the app again opens it anew."""
        self.hooks.close()
        if self._made is not None:
            self._made.close()

    async def aclose(self) -> None:
        """Let go of the store. Using the app again opens it anew."""
        await asyncio.to_thread(self.hooks.close)
        if self._made is not None:
            await self._made.aclose()

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


class _Register(Protocol):
    """What `@app.task(...)` gives: the decorator itself, typed by the function it is put on."""

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
    """Filters as the client takes them; a task may be named by itself."""
    return {**where, "task": task.name if isinstance(task, Task) else task}


def _own(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a task's definition keeps itself, as it is kept."""
    own = dict(said)
    if "priority" in own:
        own["priority"] = priority(own["priority"])
    aliases = own.get("aliases", ())
    own["aliases"] = (aliases,) if isinstance(aliases, str) else tuple(aliases)
    return own


def _managed(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function as a context manager; of any other it is seen when it is called whether it makes one."""
    if inspect.isasyncgenfunction(function):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextlib.contextmanager(function)
    error = (
        f"{what} {_called(function)} neither yields nor returns a context manager: "
        "write what comes before, then a bare yield, then what comes after"
    )
    if inspect.iscoroutinefunction(function):
        raise BadInput(error)

    @functools.wraps(function)
    def checked(*args: Any) -> Any:
        made = function(*args)
        if not (hasattr(type(made), "__enter__") or hasattr(type(made), "__aenter__")):
            raise BadInput(error)
        return made

    return checked


def _check_call(what: str, function: Callable[..., Any], takes: str, *counts: int) -> None:
    """Whether it can be called with so many arguments."""
    if not callable(function):
        raise BadInput(f"{function!r:.80} is no function: write @app.{what} above a def")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # one that is not written in Python
        return
    for count in counts:
        with contextlib.suppress(TypeError):
            signature.bind(*range(count))
            return
    raise BadInput(f"{what} {_called(function)} is called with {takes}, and takes {signature}")


def _called(function: Callable[..., Any]) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))


def _short(target: str) -> str:
    """A target as one would type it from here."""
    here = str(Path.cwd()) + os.sep
    return target.removeprefix(here).removesuffix(":app") if target.startswith(here) else target
