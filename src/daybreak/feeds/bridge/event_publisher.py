"""Publishes the events of jobs: at least once, and in order per job, from the cursor that the store keeps."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from daybreak.client.client import Client
from daybreak.client.feed_follower import FeedFollower
from daybreak.core.events import Event
from daybreak.core.text import safe
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError, Outgoing
from daybreak.feeds.bridge.cloud_events import cloud_event
from daybreak.feeds.bridge.declaration import Bridge
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.bridge")

RECORD_KIND: Final = "bridge"  # the cursor; one record per bridge that has an outgoing topic
FIRST_DELAY: Final = timedelta(milliseconds=200)
MAX_DELAY: Final = timedelta(seconds=10)


class EventPublisher:
    """One process at a time publishes the events of a bridge; the others wait to take over. The cursor is stored after
    the broker has confirmed a page of events, so a crash repeats events and loses none."""

    def __init__(self, client: Client, world: World, bridge: Bridge, connect: Callable[[], Channel]) -> None:
        self._client = client
        self._world = world
        self._bridge = bridge
        self._connect = connect
        self._channel: Channel | None = None
        self.published = 0
        self._follower = FeedFollower(
            RECORD_KIND, bridge.name, client.store, world,
            handle_page=self._publish_page, wants=self._is_of_kind,
        )  # fmt: skip

    async def register(self) -> None:
        """Store the cursor, if there is none: events from now on are sent, whatever is killed next."""
        await self._follower.register()

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            await self._follower.run()
        finally:
            await self._disconnect()

    async def _publish_page(self, events: list[Event]) -> None:
        wanted = [event for event in events if self._is_of_task(event)]
        if not wanted:
            return
        jobs = {
            job.id: job
            for job in await self._client.store.get(list({event.job for event in wanted}))
            if job is not None
        }  # fmt: skip
        for turn in in_turns(wanted):
            await self._publish([cloud_event(event, self._bridge.source, jobs.get(event.job)) for event in turn])

    def _is_of_kind(self, event: Event) -> bool:
        return event.kind in self._bridge.event_kinds and bool(event.job)

    def _is_of_task(self, event: Event) -> bool:
        """An event of a job that is gone has no task; it is sent rather than lost."""
        return not self._bridge.event_task or event.task in (None, self._bridge.event_task)

    async def _publish(self, messages: list[Outgoing]) -> None:
        """Publish, and do not give up while the broker cannot be reached."""
        delay, failures = FIRST_DELAY, 0
        while True:
            try:
                if self._channel is None:
                    channel = self._connect()
                    self._channel = channel
                    await channel.open()
                await self._channel.publish(self._bridge.topics.outgoing, messages)
            except ChannelError as error:
                failures += 1
                _log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "bridge %s: events could not be published to %s: %s; trying again",
                    safe(self._bridge.name), self._bridge.address, error,
                )  # fmt: skip
                await self._disconnect()
                await self._world.sleep(delay * (0.5 + self._world.chance.random()))
                delay = min(delay * 2, MAX_DELAY)
            else:
                if failures:
                    _log.info("bridge %s: events are published again", safe(self._bridge.name))
                self.published += len(messages)
                return

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def in_turns(events: list[Event]) -> list[list[Event]]:
    """Split a page so that each part has at most one event of a job. An event is then sent only after the broker has
    confirmed the one before it, while the events of different jobs are sent together."""
    turns: list[list[Event]] = []
    seen: defaultdict[str, int] = defaultdict(int)
    for event in events:
        number = seen[event.job]
        seen[event.job] += 1
        if number == len(turns):
            turns.append([])
        turns[number].append(event)
    return turns
