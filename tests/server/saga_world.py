"""Sagas in every state, without workers: the test is the worker and the driver."""

from __future__ import annotations

from typing import Any

from server_world import Jobs

from daybreak import Daybreak
from daybreak.client.saga_changes import drive_saga
from daybreak.core.model import Done, Failed, Failure
from daybreak.sagas.saga import Saga


class Sagas:
    """Starts sagas of two steps in one queue, and ends their jobs."""

    def __init__(self, app: Daybreak, *, queue: str = "mail", name: str = "execute", step: str = "allocate") -> None:
        @app.task(queue=queue, retry=1)
        def allocate(context: dict) -> dict:
            return {"slot": 3}

        @app.task(queue=queue, retry=1)
        def release(context: dict) -> None: ...

        @app.task(queue=queue, retry=1)
        def create(context: dict) -> None: ...

        self._app, self._queue = app, queue
        self.saga: Saga = app.saga(name, undo_tries=1).step(allocate, undo=release, name=step).step(create)

    async def start(self, run_id: str, context: dict[str, Any] | None = None) -> str:
        """One whose first step waits for a worker."""
        return (await self.saga.astart(context or {"user": "ann"}, id=run_id)).id

    async def end(self, run_id: str, error: str | None = None, result: bytes = b'{"slot":3}') -> None:
        """End the job that the saga waits for, and do what follows from it."""
        client, jobs = await self._app.client(), Jobs(self._app)
        outcome = Done(result) if error is None else Failed(Failure(message=error, kinds=("ValueError",)))
        for lease in await jobs.claim(self._queue):
            await jobs.settle(lease, outcome)
        await drive_saga(client, run_id)

    async def complete(self, run_id: str) -> None:
        await self.start(run_id)
        await self.end(run_id)
        await self.end(run_id)

    async def stick(self, run_id: str, error: str = "no pod", undo_error: str = "still used") -> None:
        """The second step fails, and the first cannot be undone."""
        await self.start(run_id)
        await self.end(run_id)
        await self.end(run_id, error)
        await self.end(run_id, undo_error)
