"""Answers requests for the current stack of a job that this worker runs. Costs nothing while nobody asks."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from daybreak.client.job_stacks import (
    KEEP_FOR,
    MAX_PROCESSES,
    STACK_KIND,
    JobProcess,
    JobStack,
    StackRequest,
    answer_put,
    done_put,
    requests_for,
)
from daybreak.core.errors import StoreError
from daybreak.core.model import Lease, Put, Record
from daybreak.core.units import clean, moment
from daybreak.store.protocol import Store, worker_topic
from daybreak.system.ports import Clock, Ids, World
from daybreak.tasks.command_tasks import COMMAND_TASKS
from daybreak.values.secret import HIDDEN
from daybreak.values.secret_texts import secret_texts
from daybreak.worker.child.stacks import in_call_order
from daybreak.worker.supervisor.child import Child, HeldLease
from daybreak.worker.supervisor.hang_detector import STACK_POLL_INTERVAL, STACK_TIMEOUT

_log = logging.getLogger("daybreak.worker")

MAX_ANSWERS: Final = 20  # of one worker, in the store at one time
MAX_AT_ONCE: Final = 8
WAIT: Final = timedelta(seconds=30)


class StackRequests:
    """Reads the requests for one worker when it is woken, and writes an answer to each."""

    def __init__(self, store: Store, world: World, worker: str, children: Callable[[], Iterable[Child]]) -> None:
        self._store = store
        self._world = world
        self._clock = Clock(world)
        self._worker = worker
        self._children = children
        self._new_id = Ids(world)
        self._answers: deque[tuple[str, float]] = deque()  # the jobs with an answer in the store, and when it expires
        self._limit = asyncio.Semaphore(MAX_AT_ONCE)
        self._signalling = asyncio.Lock()  # all stacks of a child that are taken by signal go to one file

    async def run(self) -> None:
        """Answer requests, forever."""
        watch = self._store.watch([worker_topic(self._worker)])
        try:
            while True:
                is_woken = await watch.wait(self._patience())
                try:
                    if is_woken:
                        await self._answer_all()
                    await self._forget_old()
                except StoreError as error:
                    _log.info("could not answer a request for the stack of a job: %s", error)
        finally:
            watch.close()

    def _patience(self) -> timedelta:
        """How long to wait for a request: until the first answer in the store expires."""
        if not self._answers:
            return WAIT
        return timedelta(seconds=min(max(self._answers[0][1] - self._clock.now(), 0.001), WAIT.total_seconds()))

    async def _answer_all(self) -> None:
        found = await requests_for(self._store, self._worker)
        await asyncio.gather(*(self._answer(record, request) for record, request in found))

    async def forget_all(self) -> None:
        """Delete the answers of this worker: it stops."""
        await self._delete([self._answers.popleft()[0] for _ in range(len(self._answers))])

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _answer(self, record: Record, request: StackRequest | None) -> None:
        async with self._limit:
            if request is None:
                await self._store.put([done_put(record)])
                return
            answer = await self._stack_of(request)
            await self._store.put([answer_put(answer), done_put(record)])
            self._answers.append((request.job, self._clock.now() + KEEP_FOR.total_seconds()))

    async def _stack_of(self, request: StackRequest) -> JobStack:
        unknown = JobStack(
            job=request.job,
            worker=self._worker,
            fence=request.fence,
            host=socket.gethostname(),
            taken_at=moment(self._world.wall()),
            answer=self._new_id(),
        )
        held = self._find(request)
        if held is None:
            return replace(unknown, note="its worker does not run it any more")
        child, lease = held[0], held[1].lease
        known = replace(unknown, attempt=lease.attempt)
        if lease.seq not in child.running():
            return replace(known, note="it has not started: it waits in its worker for a free slot")
        return await self._running_stack(known, child, held[1])

    def _find(self, request: StackRequest) -> tuple[Child, HeldLease] | None:
        for child in self._children():
            for held in child.held.values():
                if held.lease.job == request.job and held.lease.fence == request.fence:
                    return child, held
        return None

    async def _running_stack(self, known: JobStack, child: Child, held: HeldLease) -> JobStack:
        text, note = await self._read_stack(child, held)
        usage = await asyncio.to_thread(child.handle.usage, MAX_PROCESSES)
        return replace(
            known,
            pid=usage.pid,
            memory=usage.memory,
            shared=usage.shared or child.slots > 1,
            processes=tuple(_process(held.lease, *process) for process in usage.processes),
            text=_masked(clean(text), held.lease),
            note=note,
        )

    async def _read_stack(self, child: Child, held: HeldLease) -> tuple[str, str]:
        """The stack of a job and a note: from its child or, if the interpreter there does not answer, by a signal."""
        held.stack = ""
        child.request_stack(held.lease)
        deadline = self._clock.now() + STACK_TIMEOUT
        while not held.stack and self._clock.now() < deadline:
            await self._clock.sleep(STACK_POLL_INTERVAL)
            if child.held.get(held.lease.seq) is not held:
                return "", "it has just ended"
        if held.stack:
            return held.stack, ""
        no_answer = f"no answer for {STACK_TIMEOUT:g} s"
        async with self._signalling:
            text = in_call_order(await asyncio.to_thread(child.handle.stack))
        if child.handle.is_stopped():
            return text, f"{no_answer}: the process is stopped (SIGSTOP)"
        return text, f"{no_answer}: {_reason(child, held)}"

    # -- old answers ---------------------------------------------------------------------------------------------------

    async def _forget_old(self) -> None:
        now = self._clock.now()
        old = []
        while self._answers and (len(self._answers) > MAX_ANSWERS or self._answers[0][1] <= now):
            old.append(self._answers.popleft()[0])
        kept = {job for job, _ in self._answers}
        await self._delete([job for job in old if job not in kept])

    async def _delete(self, jobs: Iterable[str]) -> None:
        puts = [Put(kind=STACK_KIND, name=job, value=None) for job in dict.fromkeys(jobs)]
        if puts:
            await self._store.put(puts)


def _reason(child: Child, held: HeldLease) -> str:
    """Why the interpreter of a child does not answer."""
    blocker = child.held.get(child.handle.slot_table.blocker)
    if blocker is held:
        return "it blocks the event loop of its process"
    if blocker is not None:
        return f"job {blocker.lease.job} blocks the event loop of its process; this is the stack of that job"
    return "the process is busy in native code"


def _process(lease: Lease, pid: int, command: str, memory: int | None) -> JobProcess:
    """The command line only of a job that runs commands, as its arguments show it too: those that a task starts may
    contain passwords."""
    if lease.spec.task not in COMMAND_TASKS:
        command = command.partition(" ")[0]
    return JobProcess(pid=pid, command=_masked(clean(command), lease), memory=memory)


def _masked(text: str, lease: Lease) -> str:
    for secret in secret_texts(lease.spec.args):
        text = text.replace(secret, HIDDEN)
    return text
