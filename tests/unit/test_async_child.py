"""A child for async tasks, driven by messages like those of a supervisor."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from daybreak import Daybreak, values
from daybreak.worker.child import async_loop
from daybreak.worker.child.async_loop import MAX_STARTS_PER_ITERATION, AsyncChild
from daybreak.worker.child.runner import Runner
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import Exit, Frames, Report, Run, Stop, Work, to_supervisor

app = Daybreak("memory://")
word: contextvars.ContextVar[str | None] = contextvars.ContextVar("word", default=None)
begun: list[int] = []
running: set[int] = set()
side_by_side: list[int] = []


BLOCKS = 1000
tables: list[SlotTable] = []
blamed: list[int] = []


@app.task
async def remember(n: int) -> str | None:
    begun.append(n)
    if n == BLOCKS:
        until = time.monotonic() + 30
        while not (blocker := tables[-1].blocker) and time.monotonic() < until:
            time.sleep(0.01)  # noqa: ASYNC251
        blamed.append(blocker)
    found = word.get()
    word.set(f"left by {n}")
    if n % 2:
        running.add(n)
        side_by_side.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(n)
    return found


def work(n: int, priority: int = 5) -> Work:
    args = remember.definition.arguments.encode((n,), {})
    return Work(n + 1, f"job-{n}", "remember", 1, args, "default", priority, 1, 3, 1)


class Supervisor:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = Frames(to_supervisor)
        self.ended: dict[int, tuple[str, object]] = {}
        self.fences: list[tuple[int, str]] = []

    async def hear(self, jobs: int) -> dict[int, tuple[str, object]]:
        """Wait until so many jobs have ended; how each ended, and its result."""
        async with asyncio.timeout(30):
            while len(self.ended) < jobs:
                data = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 16)
                assert data, "the child has exited"
                for message in self._frames.feed(data):
                    if isinstance(message, Report):
                        self._note(message)
        return self.ended

    def _note(self, report: Report) -> None:
        for one in report.ended:
            self.fences.append((one.fence, one.status))
            assert one.seq not in self.ended or one.fence > 1, "reported twice"
            self.ended[one.seq] = (one.status, None if one.result is None else values.decode(one.result))


@asynccontextmanager
async def child_of(slots: int):
    begun.clear()
    side_by_side.clear()
    ours, its = socket.socketpair()
    ours.setblocking(False)
    its.setblocking(False)
    with ours:
        tables.append(SlotTable(slots))
        child = AsyncChild(its, tables[-1], Runner(app.program), slots)
        serving = asyncio.create_task(child.serve())
        while not hasattr(child, "_reporting"):  # noqa: ASYNC110 - it is not connected yet, and there is no event
            await asyncio.sleep(0.001)
        yield child, Supervisor(ours)
        child.on_message(Exit())
        assert await serving


async def test_each_job_has_its_own_context():
    """Also a job that starts right after another one has ended."""
    async with child_of(slots=2) as (child, supervisor):
        child.on_message(Run([work(n) for n in range(100)]))
        assert await supervisor.hear(100) == {n + 1: ("done", None) for n in range(100)}


async def test_a_job_cancelled_before_its_first_step_is_reported_and_frees_its_slot():
    async with child_of(slots=1) as (child, supervisor):
        child.on_message(Run([work(n) for n in range(3)]))
        child.on_message(Stop(1, 1, "cancel"))
        ended = await supervisor.hear(3)
        assert begun == [1, 2], ended
    assert ended == {1: ("cancelled", None), 2: ("done", None), 3: ("done", None)}


async def test_two_runs_of_one_job_under_different_fences_are_told_apart():
    """A stop of the older run does not touch the new one, and each reports its own fence and frees its own slot."""
    async with asyncio.timeout(30), child_of(slots=2) as (child, supervisor):
        older = work(1)
        child.on_message(Run([older]))
        child.on_message(Run([msgspec.structs.replace(older, fence=3)]))
        while len(child._running) < 2:  # noqa: ASYNC110 - it starts in the next iteration
            await asyncio.sleep(0)
        child.on_message(Stop(older.seq, older.fence, "lost"))
        while len(supervisor.fences) < 2:
            supervisor.ended.clear()
            await supervisor.hear(1)
    assert supervisor.fences == [(1, "handed back"), (3, "done")]


async def test_an_urgent_job_starts_before_waiting_work():
    """A few jobs start per loop iteration: an urgent job that is read between two iterations goes first."""
    async with child_of(slots=100) as (child, supervisor):
        loop = asyncio.get_running_loop()
        child.on_message(Run([work(2 * n, priority=9) for n in range(500)]))

        def interrupt() -> None:
            at.append(len(begun))
            child.on_message(Run([work(1001, priority=1)]))

        at: list[int] = []
        for _ in range(3):
            await asyncio.sleep(0)
        loop.call_soon(interrupt)
        await supervisor.hear(501)
    assert 0 < at[0] < 500
    assert begun.index(1001) - at[0] <= 2 * MAX_STARTS_PER_ITERATION


async def test_all_slots_are_used_and_no_more():
    async with child_of(slots=20) as (child, supervisor):
        child.on_message(Run([work(2 * n + 1) for n in range(200)]))
        await supervisor.hear(200)
    assert sorted(begun) == [2 * n + 1 for n in range(200)]
    assert max(side_by_side) == 20


async def test_tasks_may_end_inside_create_task():
    """As with an eager task factory."""

    def at_once(loop, coro, **options):
        done = loop.create_future()
        try:
            options["context"].run(coro.send, None)
        except StopIteration as ended:
            done.set_result(ended.value)
        return done

    async with child_of(slots=3) as (child, supervisor):
        loop = asyncio.get_running_loop()
        loop.set_task_factory(at_once)
        try:
            child.on_message(Run([work(2 * n) for n in range(100)]))
            while len(begun) < 100:  # noqa: ASYNC110 - it starts a few per iteration
                await asyncio.sleep(0)
        finally:
            loop.set_task_factory(None)
        assert await supervisor.hear(100) == {2 * n + 1: ("done", None) for n in range(100)}


async def test_a_leaving_child_starts_no_more_jobs():
    async with child_of(slots=2) as (child, _):
        child.on_message(Run([work(2 * n + 1) for n in range(50)]))
        child.on_message(Exit())
        while running or not begun:  # noqa: ASYNC110 - jobs that have started run to their end
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
    assert begun == [1, 3]


async def test_the_watching_thread_stays_awake_for_a_while_between_jobs(monkeypatch):
    """Waking the thread delays the start of a job, so it stays awake for a while after the last one."""
    monkeypatch.setattr(async_loop, "BLOCKED_AFTER", 0.01)
    monkeypatch.setattr(async_loop, "IDLE_CHECKS", 150)
    async with child_of(slots=2) as (child, supervisor):
        assert not child._busy.is_set()
        for n in (2, 4):
            child.on_message(Run([work(n)]))
            await supervisor.hear(n // 2)
            assert not child._running
            await asyncio.sleep(0.05)
            assert child._busy.is_set()
        async with asyncio.timeout(30):
            while child._busy.is_set():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        child.on_message(Run([work(6)]))
        assert child._busy.is_set()
        await supervisor.hear(3)


@pytest.mark.parametrize("after", ["rest", "another"])
async def test_a_job_that_blocks_the_loop_is_named(after):
    async with child_of(slots=2) as (child, supervisor):
        if after == "another":
            child.on_message(Run([work(8)]))
            await supervisor.hear(1)
        child.on_message(Run([work(10), work(BLOCKS)]))
        await supervisor.hear(3 if after == "another" else 2)
    assert blamed.pop() == BLOCKS + 1
