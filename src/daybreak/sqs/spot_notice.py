"""The notice that this machine will be taken away: asked of the instance metadata service (IMDSv2) every few seconds.

AWS gives two minutes. `DAYBREAK_METADATA_URL` names another address; `off` asks nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("daybreak.sqs")

ADDRESS: Final = "http://169.254.169.254"
VARIABLE: Final = "DAYBREAK_METADATA_URL"
INTERVAL: Final = 5.0  # seconds between two questions
TIMEOUT: Final = 2.0  # seconds for an answer
MAX_FAILURES: Final = 3  # before the first answer: then this machine has no such service
_PATHS: Final = ("spot/instance-action", "spot/termination-time")


class SpotNotice:
    """Asks until there is a notice. A machine without the service is asked three times."""

    def __init__(self, address: str | None = None, *, interval: float = INTERVAL) -> None:
        self._address = (address or os.environ.get(VARIABLE) or ADDRESS).rstrip("/")
        self._interval = interval

    async def run(self, on_notice: Callable[[], None]) -> None:
        """Call `on_notice` once, when the machine will be taken away; then wait for ever."""
        failures, was_answered = 0, False
        while self._address != "off" and (was_answered or failures < MAX_FAILURES):
            try:
                notice = await asyncio.to_thread(self._ask)
                was_answered = True
            except OSError:
                failures += 1
                notice = None
            if notice is not None:
                _log.warning("this machine will be taken away (%s): handing jobs back", notice.strip()[:200])
                on_notice()
                break
            await asyncio.sleep(self._interval)
        await asyncio.Event().wait()

    def _ask(self) -> str | None:
        """The notice; None if there is none. Raises OSError without an answer."""
        token = self._request("PUT", "latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        for path in _PATHS:
            try:
                return self._request("GET", f"latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})
            except urllib.error.HTTPError as error:
                if error.code != 404:  # no notice
                    raise
        return None

    def _request(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(f"{self._address}/{path}", method=method, headers=headers)  # noqa: S310
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=TIMEOUT) as reply:
            return str(reply.read(4096).decode("utf-8", "replace"))
