"""What the simulation itself promises: time that jumps, processes that die, a network that forgets."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from random import Random

import pytest
from harness.loop import START, Deadlock, SimLoop, run_now
from harness.process import OUTSIDE, Process, discard, own_tasks
from harness.world import ProcessWorld, SimWorld


@pytest.fixture
def loop():
    loop = SimLoop(Random(1))
    loop.set_task_factory(own_tasks)
    yield loop
    loop.close()


def test_a_year_passes_at_once(loop):
    loop.run_until_complete(asyncio.sleep(365 * 86_400))
    assert loop.time() == START + 365 * 86_400


def test_timers_of_one_instant_go_off_in_the_order_they_were_set(loop):
    heard = []
    for name in "abc":
        loop.call_later(1, heard.append, name)
    loop.run_until_complete(asyncio.sleep(2))
    assert heard == ["a", "b", "c"]


def test_the_seed_alone_decides_a_shuffled_order():
    def order(seed):
        loop, heard = SimLoop(Random(seed), shuffle=True), []
        for number in range(20):
            loop.call_soon(heard.append, number)
        loop.run_until_complete(asyncio.sleep(1))
        loop.close()
        return heard

    assert order(1) == order(1) != order(2)


def test_a_wait_for_nothing_is_an_error_and_no_hang(loop):
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_a_store_that_waits_cannot_be_simulated(loop):
    with pytest.raises(RuntimeError, match="must run to its end at once"):
        run_now(asyncio.sleep(0))


def test_a_killed_process_takes_along_what_its_libraries_started(loop):
    process, heard = Process("p", loop), []

    async def deep():
        await asyncio.sleep(1)
        heard.append("deep")

    async def main():
        asyncio.create_task(deep())  # noqa: RUF006 - a library that forgets what it started
        await asyncio.sleep(1)
        heard.append("main")

    process.spawn(main())
    loop.call_later(0.5, process.kill)
    loop.run_until_complete(asyncio.sleep(2))
    assert heard == []


def test_a_killed_process_takes_no_further_step_not_even_to_clean_up(loop):
    process, heard = Process("p", loop), []

    async def main():
        try:
            await asyncio.sleep(1)
        finally:
            heard.append("cleaned up")

    process.spawn(main())
    loop.call_later(0.5, process.kill)
    loop.run_until_complete(asyncio.sleep(2))
    assert heard == []
    loop.run_until_complete(_discard_all())
    assert heard == ["cleaned up"], "but nothing is left for the garbage collector"


async def _discard_all():
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        discard(task)


def test_a_frozen_process_takes_no_step_and_loses_none(loop):
    process, heard = Process("p", loop), []

    async def main():
        woken = asyncio.Event()
        loop.call_later(1, woken.set, context=OUTSIDE)
        await woken.wait()
        heard.append(loop.time() - START)

    process.spawn(main())
    process.call_later(1.5, lambda: heard.append(loop.time() - START))
    loop.call_later(0.5, process.freeze, 10)
    loop.run_until_complete(asyncio.sleep(20))
    assert heard == [10.5, 10.5]


def test_threads_are_not_started(loop):
    async def main():
        return await asyncio.to_thread(threading.get_ident)

    assert loop.run_until_complete(main()) == threading.get_ident()


def test_a_frozen_process_wakes_late_and_its_steady_clock_went_on(loop):
    process = Process("p", loop)
    world = ProcessWorld(SimWorld(loop, Random(1)), process)

    async def nap():
        before = world.steady()
        await world.sleep(timedelta(seconds=1))
        return world.steady() - before

    task = process.spawn(nap())
    loop.call_later(0.5, process.freeze, 10)
    loop.run_until_complete(asyncio.sleep(20))
    assert task.result() == 10_500_000
