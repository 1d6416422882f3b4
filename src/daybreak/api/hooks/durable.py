"""Durable hooks: functions called at least once per event, by one worker at a time, from a cursor kept in the store."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from daybreak.api.hooks.hook_thread import HookThread
from daybreak.api.hooks.registry import Hook
from daybreak.client.client import Client
from daybreak.client.feed_follower import FIRST_RETRY_DELAY, FeedFollower
from daybreak.core.events import Event
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.hooks")

RECORD_KIND: Final = "hook"
MAX_ATTEMPTS: Final = 5  # calls per event; after that the event is skipped


class HookFollower:
    """Calls the function of one durable hook, in a thread of its own, for every event that the feed brings."""

    def __init__(self, hook: Hook, client: Client, world: World) -> None:
        self._hook = hook
        self._world = world
        self._thread = HookThread(f"daybreak-hook-{hook.name}")
        self._feed = FeedFollower(RECORD_KIND, hook.name, client.store, world, handle=self._call, wants=self._is_wanted)

    async def run(self) -> None:
        """Call the hook until cancelled. No error of a hook stops its worker."""
        try:
            await self._feed.run()
        finally:
            # Do not wait for the thread: the follower has already waited for a call that is still running.
            self._thread.close(timedelta())

    def _is_wanted(self, event: Event) -> bool:
        return event.kind in self._hook.kinds

    async def _call(self, event: Event) -> None:
        """Call the function until it returns without an error, at most MAX_ATTEMPTS times, with exponential backoff."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            error = await self._thread.call(self._hook.function, event)
            if error is None:
                return
            is_last = attempt == MAX_ATTEMPTS
            _log.log(
                logging.ERROR if is_last else logging.WARNING,
                "hook %s failed for event %s of job %s, attempt %d/%d%s",
                self._hook.name, event.kind, event.job, attempt, MAX_ATTEMPTS,
                "; skipping the event" if is_last else "",
                exc_info=error,
            )  # fmt: skip
            if not is_last:
                await self._world.sleep(FIRST_RETRY_DELAY * 2 ** (attempt - 1))
