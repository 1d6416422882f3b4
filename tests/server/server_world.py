"""What the tests of the server share: settings, a clock that can be moved, and how a problem is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from daybreak.server.settings import ServerSettings
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
