"""A bridge between a real broker and a SQLite store. Jobs are run by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from brokers import Broker

from daybreak import Daybreak
from daybreak.core.model import Done, Job
from daybreak.feeds.bridge.channels.channel import Message, Outgoing, Topics
from daybreak.feeds.bridge.runner import BridgeRunner
from daybreak.testing.contract.builders import claim_jobs, settle

LIMIT = 60


def submit(number: int, *, id: str | None = None, **more: Any) -> Outgoing:  # noqa: A002
    """A message that asks for a job."""
    body = {"version": 1, "kind": "submit", "args": {"number": number}, **more}
    return Outgoing(body=json.dumps(body).encode(), id=id or f"message {number}", key=str(number))


def about(kind: str, id: str, **fields: Any) -> Outgoing:  # noqa: A002
    return Outgoing(body=json.dumps({"version": 1, "kind": kind, **fields}).encode(), id=id)


class BridgeRig:
    """One app with one bridge."""

    def __init__(self, path: Path, broker: Broker, *, cache: bool = False, **options: Any) -> None:
        self.broker = broker
        self.topics = broker.topics()
        self.app = Daybreak(f"sqlite:///{path}/jobs.db")

        @self.app.task(cache=cache)
        def work(number: int) -> int:
            return number

        names = {"incoming": self.topics.incoming, "outgoing": self.topics.outgoing}
        self.bridge = self.app.bridge(broker.url, work, **{**names, **options})

    async def __aenter__(self) -> Self:
        self.client = await self.app.client()
        self.store = self.client.store
        return self

    async def __aexit__(self, *_) -> None:
        await self.app.aclose()

    @contextlib.asynccontextmanager
    async def running(self):
        """The bridge runs during the block."""
        runner = BridgeRunner(self.app, self.client, self.bridge)
        task = asyncio.create_task(runner.run())
        try:
            yield runner
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def send(self, *messages: Outgoing) -> None:
        async with self.broker.open(Topics(group="")) as channel:
            for message in messages:  # one after the other, so that their order is certain
                await channel.publish(self.topics.incoming, [message])

    async def read(self, topic: str, count: int) -> list[Message]:
        """The first messages of a topic."""
        found: list[Message] = []
        async with (
            asyncio.timeout(LIMIT),
            self.broker.open(Topics(group=f"readers-{topic}", incoming=topic)) as channel,
        ):
            while len(found) < count:
                got = await channel.receive(100, timedelta(seconds=0.5))
                await channel.acknowledge(got)
                found += got
        return found

    async def jobs(self) -> list[Job]:
        return [job async for job in self.client.find_all()]

    async def numbers(self) -> list[int]:
        return sorted(json.loads(job.spec.args)["number"] for job in await self.jobs())

    async def run_jobs(self, limit: int = 1000) -> int:
        leases = await claim_jobs(self.store, limit, queues=("work",), now=None)
        for lease in leases:
            assert await settle(self.store, lease, Done(b"1"), now=None)
        return len(leases)


async def until(condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    """Wait for something that will happen soon, whatever the machine does meanwhile."""
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
