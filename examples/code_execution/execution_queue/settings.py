"""The settings that an administrator changes while executions run. They are those of the queue, in the store."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from daybreak import Daybreak
from daybreak.feeds.own_queue import provide_queue
from execution_queue.service import EXECUTIONS

DEFAULT_MAX_CONCURRENT: Final = 10
MAX_QUEUE_SIZE: Final = 10_000
MAX_EXECUTIONS_PER_USER: Final = 100
MaxConcurrent = Annotated[int, Meta(ge=1, le=100)]


class SystemSettings(Struct, frozen=True, kw_only=True):
    max_concurrent_executions: MaxConcurrent = DEFAULT_MAX_CONCURRENT


class RuntimeSettingsLoader:
    """Reads and writes the settings. A lower cap ends nothing that runs; a higher one is used at once."""

    def __init__(self, app: Daybreak) -> None:
        self._app = app

    async def load(self) -> SystemSettings:
        queue = await (await self._app.client()).queue(EXECUTIONS)
        cap = DEFAULT_MAX_CONCURRENT if queue.max_running is None else queue.max_running
        return SystemSettings(max_concurrent_executions=cap)

    async def save(self, settings: SystemSettings) -> SystemSettings:
        client = await self._app.client()
        # A worker gives the queue its limits when it first starts, unless somebody has set one before it.
        await provide_queue(client, EXECUTIONS, max_running=DEFAULT_MAX_CONCURRENT, capacity=MAX_QUEUE_SIZE)
        await client.set_queue(EXECUTIONS, max_running=settings.max_concurrent_executions)
        return settings
