"""pgqueuer, in batches of 100 and on uvloop, as its own command runs it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.apps import portions
from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("pgqueuer", "asyncpg", "uvloop")
WORKER = ("-m", "benchmarks.apps.pgqueuer_app")
BATCH = 100

_loop = asyncio.Runner()
_queries: Any = None


def prepare() -> None:
    _loop.run(_prepare())


async def _prepare() -> None:
    global _queries  # noqa: PLW0603 - one connection for all calls
    _queries = Queries(AsyncpgDriver(await asyncpg.connect(os.environ[URL])))
    await _queries.install()


def enqueue(numbers: range) -> None:
    _loop.run(_enqueue(numbers))


async def _enqueue(numbers: range) -> None:
    for n in numbers:
        await _queries.enqueue("noop", b"%d" % n)


def bulk(numbers: range) -> None:
    _loop.run(_bulk(numbers))


async def _bulk(numbers: range) -> None:
    for some in portions(numbers):
        await _queries.enqueue(["noop"] * len(some), [b"%d" % n for n in some], [0] * len(some))


async def main() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ[URL]))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        started(int(job.payload or b"0"))

    await queue.run(batch_size=BATCH)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
