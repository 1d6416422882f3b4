"""A handle on one job: its result, its state, and the changes a person may make to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack

from daybreak import values
from daybreak.api.app_files import Decode
from daybreak.api.hooks import ChangedFields
from daybreak.api.job_info import JobInfo, info_of
from daybreak.api.job_outcome import JobOutcome
from daybreak.api.job_release import release_job
from daybreak.api.portal import Portal, blocking
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.api.stuck_waits import watch_wait
from daybreak.api.why import Why, explain, read_situation
from daybreak.client.client import Client
from daybreak.client.job_logs import JobLogs
from daybreak.client.job_stacks import JobStack
from daybreak.core.errors import BadInput, ResultTimeout, StoreError, StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, State
from daybreak.core.units import ZERO, duration, moment, period, priority
from daybreak.store.protocol import Amendment, Position
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.registry import Program
from daybreak.worker.supervisor import worker_record

if TYPE_CHECKING:
    from daybreak.api.spooled_submits import SpooledSubmits

R = TypeVar("R")

HINT_AFTER: Final = timedelta(seconds=2)
ARRIVAL_LIMIT: Final = timedelta(seconds=10)  # for calls on a job that is still in the spool
_hinted_tasks: set[str] = set()


class JobHandle(Generic[R]):
    """A handle on a job; `await job` returns its result. Every blocking method has an async twin whose name starts with
    `a` (for `wait`: `await_`)."""

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

    # -- results -------------------------------------------------------------------------------------------------------

    async def aresult(self, timeout: object = None) -> R:  # noqa: ASYNC109
        """Wait for the task's result. Raises JobFailed with the reason and the remote traceback, JobCancelled, or
        ResultTimeout after `timeout`; a ResultTimeout does not affect the job."""
        return (await self.aoutcome(timeout)).result

    result = blocking(aresult)

    async def aoutcome(self, timeout: object = None) -> JobOutcome[R]:  # noqa: ASYNC109
        """Wait until the job has ended and return how it ended. A failed or cancelled job raises nothing here. Raises
        ResultTimeout after `timeout`."""
        job, decode = await self._sessions.files.whole(await self.await_(timeout))
        return JobOutcome(job, lambda job: self._decoded(job, decode))

    outcome = blocking(aoutcome)

    @on_store_loop
    async def await_(self, timeout: object = None) -> Job:  # noqa: ASYNC109
        """Wait until the job is final, and return it whatever its outcome. Raises ResultTimeout after `timeout`."""
        refuse_during_import("wait")
        limit = None if timeout is None else duration(timeout, "timeout")
        if self._sessions.spool is not None:
            limit = await self._await_arrival(self._sessions.spool, limit)
        client = await self._sessions.client()
        first = HINT_AFTER if limit is None else min(HINT_AFTER, limit)
        try:
            return await client.wait(self.id, first)
        except TimeoutError:
            if first == HINT_AFTER:
                await self._hint_if_no_worker(client)
        try:
            async with watch_wait(client, self._program, lambda: self.id, after=ZERO, every=HINT_AFTER):
                return await client.wait(self.id, None if limit is None else limit - first)
        except TimeoutError:
            assert limit is not None
            raise ResultTimeout(self.id, (await client.get(self.id)).state.value, limit) from None

    wait = blocking(await_)

    async def _await_arrival(self, spool: SpooledSubmits, limit: timedelta | None) -> timedelta | None:
        """Wait until the job has left the spool. Returns what is left of the limit."""
        since = self._sessions.world.steady()
        try:
            self.id = await spool.arrived(self.id, limit, tells=True)
        except StoreUnavailable:
            if limit is None:
                raise
            raise ResultTimeout(self.id, "waiting in the spool", limit) from None
        return None if limit is None else max(limit - period(self._sessions.world.steady() - since), ZERO)

    async def _client(self) -> Client:
        """The client, once the job is in the store. StoreUnavailable if it stays in the spool."""
        if self._sessions.spool is not None:
            self.id = await self._sessions.spool.arrived(self.id, ARRIVAL_LIMIT)
        return await self._sessions.client()

    async def _hint_if_no_worker(self, client: Client) -> None:
        """Print a hint, once per task, if no live worker knows the task: this wait would not end by itself."""
        job = await client.get(self.id)
        task = (job.spec.task, job.spec.version)
        if job.spec.task in _hinted_tasks or job.state is not State.QUEUED or task in await known_tasks(client):
            return
        _hinted_tasks.add(job.spec.task)
        version = "" if task[1] == 1 else f" at version {task[1]}"
        if self._command is not None and task in self._program.known():
            advice = f"start one with: {self._command()}"
        else:
            advice = "start one for the app that defines it: daybreak worker module:app"
        print(  # noqa: T201 - for the person who waits
            f"daybreak: no live worker knows the task {job.spec.task!r}{version}; {advice}", file=sys.stderr
        )

    def _decoded(self, job: Job, decode: Decode) -> R:
        if job.result is None:
            return None  # type: ignore[return-value]
        if job.spec.task in self._program:
            return decode(self._program[job.spec.task].result.decode, job.result)  # type: ignore[no-any-return]
        return decode(values.decode, job.result)  # type: ignore[no-any-return]

    # -- state ---------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def ainfo(self) -> JobInfo:
        """Return the job as it is now, with its arguments and its result as values."""
        job, decode = await self._sessions.files.whole(await (await self._client()).get(self.id))
        return info_of(job, self._program, decode)

    info = blocking(ainfo)

    @on_store_loop
    async def astate(self) -> State:
        return (await (await self._client()).get(self.id)).state

    state = blocking(astate)

    @on_store_loop
    async def aposition(self) -> Position | None:
        """Return how many jobs of its queue are ahead of it; None if it is not queued."""
        return await (await self._client()).position(self.id)

    position = blocking(aposition)

    @on_store_loop
    async def ahistory(self) -> list[Event]:
        """Return its events in order, each with who caused it."""
        return await (await self._client()).history(self.id)

    history = blocking(ahistory)

    @on_store_loop
    async def alogs(self, attempt: int | None = None, *, after: str = "") -> JobLogs:
        """Return what the job has printed and logged: of each attempt the first and the last 64 KiB. With `attempt`
        only of this one; with `after`, the `next` of an earlier answer, only what came later."""
        client = await self._client()
        await client.get(self.id)
        return await client.logs(self.id, attempt=attempt, after=after)

    logs = blocking(alogs)

    @on_store_loop
    async def astack(self) -> JobStack:
        """Return where the running job is now: its Python stack, without local variables, and the memory of its
        process, as its worker answers within 5 s. Raises WrongState if the job is not running."""
        return await (await self._sessions.client()).stack(self.id)

    stack = blocking(astack)

    @on_store_loop
    async def awhy(self) -> Why:
        """Why the job does not run: the causes, what is in the way, and the command that removes each cause."""
        return explain(await read_situation(await self._client(), self.id))

    why = blocking(awhy)

    # -- changes -------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def acancel(self, note: str = "") -> Amendment:
        """Cancel the job. `done`: it will never start. `requested`: it is running, was asked to stop, and will end as
        cancelled."""
        return await self._change(
            "cancelled", lambda client: client.cancel(self.id, note=note), state=State.CANCELLED, note=note
        )

    cancel = blocking(acancel)

    @on_store_loop
    async def asuspend(self, note: str = "") -> Amendment:
        return await self._change(
            "suspended", lambda client: client.suspend(self.id, note=note), state=State.SUSPENDED, note=note
        )

    suspend = blocking(asuspend)

    @on_store_loop
    async def aresume(self) -> Amendment:
        return await self._change("resumed", lambda client: client.resume(self.id))

    resume = blocking(aresume)

    @on_store_loop
    async def aretry(self, note: str = "") -> Amendment:
        """Run a finished job again, with its full number of attempts."""
        return await self._change(
            "retried", lambda client: client.retry(self.id, note=note), state=State.QUEUED, note=note
        )

    retry = blocking(aretry)

    @on_store_loop
    async def astart_now(self, note: str = "") -> Amendment:
        """Queue a scheduled job before its time, or the next attempt before its delay is over."""
        return await (await self._client()).start_now(self.id, note=note)

    start_now = blocking(astart_now)

    @on_store_loop
    async def arelease(self, *, charge: bool = False, note: str = "") -> Amendment:
        """Take a running job away from its worker and return it to its queue. With `charge` the interrupted attempt
        counts, without it does not."""
        return await self._change(
            "released", lambda client: release_job(client, self.id, charge=charge, note=note), note=note
        )

    release = blocking(arelease)

    @on_store_loop
    async def areprioritise(self, to: object) -> Amendment:
        return await self._change(
            "reprioritised", lambda client: client.reprioritise(self.id, to), priority=priority(to)
        )

    reprioritise = blocking(areprioritise)

    @on_store_loop
    async def aremove(self) -> Amendment:
        """Delete a finished job."""
        return await self._change("removed", lambda client: client.remove(self.id))

    remove = blocking(aremove)

    async def _change(
        self, kind: str, change: Callable[[Client], Awaitable[Amendment]], **fields: Unpack[ChangedFields]
    ) -> Amendment:
        """Make the change, and report it to the hooks of this app once the store has made it."""
        client, hooks = await self._client(), self._sessions.hooks
        if hooks is None or not hooks.wants(kind):
            return await change(client)
        before = await client.get(self.id)
        amendment = await change(client)
        if amendment.verdict == "done":
            hooks.changed(kind, before, by=client.by, **fields)
        return amendment


async def known_tasks(client: Client) -> set[tuple[str, int]]:
    """The tasks, with their versions, that at least one live worker can run."""
    now: datetime = moment(client.wall())
    try:
        workers = [worker_record.read(record) for record in await client.store.records(worker_record.KIND)]
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
    expected = "as_completed takes a list of job handles, as submit(...) returns them"
    if not isinstance(given, Iterable):
        raise BadInput(f"{expected}, not {given!r:.60}")
    handles = list(given)
    for handle in handles:
        if not isinstance(handle, JobHandle):
            raise BadInput(f"{expected}, but the list contains {handle!r:.60}")
    return handles


async def _finals(sessions: Sessions, ids: list[str]) -> AsyncGenerator[Job, None]:
    async for job in (await sessions.client()).finals(ids):
        yield job


async def _next(finals: AsyncGenerator[Job, None], sessions: Sessions, left: dict[str, JobHandle[Any]]) -> Job:
    first = next(iter(left))
    program = left[first]._program  # noqa: SLF001 - of this module
    async with watch_wait(await sessions.client(), program, lambda: first, after=HINT_AFTER, every=HINT_AFTER):
        return await anext(finals)


async def _close(finals: AsyncGenerator[Job, None]) -> None:
    await finals.aclose()
