"""A handle on a saga that was started."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from daybreak.api.portal import Portal, blocking
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.saga_changes import cancel_saga, find_saga, resume_saga
from daybreak.core.errors import SagaFailed, SagaTimeout
from daybreak.core.units import duration
from daybreak.policy.sagas import Phase
from daybreak.sagas.saga_info import SagaInfo, info_of_saga, saga_info
from daybreak.store.protocol import SAGAS_TOPIC
from daybreak.tasks.import_guard import refuse_during_import

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

POLL_INTERVAL: Final = timedelta(seconds=1)


class SagaRun:
    """A saga that was started, by its id. Every blocking method has an async twin whose name starts with `a` (for
    `wait`: `await_`)."""

    def __init__(self, app: Daybreak, id: str) -> None:  # noqa: A002 - the name that users know
        self.id = id
        self._app = app

    def __repr__(self) -> str:
        return f"<saga {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SagaRun) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def _sessions(self) -> Sessions:
        return self._app._sessions  # noqa: SLF001 - the app and its handles are one part

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    @on_store_loop
    async def ainfo(self) -> SagaInfo:
        """The saga now: its state, its steps and its context."""
        return await saga_info(await self._sessions.client(), self.id)

    info = blocking(ainfo)

    @property
    def state(self) -> Phase:
        """forward, compensating, completed, compensated or stuck."""
        return self.info().state

    @on_store_loop
    async def await_(self, timeout: object = None) -> SagaInfo:  # noqa: ASYNC109
        """Wait until the saga has completed, was compensated or is stuck, and return it. Raises SagaTimeout after
        `timeout`; the saga continues."""
        refuse_during_import("wait")
        limit = None if timeout is None else duration(timeout, "timeout")
        client = await self._sessions.client()
        watch = client.store.watch([SAGAS_TOPIC])
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds()):
                while True:
                    found = info_of_saga(await find_saga(client, self.id))
                    if found.is_finished or found.state == "stuck":
                        return found
                    what = f"saga {self.id} is {found.state}"
                    await client.wait_for_change(watch, POLL_INTERVAL, what=what, is_limited=limit is not None)
        except TimeoutError:
            raise SagaTimeout(self.id, found.state, limit or timedelta()) from None
        finally:
            watch.close()

    wait = blocking(await_)

    async def aresult(self, timeout: object = None) -> dict[str, Any]:  # noqa: ASYNC109
        """Wait, and return the context of the completed saga. Raises SagaFailed if it was compensated or is stuck."""
        found = await self.await_(timeout)
        if found.state != "completed":
            raise SagaFailed(found.id, found.name, found.state, found.trouble)
        return found.context

    result = blocking(aresult)

    @on_store_loop
    async def acancel(self) -> SagaInfo:
        """Stop the running step, and undo the completed ones. Raises Refused if the saga has completed."""
        client = await self._sessions.client()
        await cancel_saga(client, self.id)
        return await saga_info(client, self.id)

    cancel = blocking(acancel)

    @on_store_loop
    async def aresume(self) -> SagaInfo:
        """Try again to undo the step at which the saga is stuck. Raises Refused if it is not stuck."""
        client = await self._sessions.client()
        await resume_saga(client, self.id)
        return await saga_info(client, self.id)

    resume = blocking(aresume)
