"""Workers of an app: builds one, and runs it in the background of a block or until no job is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from daybreak.api.alerts import AlertWatch
from daybreak.api.alerts.settings import alert_settings
from daybreak.api.metrics import instruments
from daybreak.api.resources import provide
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, NotImportable
from daybreak.core.units import duration
from daybreak.files import Blobs
from daybreak.runs.sweep import notice_rights
from daybreak.runs.watch import RunWatch
from daybreak.tasks.options import check_worker_options
from daybreak.tasks.registry import Program
from daybreak.telemetry import sdk
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.store_source import StoreSource
from daybreak.worker.supervisor.worker import Worker
from daybreak.worker.target import find, target_of

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.worker")


def settings_of(from_file: Mapping[str, Any], given: Mapping[str, Any]) -> WorkerSettings:
    """Parse worker options. The given options override those of the settings file."""
    options = {**from_file, **{name: value for name, value in given.items() if value is not None}}
    check_worker_options(options)
    for name in ("lease_for", "grace", "cancel_grace"):
        if name in options:
            options[name] = duration(options[name], name)
    if isinstance(options.get("queues"), str):
        options["queues"] = (options["queues"],)
    for name, (is_valid, expected) in _EXPECTED.items():
        if name in options and not is_valid(options[name]):
            raise BadInput(f"{name}={options[name]!r}: write {expected}")
    if "queues" in options:
        options["queues"] = tuple(options["queues"])
    settings = WorkerSettings(**options)
    settings.check()
    return settings


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


_EXPECTED: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "queues": (lambda value: isinstance(value, Iterable), "a list of names, such as ['mail', 'reports']"),
    "processes": (_is_integer, "a whole number, such as 4"),
    "async_jobs": (_is_integer, "a whole number, such as 100"),
    "recycle_after": (_is_integer, "a whole number of jobs, such as 1000"),
    "memory_limit": (_is_integer, "a whole number of bytes, such as 512 * 1024 * 1024"),
    "isolation": (lambda value: value in ("process", "thread"), "'process' or 'thread'"),
    "allow_commands": (_is_flag, "True or False"),
    "until_idle": (_is_flag, "True or False"),
    "name": (lambda value: isinstance(value, str), "a string"),
}


async def make_worker(app: Daybreak, settings: WorkerSettings, target: str | None = None) -> Worker:
    """Build a worker for all tasks of an app, on the store of the running loop."""
    client = await app.client()
    await provide(client, app.program.resources())
    if app.declared_schedules or app.name:
        from daybreak.api.schedules.declared import provide_schedules  # noqa: PLC0415 - many apps have no schedules

        await provide_schedules(app, client)
    target = target or target_of(app)
    blobs = await app._sessions.files.blobs()  # noqa: SLF001 - the app and its workers are one part
    launch = child_plan(app, settings, target, is_shared=client.store.traits.shared, blobs=blobs)
    background = _background(app, client, settings)
    source = StoreSource(client.store, launch, app.world, app=app.name or target or "")
    source.program = app.program
    worker = Worker(source, launch, app.world, listener=app.hooks, background=background)
    background.append(lambda: _export_metrics(worker, client))
    return worker


def child_plan(
    app: Daybreak, settings: WorkerSettings, target: str | None, *, is_shared: bool = True, blobs: Blobs | None = None
) -> ChildPlan:
    """What children need to run the tasks of an app. Without a store that is shared they are threads."""
    if settings.allow_commands:
        from daybreak.worker.child.commands import add_commands  # noqa: PLC0415

        add_commands(app.program)
    isolation = settings.isolation or _isolation(target, is_shared=is_shared)
    if isolation == "process":
        _check_importable(app.program, target)
    return ChildPlan(
        program=app.program,
        settings=msgspec.structs.replace(settings, isolation=isolation),
        target=target or "",
        imports=_modules(app),
        url=app.settings.url,
        blobs=blobs,
    )


async def _export_metrics(worker: Worker, client: Client) -> None:
    if worker.owns_process:
        sdk.set_up_metrics()
    if instruments.is_on():
        worker.exports_metrics = True
        await instruments.StoreMetrics(client, worker=worker.id).run()


def _background(
    app: Daybreak, client: Client, settings: WorkerSettings
) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """The coroutines that a worker runs besides its jobs and services."""
    background: list[Callable[[], Coroutine[Any, Any, None]]] = [client.durations.run]
    if app.hooks.is_durable:
        background.append(lambda: app.hooks.follow(client))
    spool = app._sessions.spool  # noqa: SLF001 - the app and its workers are one part
    if spool is not None:
        background.append(spool.run)
    alerts = alert_settings(app.settings.alerts)
    if alerts.enabled:
        background.append(AlertWatch(client, alerts, app.world).run)
    rights = notice_rights(app, allow_commands=bool(settings.allow_commands))
    background.append(RunWatch(client, app.world, rights).run)
    if app.watches:
        from daybreak.feeds.drop_folder import FolderWatcher  # noqa: PLC0415 - few apps watch folders

        background += [FolderWatcher(app, client, watch).run for watch in app.watches]
    if app.bridges:
        from daybreak.feeds.bridge import BridgeRunner  # noqa: PLC0415 - few apps have bridges

        background += [BridgeRunner(app, client, bridge).run for bridge in app.bridges]
    return background


def _isolation(target: str | None, *, is_shared: bool) -> Literal["process", "thread"]:
    if not is_shared:
        return "thread"  # a child process could not reach this store
    if target is None:
        _log.warning(
            "these tasks are not defined in a file that a child process could import: they run in threads of this "
            "process, so a time limit cannot stop them"
        )
        return "thread"
    return "process"


def _check_importable(program: Program, target: str | None) -> None:
    if target is None:
        raise NotImportable(
            "this app is created inside a function or a notebook, where a child process cannot find it: "
            "move it to the top of a module, or use worker(isolation='thread')"
        )
    for definition in program:
        if definition.is_nested:
            raise NotImportable(
                f"task {definition.name!r} is defined inside a function, where a child process cannot find it: "
                "move it to the top of a module, or use worker(isolation='thread')"
            )


def _modules(app: Daybreak) -> list[str]:
    """The modules besides the app's own that a child must import to know all tasks."""
    defined_in = [definition.function.__module__ for definition in app.program]
    own = ("daybreak.", "daybreak_script_")
    names = [name for name in defined_in if name != "__main__" and not name.startswith(own)]
    return list(dict.fromkeys([*app.imports, *(name for name in names if find(name) is not None)]))


