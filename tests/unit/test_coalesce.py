from __future__ import annotations

import asyncio

import pytest

from daybreak.client.coalescer import Coalescer


class Gate:
    """A send that waits until the test lets it go on, and remembers what it was sent."""

    def __init__(self, *troubles: BaseException | None) -> None:
        self.batches: list[list[int]] = []
        self.troubles = list(troubles)
        self.open = asyncio.Event()

    async def send(self, items: list[int], within: float) -> list[int]:
        self.within = within
        self.batches.append(items)
        await asyncio.sleep(0)  # as any store, it gives others a turn
        await self.open.wait()
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        return [-item for item in items]


async def settle_down() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def start(coalescer: Coalescer[int, int], *items: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.ensure_future(coalescer(item)) for item in items]
    await settle_down()
    return tasks


async def test_a_lone_caller_is_sent_at_once_and_alone():
    gate = Gate()
    [task] = await start(Coalescer(gate.send), 1)
    assert gate.batches == [[1]]
    gate.open.set()
    assert await task == -1


async def test_a_thousand_callers_cost_few_batches_and_each_gets_its_own_answer():
    gate = Gate()
    gate.open.set()
    coalescer = Coalescer(gate.send)
    assert await asyncio.gather(*(coalescer(n) for n in range(1000))) == [-n for n in range(1000)]
    assert len(gate.batches) <= 2


async def test_what_comes_while_a_batch_is_on_its_way_goes_with_the_next():
    gate = Gate()
    coalescer = Coalescer(gate.send)
    tasks = await start(coalescer, 1)
    tasks += await start(coalescer, 2, 3, 4)
    assert gate.batches == [[1]]
    gate.open.set()
    assert await asyncio.gather(*tasks) == [-1, -2, -3, -4]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_no_batch_is_larger_than_the_most_and_the_order_is_kept():
    gate = Gate()
    gate.open.set()
    coalescer = Coalescer(gate.send, max_batch=3)
    await asyncio.gather(*(coalescer(n) for n in range(8)))
    assert gate.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_an_error_reaches_every_caller_of_its_batch_but_not_the_next():
    gate = Gate(None, OSError("disk"))
    coalescer = Coalescer(gate.send)
    first = await start(coalescer, 1)
    second = await start(coalescer, 2, 3)
    gate.open.set()
    await settle_down()
    third = await start(coalescer, 4)
    answers = await asyncio.gather(*first, *second, *third, return_exceptions=True)
    assert [type(a) for a in answers] == [int, OSError, OSError, int]


async def test_a_caller_who_stops_waiting_harms_nobody():
    gate = Gate()
    coalescer = Coalescer(gate.send)
    one, two = await start(coalescer, 1, 2)
    three, four = await start(coalescer, 3, 4)
    two.cancel()
    three.cancel()
    gate.open.set()
    answers = await asyncio.gather(one, two, three, four, return_exceptions=True)
    assert [type(a) for a in answers] == [int, asyncio.CancelledError, asyncio.CancelledError, int]
    assert gate.batches == [[1, 2], [3, 4]], "what was asked is sent all the same"


async def test_the_caller_who_started_the_batch_may_leave():
    gate = Gate()
    coalescer = Coalescer(gate.send)
    [starter] = await start(coalescer, 1)
    rest = await start(coalescer, 2, 3)
    starter.cancel()
    gate.open.set()
    assert await asyncio.gather(*rest) == [-2, -3]
    assert starter.cancelled()


async def test_all_may_leave_and_the_next_caller_is_served():
    gate = Gate()
    coalescer = Coalescer(gate.send)
    for task in await start(coalescer, 1, 2):
        task.cancel()
    gate.open.set()
    await settle_down()
    assert await coalescer(3) == -3


async def test_a_cancelled_send_leaves_nobody_waiting_for_ever():
    gate = Gate(None, asyncio.CancelledError())
    coalescer = Coalescer(gate.send, max_batch=1)
    tasks = await start(coalescer, 1)
    tasks += await start(coalescer, 2, 3)
    gate.open.set()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(a) for a in answers] == [int, asyncio.CancelledError, asyncio.CancelledError]
    assert await coalescer(4) == -4
    assert gate.batches == [[1], [2], [4]], "what its caller was told is cancelled is not sent later"


async def test_a_send_that_answers_too_little_is_an_error_for_its_callers():
    async def send(items: list[int], _: float) -> list[int]:
        return items[:-1]

    coalescer = Coalescer(send)
    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="shorter"):
            await coalescer(1)
