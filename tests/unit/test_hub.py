"""Wake-ups inside one process."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from daybreak.stores.wakeups import Wakeups

LONG, SHORT = timedelta(minutes=1), timedelta(milliseconds=1)


async def test_all_who_wait_on_one_watch_go_on():
    hub = Wakeups()
    watch = hub.watch(["work"])
    waiting = [asyncio.create_task(watch.wait(LONG)) for _ in range(3)]
    await asyncio.sleep(0)
    hub.wake(["work"])
    assert any(await asyncio.gather(*waiting))


async def test_each_wait_ends_by_its_own_time():
    watch = Wakeups().watch(["work"])
    patient = asyncio.create_task(watch.wait(LONG))
    assert await asyncio.gather(watch.wait(SHORT), watch.wait(SHORT)) == [False, False]
    assert not patient.done()
    patient.cancel()


async def test_a_wait_that_was_given_up_leaves_the_next_one_alone():
    hub = Wakeups()
    watch = hub.watch(["work"])
    first = asyncio.create_task(watch.wait(LONG))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(watch.wait(LONG))
    await asyncio.sleep(0)
    hub.wake(["work"])
    assert await second


async def test_a_watch_that_was_closed_calls_nobody():
    hub = Wakeups()
    watch = hub.watch(["work"])
    called = []
    watch.on_wake(lambda: called.append(1))
    thread = threading.Thread(target=hub.wake, args=(["work"],))
    thread.start()
    thread.join()  # the wake-up is on its way, and the loop has not gone round
    watch.close()
    await asyncio.sleep(0.01)
    assert called == []
