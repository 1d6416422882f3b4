"""Workers of an app: how one is set up, and how it runs in the background of a block or until nothing is left to do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from daybreak.api.alerts import AlertWatch
from daybreak.api.alerts.settings import alert_settings
from daybreak.api.resources import provide
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, NotImportable
from daybreak.core.units import duration
from daybreak.store.protocol import Store
from daybreak.tasks.options import check_worker_options
from daybreak.tasks.registry import Program
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.worker import Worker
from daybreak.worker.target import find, target_of

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.worker")


def settings_of(kept: Mapping[str, Any], said: Mapping[str, Any]) -> WorkerSettings:
    """Worker settings from words: what is said outranks what a settings file keeps."""
    words = {**kept, **{name: value for name, value in said.items() if value is not None}}
    check_worker_options(words)
    for name in ("lease_for", "grace", "cancel_grace"):
        if name in words:
            words[name] = duration(words[name], name)
    if isinstance(words.get("queues"), str):
        words["queues"] = (words["queues"],)
    for name, (is_right, how) in _WRITTEN.items():
        if name in words and not is_right(words[name]):
            raise BadInput(f"{name}={words[name]!r}: write {how}")
    if "queues" in words:
        words["queues"] = tuple(words["queues"])
    settings = WorkerSettings(**words)
    settings.check()
    return settings


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


_WRITTEN: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "queues": (lambda value: isinstance(value, Iterable), "a list of names, such as ['mail', 'reports']"),
    "processes": (_is_whole, "a whole number, such as 4"),
    "async_jobs": (_is_whole, "a whole number, such as 100"),
    "recycle_after": (_is_whole, "a whole number of jobs, such as 1000"),
    "memory_limit": (_is_whole, "a whole number of bytes, such as 512 * 1024 * 1024"),
    "isolation": (lambda value: value in ("process", "thread"), "'process' or 'thread'"),
    "allow_commands": (_is_flag, "True or False"),
    "until_idle": (_is_flag, "True or False"),
    "name": (lambda value: isinstance(value, str), "a text"),
}


async def make_worker(app: Daybreak, settings: WorkerSettings, target: str | None = None) -> Worker:
    """A worker for all tasks of an app, on the store of the running loop."""
    if settings.allow_commands:
        from daybreak.worker.child.commands import add_commands  # noqa: PLC0415

        add_commands(app.program)
    client = await app.client()
    await provide(client, app.program.resources())
    target = target or target_of(app)
    isolation = settings.isolation or _isolation(client.store, target)
    if isolation == "process":
        _check_importable(app.program, target)
    launch = ChildPlan(
        program=app.program,
        settings=msgspec.structs.replace(settings, isolation=isolation),
        target=target or "",
        imports=_modules(app),
        url=app.settings.url,
    )
    return Worker(
        client.store,
        launch,
        app.world,
        app=app.name or target or "",
        listener=app.hooks,
        background=_background(app, client),
    )


def _background(app: Daybreak, client: Client) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """What a worker does besides its jobs and services."""
    background: list[Callable[[], Coroutine[Any, Any, None]]] = [client.durations.run]
    if app.hooks.is_durable:
        background.append(lambda: app.hooks.follow(client))
    alerts = alert_settings(app.settings.alerts)
    if alerts.enabled:
        background.append(AlertWatch(client, alerts, app.world).run)
    return background


def _isolation(store: Store, target: str | None) -> Literal["process", "thread"]:
    if not store.traits.shared:
        return "thread"  # a child process could not reach the jobs' own store
    if target is None:
        _log.warning(
            "these tasks live in no file that a child process could import: they run in threads of this process, "
            "which cannot be ended by a time limit"
        )
        return "thread"
    return "process"


def _check_importable(program: Program, target: str | None) -> None:
    if target is None:
        raise NotImportable(
            "this app is made inside a function or a notebook, where a child process cannot find it: "
            "move it to the top of a module, or use worker(isolation='thread')"
        )
    for definition in program:
        if definition.is_nested:
            raise NotImportable(
                f"task {definition.name!r} is defined inside a function, where a child process cannot find it: "
                "move it to the top of a module, or use worker(isolation='thread')"
            )


def _modules(app: Daybreak) -> list[str]:
    """Modules that a child must import besides the app's own to know all tasks."""
    mine = (definition.function.__module__ for definition in app.program)
    names = [name for name in mine if name != "__main__" and not name.startswith(("daybreak.", "daybreak_script_"))]
    return list(dict.fromkeys([*app.imports, *(name for name in names if find(name) is not None)]))


# -- in the background -------------------------------------------------------------------------------------------------


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


async def _start(app: Daybreak, settings: WorkerSettings) -> _Working:
    working = _Working(await make_worker(app, settings))
    await working.begin()
    return working


@contextlib.contextmanager
def in_background(app: Daybreak, settings: WorkerSettings) -> Iterator[Worker]:
    working = app.portal.run(_start(app, settings))
    try:
        yield working.worker
    finally:
        _finish(app, working)


def _finish(app: Daybreak, working: _Working) -> None:
    """Let what runs end; Ctrl-C meanwhile means: now."""
    working.worker.stop_from_outside()
    while True:
        try:
            app.portal.run(working.wait())
        except KeyboardInterrupt:
            working.worker.stop_from_outside()
        else:
            return


@contextlib.asynccontextmanager
async def in_async_background(app: Daybreak, settings: WorkerSettings) -> AsyncIterator[Worker]:
    working = await asyncio.wrap_future(app.portal.spawn(_start(app, settings)))
    try:
        yield working.worker
    finally:
        working.worker.stop_from_outside()
        await asyncio.wrap_future(app.portal.spawn(working.wait()))


async def auntil_idle(app: Daybreak, settings: WorkerSettings) -> None:
    idle = msgspec.structs.replace(settings, until_idle=True)
    async with in_async_background(app, idle) as worker:
        await asyncio.wrap_future(app.portal.spawn(worker.stopped()))


def until_idle(app: Daybreak, settings: WorkerSettings) -> None:
    working = app.portal.run(_start(app, msgspec.structs.replace(settings, until_idle=True)))
    try:
        app.portal.run(working.wait())
    except BaseException:
        _finish(app, working)
        raise
