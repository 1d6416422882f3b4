"""The watch: checks the measured values every 15 seconds, decides by `policy.alerts`, and delivers notices. One process
at a time is active.

All state is one record, changed only by compare-and-set, so a change of level is recorded once, however many servers
and workers run. What happens if the process is killed:

- before the record is written: the next check decides the same again.
- after it is written and before a notice is delivered: the record lists the notice as undelivered, and the next
  watch delivers it.
- after it is delivered and before that is recorded: the next watch delivers it again, with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from daybreak.api.alerts.figures import FigureReader
from daybreak.api.alerts.settings import AlertSettings
from daybreak.api.alerts.sinks import Sink, sinks_of
from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.core.model import Put
from daybreak.core.units import moment, span
from daybreak.policy.alerts import AlertState, Notice, delivered, judge
from daybreak.store.protocol import Store
from daybreak.system.ports import Ids, World

_log = logging.getLogger("daybreak.alerts")

RECORD_KIND: Final = "alert"
RECORD_NAME: Final = "state"
CHECK_EVERY: Final = timedelta(seconds=15)
TAKEOVER_AFTER: Final = timedelta(seconds=45)  # without a check by the active watch
ATTEMPTS: Final = 3  # to deliver a notice
FIRST_RETRY_DELAY: Final = timedelta(seconds=2)


class AlertWatch:
    """Watches one store until cancelled."""

    def __init__(self, client: Client, settings: AlertSettings, world: World) -> None:
        self._store = client.store
        self._client = client
        self._settings = settings
        self._world = world
        self._id = Ids(world)()
        self._figures: FigureReader | None = None
        self._sinks: dict[str, Sink] = sinks_of(settings)
        self._seen: tuple[int, int] = (-1, 0)  # the revision of the record, and when it was first seen

    async def run(self) -> None:
        """Check until cancelled. Errors are logged and do not end the checks."""
        while True:
            await self._world.sleep(CHECK_EVERY * (0.9 + 0.2 * self._world.chance.random()))
            try:
                await self.check()
            except StoreError as error:
                _log.warning("could not check alerts: %s; trying again", error)
            except Exception as error:  # noqa: BLE001 - the watch never stops its worker or server
                _log.warning("could not check alerts: %r; trying again", error, exc_info=error)

    async def check(self) -> bool:
        """Check once, unless another process is active. Returns whether this process did."""
        state, revision = await read_state(self._store)
        if not self._may_watch(state, revision):
            self._figures = None
            return False
        if self._figures is None:
            self._figures = FigureReader(self._client)
        now = moment(self._world.wall())
        figures = await self._figures.read()
        thresholds, sinks = self._settings.thresholds, tuple(self._sinks)
        after = judge(state, figures, now, thresholds=thresholds, sinks=sinks)
        written = await self._write(replace(after, holder=self._id), revision)
        if written is None:
            return False
        await self._deliver(after.notices)
        return True

    def _may_watch(self, state: AlertState, revision: int) -> bool:
        now = self._world.steady()
        if revision != self._seen[0]:
            self._seen = (revision, now)
        return state.holder in ("", self._id) or now - self._seen[1] >= span(TAKEOVER_AFTER)

    async def _write(self, state: AlertState, revision: int) -> int | None:
        value = msgspec.json.encode(state)
        [record] = await self._store.put([Put(kind=RECORD_KIND, name=RECORD_NAME, value=value, expect=revision)])
        if record is None:
            return None
        self._seen = (record.revision, self._world.steady())
        return record.revision

    # -- delivery ------------------------------------------------------------------------------------------------------

    async def _deliver(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            for name in notice.undelivered:
                await self._deliver_to(name, notice)

    async def _deliver_to(self, name: str, notice: Notice) -> None:
        sink = self._sinks.get(name)
        error = "this process has no such sink" if sink is None else await self._send(sink, notice)
        if error:
            _log.error("could not deliver alert notice %s to the %s: %s", notice.id, name, error)
        while True:
            state, revision = await read_state(self._store)
            if await self._write(delivered(state, notice.id, name, error), revision) is not None:
                return

    async def _send(self, sink: Sink, notice: Notice) -> str:
        """Deliver the notice, with retries. Returns why it failed, or an empty string."""
        error = ""
        for attempt in range(ATTEMPTS):
            error = await asyncio.to_thread(sink, notice)
            if not error or error.startswith("refused"):  # a retry would be refused too
                return error
            if attempt + 1 < ATTEMPTS:
                await self._world.sleep(FIRST_RETRY_DELAY * 2**attempt)
        return error


async def read_state(store: Store) -> tuple[AlertState, int]:
    """The alerts as they are recorded, and the revision of the record."""
    for record in await store.records(RECORD_KIND, RECORD_NAME):
        try:
            return msgspec.json.decode(record.value, type=AlertState), record.revision
        except msgspec.MsgspecError:
            return AlertState(), record.revision  # written by another version: start with an empty state
    return AlertState(), 0


async def read_alerts(client: Client) -> AlertState:
    """The alerts and the latest notices."""
    return (await read_state(client.store))[0]
