"""Daybreak's apps. The store is DAYBREAK_URL; a worker of `coro` has no children for sync tasks, and so on."""

from __future__ import annotations

import asyncio
import time

from benchmarks.apps.record import started
from daybreak import Context, Daybreak, Resource

coro = Daybreak(name="coro")
plain = Daybreak(name="plain")
narrow = Daybreak(name="narrow")  # knows no naps
both = Daybreak(name="both")
sharing = Daybreak(name="sharing")  # every job needs a slot, of which there are enough


async def noop(n: int) -> int:
    started(n)
    return n


async def nap(n: int, seconds: float) -> int:
    started(n)
    await asyncio.sleep(seconds)
    return n


async def long_at_first(ctx: Context, n: int, seconds: float) -> int:
    """The first attempt lasts; the next ones do not."""
    started(n)
    if ctx.attempt == 1:
        await asyncio.sleep(seconds)
    return n


def plain_noop(n: int) -> int:
    started(n)
    return n


def plain_nap(n: int, seconds: float) -> int:
    started(n)
    time.sleep(seconds)
    return n


for _task in (noop, nap, long_at_first):
    coro.task(_task)
for _task in (plain_noop, plain_nap):
    plain.task(_task)
narrow.task(noop)
sharing.task(resource=Resource("licence", slots=10_000))(noop)
for _task in (noop, plain_noop):
    both.task(_task)
