"""A handle on one job: its result, its state, and what a person may want of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from daybreak import values
from daybreak.api.job_info import JobInfo, info_of
from daybreak.api.job_outcome import JobOutcome
from daybreak.api.portal import Portal, blocking
from daybreak.api.store_sessions import Sessions, homed
from daybreak.api.stuck_waits import inside_a_task
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, ResultTimeout, StoreError
from daybreak.core.events import Event
from daybreak.core.model import Job, State
from daybreak.core.units import ZERO, duration, moment
from daybreak.store.protocol import Amendment, Position
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.registry import Program
from daybreak.worker.supervisor import worker_record

R = TypeVar("R")

PATIENCE: Final = timedelta(seconds=2)
_told: set[str] = set()


class JobHandle(Generic[R]):
    """`await job` is its result. Every blocking method has a twin with an `a` before its name (`wait`: `await_`)."""

    def __init__(self, sessions: Sessions, program: Program, id: str, command: Callable[[], str] | None = None) -> None:  # noqa: A002
        self.id = id
        self._sessions = sessions
        self._program = program
        self._command = command

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __await__(self) -> Generator[Any, Any, R]:
        return self.aresult().__await__()

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def aresult(self, timeout: object = None) -> R:  # noqa: ASYNC109
        """The task's result, once there is one. JobFailed with reason and remote traceback, JobCancelled, or, when
        `timeout` has passed, ResultTimeout, which changes nothing: the job goes on."""
        return (await self.aoutcome(timeout)).result

    result = blocking(aresult)

    async def aoutcome(self, timeout: object = None) -> JobOutcome[R]:  # noqa: ASYNC109
        """How it ended, once it has, as a value: a job that failed or was cancelled raises nothing here. ResultTimeout
        when `timeout` has passed."""
        return JobOutcome(await self.await_(timeout), self._decoded)

    outcome = blocking(aoutcome)

    @homed
    async def await_(self, timeout: object = None) -> Job:  # noqa: ASYNC109
        """The job once it is final, however it ended. ResultTimeout when `timeout` has passed."""
        refuse_during_import("wait")
        limit = None if timeout is None else duration(timeout, "timeout")
        client = await self._sessions.client()
        first = PATIENCE if limit is None else min(PATIENCE, limit)
        try:
            return await client.wait(self.id, first)
        except TimeoutError:
            if first == PATIENCE:
                await self._tell_if_nobody_knows(client)
        try:
            async with inside_a_task(client, self._program, lambda: self.id, after=ZERO, every=PATIENCE):
                return await client.wait(self.id, None if limit is None else limit - first)
        except TimeoutError:
            assert limit is not None
            raise ResultTimeout(self.id, (await client.get(self.id)).state.value, limit) from None

    wait = blocking(await_)

    async def _tell_if_nobody_knows(self, client: Client) -> None:
        """Once for each task: a wait that nobody will end should not look like a slow one."""
        job = await client.get(self.id)
        task = (job.spec.task, job.spec.version)
        if job.spec.task in _told or job.state is not State.QUEUED or task in await known_tasks(client):
            return
        _told.add(job.spec.task)
        version = "" if task[1] == 1 else f" at version {task[1]}"
        if self._command is not None and task in self._program.known():
            cure = f"start one with: {self._command()}"
        else:
            cure = "start one for the app that has it: daybreak worker module:app"
        print(  # noqa: T201 - for the person who waits
            f"daybreak: no live worker knows the task {job.spec.task!r}{version}; {cure}", file=sys.stderr
        )

    def _decoded(self, job: Job) -> R:
        if job.result is None:
            return None  # type: ignore[return-value]
        if job.spec.task in self._program:
            return self._program[job.spec.task].result.decode(job.result)  # type: ignore[no-any-return]
        return values.decode(job.result)  # type: ignore[no-any-return]

    # -- looking -------------------------------------------------------------------------------------------------------

    @homed
    async def ainfo(self) -> JobInfo:
        """All that is known of it now, with its arguments and its result as values."""
        return info_of(await (await self._sessions.client()).get(self.id), self._program)

    info = blocking(ainfo)

    @homed
    async def astate(self) -> State:
        return (await (await self._sessions.client()).get(self.id)).state

    state = blocking(astate)

    @homed
    async def aposition(self) -> Position | None:
        """How many jobs of its queue are before it; None if it is not queued."""
        return await (await self._sessions.client()).position(self.id)

    position = blocking(aposition)

    @homed
    async def ahistory(self) -> list[Event]:
        """Everything that happened to it, in order, with who did it."""
        return await (await self._sessions.client()).history(self.id)

    history = blocking(ahistory)

    # -- changing ------------------------------------------------------------------------------------------------------

    @homed
    async def acancel(self, note: str = "") -> Amendment:
        """`done`: it will never start. `requested`: it runs, was asked to stop, and will end cancelled."""
        return await (await self._sessions.client()).cancel(self.id, note=note)

    cancel = blocking(acancel)

    @homed
    async def asuspend(self, note: str = "") -> Amendment:
        return await (await self._sessions.client()).suspend(self.id, note=note)

    suspend = blocking(asuspend)

    @homed
    async def aresume(self) -> Amendment:
        return await (await self._sessions.client()).resume(self.id)

    resume = blocking(aresume)

    @homed
    async def aretry(self, note: str = "") -> Amendment:
        """Run a finished job again, with a fresh budget of attempts."""
        return await (await self._sessions.client()).retry(self.id, note=note)

    retry = blocking(aretry)

    @homed
    async def areprioritise(self, to: object) -> Amendment:
        return await (await self._sessions.client()).reprioritise(self.id, to)

    reprioritise = blocking(areprioritise)

    @homed
    async def aremove(self) -> Amendment:
        """Forget a finished job."""
        return await (await self._sessions.client()).remove(self.id)

    remove = blocking(aremove)


async def known_tasks(client: Client) -> set[tuple[str, int]]:
    """The tasks that some live worker knows."""
    now: datetime = moment(client.wall())
    try:
        workers = [worker_record.read(found) for found in await client.store.records(worker_record.KIND)]
    except StoreError:
        return set()
    return {task for worker in workers if worker.is_live(now) for task in worker.tasks}


async def as_completed(
    sessions: Sessions, handles: Iterable[JobHandle[R]], limit: timedelta | None = None
) -> AsyncIterator[JobHandle[R]]:
    """The handles in the order in which their jobs become final."""
    left = {handle.id: handle for handle in _handles(handles)}
    finals = _finals(sessions, list(left))
    loop = asyncio.get_running_loop()
    deadline = None if limit is None else loop.time() + limit.total_seconds()
    try:
        while left:
            try:
                async with asyncio.timeout_at(deadline):
                    job = await sessions.here(_next(finals, sessions, left))
            except TimeoutError:
                assert limit is not None
                raise ResultTimeout(next(iter(left)), "not final", limit) from None
            yield left.pop(job.id)
    finally:
        await sessions.here(_close(finals))


def _handles(given: Iterable[JobHandle[R]]) -> list[JobHandle[R]]:
    wanted = "as_completed takes a list of job handles, as submit(...) returns them"
    if not isinstance(given, Iterable):
        raise BadInput(f"{wanted}, not {given!r:.60}")
    handles = list(given)
    for one in handles:
        if not isinstance(one, JobHandle):
            raise BadInput(f"{wanted}, not of {one!r:.60}")
    return handles


async def _finals(sessions: Sessions, ids: list[str]) -> AsyncGenerator[Job, None]:
    async for job in (await sessions.client()).finals(ids):
        yield job


async def _next(finals: AsyncGenerator[Job, None], sessions: Sessions, left: dict[str, JobHandle[Any]]) -> Job:
    first = next(iter(left))
    program = left[first]._program  # noqa: SLF001 - of this module
    async with inside_a_task(await sessions.client(), program, lambda: first, after=PATIENCE, every=PATIENCE):
        return await anext(finals)


async def _close(finals: AsyncGenerator[Job, None]) -> None:
    await finals.aclose()
