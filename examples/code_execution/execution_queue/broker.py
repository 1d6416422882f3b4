"""Publishes events from tasks: one connection per event loop, which is opened again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from daybreak.client.job_logs import index_put, log_kind, part_name
from daybreak.core.errors import BadInput, StoreError
from daybreak.core.model import Put
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import (
    Channel,
    ChannelError,
    Message,
    MessageTooLarge,
    Outgoing,
    Topics,
)
from execution_queue.events import OUTPUT, RUNS, read_output

if TYPE_CHECKING:
    from daybreak import Daybreak
    from daybreak.store.protocol import Store

_log = logging.getLogger("code_execution")

RECONNECT_AFTER: Final = 0.5
WAIT: Final = timedelta(seconds=1)


class Publisher:
    """Publishes to one broker. While the broker is away, it tries again for `patience` seconds."""

    def __init__(self, url: str, *, patience: float = 0.0) -> None:
        self._address = parse_broker(url)
        self._patience = patience
        self._channel: Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()

    async def publish(self, topic: str, message: Outgoing) -> None:
        """Returns when the broker has the message. Raises ChannelError; then it may have it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            try:
                await self._publish(topic, message)
            except ChannelError as error:
                if isinstance(error, MessageTooLarge) or loop.time() >= until:
                    raise
                _log.debug("%s: %s; trying again", self._address, error)
            else:
                return
            await asyncio.sleep(RECONNECT_AFTER)

    async def _publish(self, topic: str, message: Outgoing) -> None:
        channel = await self._open()
        try:
            await channel.publish(topic, [message])
        except ChannelError:
            if self._channel is channel:  # another caller may have opened the next one
                self._channel = None
            await channel.close()
            raise

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _open(self) -> Channel:
        async with self._opening:
            if self._channel is None or self._loop is not asyncio.get_running_loop():
                channel = make_channel(self._address, Topics(group=""))
                await channel.open()
                self._channel, self._loop = channel, asyncio.get_running_loop()
            return self._channel


class OutputIntake:
    """Writes what pods print into the logs of their executions: one program of the group gets each part. A part that
    comes twice is written over itself."""

    def __init__(self, app: Daybreak, url: str) -> None:
        self._app = app
        self._address = parse_broker(url)
        self._topics = Topics(group="execution-output", incoming=OUTPUT)

    async def run(self) -> None:
        """Run until cancelled."""
        store = (await self._app.client()).store
        while True:
            channel = make_channel(self._address, self._topics)
            try:
                await channel.open()
                while True:
                    messages = await channel.receive(200, WAIT)
                    await self.keep(store, messages)
                    await channel.acknowledge(messages)
            except (ChannelError, StoreError) as error:
                _log.debug("output: %s; connecting again", error)
            finally:
                with contextlib.suppress(Exception):
                    await channel.close()
            await asyncio.sleep(RECONNECT_AFTER)

    @staticmethod
    async def keep(store: Store, messages: list[Message]) -> None:
        """Write the parts in these messages."""
        puts: list[Put] = []
        for message in messages:
            try:
                part = read_output(message.body)
            except BadInput as error:
                _log.warning("output: %s", error)
                continue
            name = part_name(part.run, part.run % RUNS, part.start)
            puts += [
                index_put(part.execution_job),
                Put(kind=log_kind(part.execution_job), name=name, value=part.text.encode()),
            ]
        if puts:
            await store.put(puts)
