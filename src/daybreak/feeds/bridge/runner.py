"""Runs one bridge: reads messages, publishes events, and reconnects."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.core.text import safe
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError
from daybreak.feeds.bridge.declaration import Bridge
from daybreak.feeds.bridge.event_publisher import EventPublisher
from daybreak.feeds.bridge.intake import Intake
from daybreak.feeds.own_queue import provide_queue

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.bridge")

FIRST_DELAY: Final = timedelta(milliseconds=200)
MAX_DELAY: Final = timedelta(seconds=10)


class BridgeRunner:
    """Runs a bridge until cancelled. Any number of processes may run the same bridge: the broker divides the messages
    among them, and one of them publishes the events."""

    def __init__(self, app: Daybreak, client: Client, bridge: Bridge) -> None:
        self.bridge = bridge
        self._world = app.world
        own = Client(client.store, by=f"bridge {bridge.name}"[:100], world=app.world)
        self._client = own
        self.intake = Intake(app, own, bridge) if bridge.topics.incoming else None
        self.publisher = EventPublisher(own, app.world, bridge, self._connect_out) if bridge.topics.outgoing else None

    def _connect(self) -> Channel:
        return make_channel(self.bridge.address, self.bridge.topics)

    def _connect_out(self) -> Channel:
        """A channel that only publishes: one that also joined the group would get messages and never read them."""
        return make_channel(self.bridge.address, replace(self.bridge.topics, incoming=""))

    def check(self) -> None:
        """Raise BadInput if the library of the broker is not installed."""
        self._connect()

    async def run(self) -> None:
        """Run until cancelled. No error stops the worker."""
        delay = FIRST_DELAY
        while True:
            try:
                self.check()
                await self._prepare()
                delay = FIRST_DELAY
                await self._run()
            except StoreError as error:
                _log.warning("bridge %s: %s; trying again", safe(self.bridge.name), error)
            except Exception as error:  # noqa: BLE001 - the bridge never stops its worker
                _log.warning("bridge %s: %r; trying again", safe(self.bridge.name), error, exc_info=error)
            await self._world.sleep(delay)
            delay = min(delay * 2, MAX_DELAY)

    async def _prepare(self) -> None:
        """What must be in the store before the first message is read."""
        if self.bridge.queue:
            await provide_queue(
                self._client, self.bridge.queue, max_running=self.bridge.max_running, capacity=self.bridge.capacity
            )  # fmt: skip
        if self.publisher is not None:
            await self.publisher.register()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self.intake is not None:
                tasks.create_task(self._read(self.intake))
            if self.publisher is not None:
                tasks.create_task(self.publisher.run())

    async def _read(self, intake: Intake) -> None:
        """Read messages, over a new channel after each error."""
        delay, failures = FIRST_DELAY, 0
        while True:
            channel = self._connect()
            try:
                await channel.open()
                if failures:
                    _log.info("bridge %s: connected to %s again", safe(self.bridge.name), self.bridge.address)
                delay, failures = FIRST_DELAY, 0
                await intake.run(channel)
            except ChannelError as error:
                failures += 1
                _log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "bridge %s: %s: %s; connecting again", safe(self.bridge.name), self.bridge.address, error,
                )  # fmt: skip
            finally:
                await channel.close()
            await self._world.sleep(delay * (0.5 + self._world.chance.random()))
            delay = min(delay * 2, MAX_DELAY)