# -- background --------------------------------------------------------------------------------------------------------


class _RunningWorker:
    """A worker that runs on the portal's loop."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once the worker takes jobs; raise the error that prevented it."""
        self._task = asyncio.create_task(self.worker.run())
        ready = asyncio.create_task(self.worker.is_ready.wait())
        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()

    async def wait(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)  # a cancelled wait does not stop the worker


async def _start(app: Daybreak, settings: WorkerSettings) -> _RunningWorker:
    running = _RunningWorker(await make_worker(app, settings))
    await running.start()
    return running


@contextlib.contextmanager
def in_background(app: Daybreak, settings: WorkerSettings) -> Iterator[Worker]:
    """Run a worker on the portal's loop for the time of the block. At the end, running jobs finish first."""
    running = app.portal.run(_start(app, settings))
    try:
        yield running.worker
    finally:
        _finish(app, running)


def _finish(app: Daybreak, running: _RunningWorker) -> None:
    """Let running jobs finish. Ctrl-C during that time stops them at once."""
    running.worker.stop_from_outside()
    while True:
        try:
            app.portal.run(running.wait())
        except KeyboardInterrupt:
            running.worker.stop_from_outside()
        else:
            return


@contextlib.asynccontextmanager
async def in_async_background(app: Daybreak, settings: WorkerSettings) -> AsyncIterator[Worker]:
    """The async twin of `in_background`."""
    running = await asyncio.wrap_future(app.portal.spawn(_start(app, settings)))
    try:
        yield running.worker
    finally:
        running.worker.stop_from_outside()
        await asyncio.wrap_future(app.portal.spawn(running.wait()))


async def auntil_idle(app: Daybreak, settings: WorkerSettings) -> None:
    """The async twin of `until_idle`."""
    idle = msgspec.structs.replace(settings, until_idle=True)
    async with in_async_background(app, idle) as worker:
        await asyncio.wrap_future(app.portal.spawn(worker.stopped()))


def until_idle(app: Daybreak, settings: WorkerSettings) -> None:
    """Run a worker until every job that the app can run has ended."""
    running = app.portal.run(_start(app, msgspec.structs.replace(settings, until_idle=True)))
    try:
        app.portal.run(running.wait())
    except BaseException:
        _finish(app, running)
        raise
