"""Daybreak: the app. Composes everything below, decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import importlib.util
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, overload

import msgspec

from daybreak import config
from daybreak.client import Client
from daybreak.context import Context
from daybreak.errors import BadInput, NotImportable
from daybreak.hooks import Hooks
from daybreak.importing import refuse_during_import
from daybreak.jobs import JobHandle, as_completed
from daybreak.model import JobSpec
from daybreak.policy.words import options_of, spec_of
from daybreak.sessions import Sessions
from daybreak.store import Store
from daybreak.stores import store_for
from daybreak.submitting import Task
from daybreak.sync import Portal, blocking_iter
from daybreak.tasks import Definition, Program
from daybreak.units import duration, priority
from daybreak.worker.commands import add_commands
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.target import target_of
from daybreak.worker.worker import Worker
from daybreak.world import RealWorld, World

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("daybreak.worker")


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
        self.by = _user() if by is None else by
        self.program = Program()
        self.imports = [imports] if isinstance(imports, str) else list(imports)
        self._said = url
        self._world = world or RealWorld()
        self.hooks = Hooks(self._world)
        self._settings: config.Settings | None = None
        self._made: Sessions | None = None
        self._store_maker: Callable[[], Store] | None = None
        self._target: str | None = None

    def __repr__(self) -> str:
        return f"<Daybreak {self.settings.url}, {len(self.program)} tasks>"

    @property
    def settings(self) -> config.Settings:
        if self._settings is None:
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
        if self._made is None:
            make = self._store_maker or (lambda: store_for(self.settings.url))
            self._made = Sessions(make, self._world, self.by)
        return self._made

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

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
    def task(
        self,
        *,
        name: str | None = ...,
        version: int = ...,
        aliases: Iterable[str] = ...,
        queue: str = ...,
        priority: object = ...,
        retry: object = ...,
        timeout: object = ...,
        expires_in: object = ...,
        keep: object = ...,
        escalate: float = ...,
        deaths: int = ...,
    ) -> _Register: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        aliases: Iterable[str] = (),
        queue: str = "default",
        priority: object = "normal",
        retry: object = "default",
        timeout: object = None,
        expires_in: object = None,
        keep: object = None,
        escalate: float = 1.5,
        deaths: int = 3,
    ) -> Any:
        """Register a function as a task: `@app.task` or `@app.task(retry=3, timeout="10m", ...)`."""

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            definition = Definition(
                function,
                name=name,
                version=version,
                aliases=(aliases,) if isinstance(aliases, str) else tuple(aliases),
                queue=queue,
                priority=_priority(priority),
                options=options_of(
                    retry=retry, timeout=timeout, expires_in=expires_in, keep=keep, escalate=escalate, deaths=deaths
                ),
            )
            self.program.add(definition)
            return self._task(definition)

        return register if function is None else register(function)

    def _task(self, definition: Definition) -> Task[..., Any]:
        return Task(definition, self.program, lambda: self._sessions, self._spec, self.worker_command, self._submitted)

    def find_task(self, name: str) -> Task[..., Any]:
        """A registered task by its name or an alias; UnknownTask says what comes closest."""
        return self._task(self.program[name])

    def setup(self, function: F) -> F:
        """Run in every child before its first job; may take `shared`, which jobs see as `ctx.shared`, and may yield."""
        self.program.setups.append(function)
        return function

    def wrap(self, function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """A generator function around every job: what stands before its yield runs before, what stands after, after."""
        self.program.wraps.append(_managed(function))
        return function

    def lifespan(self, function: F) -> F:
        """A generator function around a worker's life, sync or async; a dict it yields is found in `ctx.shared`."""
        self.program.lifespans.append(_managed(function))
        return function

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        """Call a function when something of these kinds happens to a job; `*` is everything."""
        return self.hooks.on(*kinds, durable=durable, name=name)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _spec(self, definition: Definition, options: Mapping[str, Any]) -> JobSpec:
        """What all jobs of a task with these options have in common."""
        said = dict(options)
        own = {name: said.pop(name) for name in ("retry", "timeout", "expires_in", "keep") if name in said}
        said.setdefault("queue", definition.queue)
        said.setdefault("priority", definition.priority)
        said.setdefault("id", "template")
        return spec_of(
            definition.name,
            b"{}",
            version=definition.version,
            by=self.by,
            options=options_of(definition.options, run=said.get("run"), **own),
            **said,
        )

    def _submitted(self, spec: JobSpec, job: str) -> None:
        self.hooks.submitted(spec, job)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the word users know
        """A handle on a job of which only the id is known. Whether it exists shows when something is asked of it."""
        return JobHandle(self._sessions, self.program, id, self.worker_command)

    async def aas_completed(self, jobs: Iterable[JobHandle[R]], timeout: object = None) -> AsyncIterator[JobHandle[R]]:  # noqa: ASYNC109
        """The jobs in the order in which they become final."""
        limit = None if timeout is None else duration(timeout, "timeout")
        async for handle in as_completed(list(jobs), limit):
            yield handle

    as_completed = blocking_iter(aas_completed)

    # -- working -------------------------------------------------------------------------------------------------------

    def worker_command(self) -> str:
        """The command that starts a worker for this app."""
        target = target_of(self)
        return "with app.worker(): ..." if target is None else f"daybreak worker {_short(target)}"

    def worker_settings(self, **said: Any) -> WorkerSettings:
        """Worker settings from words, over those of the settings file."""
        words = {**self.settings.worker, **{name: value for name, value in said.items() if value is not None}}
        if unknown := set(words) - set(WorkerSettings.__struct_fields__):
            raise BadInput(
                f"a worker has no setting {', '.join(sorted(unknown))}; "
                f"there are {', '.join(WorkerSettings.__struct_fields__)}"
            )
        for name in ("lease_for", "grace", "cancel_grace"):
            if name in words:
                words[name] = duration(words[name], name)
        if "queues" in words:
            words["queues"] = (words["queues"],) if isinstance(words["queues"], str) else tuple(words["queues"])
        settings = WorkerSettings(**words)
        settings.check()
        return settings

    async def _make_worker(self, settings: WorkerSettings, target: str | None = None) -> Worker:
        if settings.allow_commands:
            add_commands(self.program)
        client = await self._sessions.client()
        target = target or self._target or target_of(self)
        isolation = settings.isolation or self._isolation(client.store, target)
        if isolation == "process":
            self._check_importable(target)
        return Worker(
            client.store,
            self.program,
            msgspec.structs.replace(settings, isolation=isolation),
            self._world,
            target=target or "",
            imports=self._modules(),
            url=self.settings.url,
            app=self.name or target or "",
            ears=self.hooks,
            beside=[lambda: self.hooks.follow(client)] if self.hooks.is_durable else [],
        )

    def _isolation(self, store: Store, target: str | None) -> Literal["process", "thread"]:
        if not store.traits.shared:
            return "thread"  # a child process could not reach the jobs' own store
        if target is None:
            _log.warning(
                "these tasks live in no file that a child process could import: they run in threads of this process, "
                "which cannot be ended by a time limit"
            )
            return "thread"
        return "process"

    def _check_importable(self, target: str | None) -> None:
        if target is None:
            raise NotImportable(
                "this app is made inside a function or a notebook, where a child process cannot find it: "
                "move it to the top of a module, or use worker(isolation='thread')"
            )
        for definition in self.program:
            if definition.is_nested:
                raise NotImportable(
                    f"task {definition.name!r} is defined inside a function, where a child process cannot find it: "
                    "move it to the top of a module, or use worker(isolation='thread')"
                )

    def _modules(self) -> list[str]:
        """Modules that a child must import besides the app's own to know all tasks."""
        mine = (definition.function.__module__ for definition in self.program)
        names = [name for name in mine if name != "__main__" and not name.startswith(("daybreak.", "daybreak_script_"))]
        return list(dict.fromkeys([*self.imports, *(name for name in names if _is_findable(name))]))

    @contextlib.contextmanager
    def worker(self, **settings: Any) -> Iterator[Worker]:
        """A worker in the background of the block, with children of its own. Leaving the block lets what runs end."""
        refuse_during_import("worker")
        wanted = self.worker_settings(**settings)
        working = self._portal.run(self._start(wanted))
        try:
            yield working.worker
        finally:
            self._finish(working)

    def _finish(self, working: _Working) -> None:
        working.worker.stop_from_outside()
        while True:
            try:
                self._portal.run(working.wait())
            except KeyboardInterrupt:
                working.worker.stop_from_outside()  # a second time: now
            else:
                return

    @contextlib.asynccontextmanager
    async def aworker(self, **settings: Any) -> AsyncIterator[Worker]:
        """A worker in the background of the block, with children of its own. Leaving the block lets what runs end."""
        refuse_during_import("worker")
        wanted = self.worker_settings(**settings)
        working = await asyncio.wrap_future(self._portal.spawn(self._start(wanted)))
        try:
            yield working.worker
        finally:
            working.worker.stop_from_outside()
            await asyncio.wrap_future(self._portal.spawn(working.wait()))

    async def _start(self, settings: WorkerSettings) -> _Working:
        worker = await self._make_worker(settings)
        working = _Working(worker)
        await working.begin()
        return working

    def work(self, until: Literal["idle"] | JobHandle[Any] = "idle", **settings: Any) -> None:
        """Work here until every job this app could run has ended, or until a job has."""
        refuse_during_import("work")
        if until == "idle":
            self._work_until_idle(settings)
            return
        if not isinstance(until, JobHandle):
            raise BadInput(f"work(until={until!r}): write 'idle' or a job's handle")
        with self.worker(**settings):
            until.wait()

    def _work_until_idle(self, settings: dict[str, Any]) -> None:
        wanted = msgspec.structs.replace(self.worker_settings(**settings), until_idle=True)
        working = self._portal.run(self._start(wanted))
        try:
            self._portal.run(working.wait())
        except BaseException:
            self._finish(working)
            raise

    def run_worker(self, settings: WorkerSettings, target: str | None = None) -> int:
        """Work in this thread until a signal says otherwise: what `daybreak worker` does. Answers the exit code."""
        from daybreak.worker.serving import serve  # noqa: PLC0415 - signals and all that only a process of its own has

        return serve(lambda: self._make_worker(settings, target), self.aclose)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the store. Using the app again opens it anew."""
        if self._made is not None:
            self._made.close()

    async def aclose(self) -> None:
        """Let go of the store. Using the app again opens it anew."""
        if self._made is not None:
            await self._made.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class _Working:
    """A worker that runs on the portal's loop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Returns once it takes work; raises what kept it from that."""
        self._task = asyncio.create_task(self.worker.run())
        ready = asyncio.create_task(self.worker.is_ready.wait())
        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()

    async def wait(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)  # who stops waiting does not stop the worker


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


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a name for its user
        return ""


def _managed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function as a context manager; what is one already stays as it is."""
    if inspect.isasyncgenfunction(function):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextlib.contextmanager(function)
    return function


def _is_findable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _short(target: str) -> str:
    """A target as one would type it from here."""
    here = str(Path.cwd()) + os.sep
    return target.removeprefix(here).removesuffix(":app") if target.startswith(here) else target
