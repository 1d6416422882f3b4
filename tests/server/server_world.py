"""What the tests of the server share: settings, a clock that can be moved, and how a problem is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from daybreak import Daybreak
from daybreak.core.model import Done, Failed, Failure, HandedBack, Lease, Outcome
from daybreak.policy.settle import settle
from daybreak.server.settings import ServerSettings
from daybreak.store.protocol import Claim, Exchange
from daybreak.system.ports import RealWorld

LOCAL = ServerSettings(hosts=frozenset({"localhost"}), anonymous_reads=True)


class World:
    """Real time that a test can move forward."""

    def __init__(self) -> None:
        self._real = RealWorld()
        self.ahead = timedelta()
        self.chance = self._real.chance

    def wall(self) -> int:
        return self._real.wall() + self.ahead // timedelta(microseconds=1)

    def steady(self) -> int:
        return self._real.steady() + self.ahead // timedelta(microseconds=1)

    async def sleep(self, delay: timedelta) -> None:
        await self._real.sleep(delay)


def problem(response: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """The problem document of a response, which must be this one."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["type"] == f"urn:daybreak:problem:{name}"
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    return found


class Jobs:
    """Brings jobs of an app into any state."""

    def __init__(self, app: Daybreak) -> None:
        self._app = app

    async def submit(self, task: str = "mail", args: dict[str, Any] | None = None, **options: Any) -> str:
        return await (await self._app.client()).submit(task, args, **options)

    async def run(self, task: str = "mail", **options: Any) -> str:
        """A job that runs, held by worker w1."""
        return (await self._leased(task, options)).job

    async def end(self, outcome: Outcome, task: str = "mail", **options: Any) -> str:
        """A job that ended so."""
        lease = await self._leased(task, options)
        await self.settle(lease, outcome)
        return lease.job

    async def complete(self, result: bytes | None = b'"ok"', **options: Any) -> str:
        return await self.end(Done(result), **options)

    async def fail(self, message: str = "no", **options: Any) -> str:
        return await self.end(Failed(Failure(message=message, kinds=("ValueError",), traceback="here")), **options)

    async def claim(self, queue: str = "default") -> list[Lease]:
        claim = Claim(worker="w1", queues=(queue,), limit=1000, lease_for=timedelta(hours=1))
        return (await (await self._app.client()).store.exchange(Exchange(claim=claim))).leases

    async def settle(self, lease: Lease, outcome: Outcome) -> None:
        settlement = settle(lease, outcome, chance=0.5, by=lease.worker)
        await (await self._app.client()).store.exchange(Exchange(settle=[settlement]))

    async def _leased(self, task: str, options: dict[str, Any]) -> Lease:
        job = await self.submit(task, **options)
        leases = await self.claim(options.get("queue", "default"))
        for other in leases:
            if other.job != job:
                await self.settle(other, HandedBack())
        return next(lease for lease in leases if lease.job == job)
