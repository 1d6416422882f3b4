from __future__ import annotations

import signal

import pytest
from redis_servers import private


class Frozen:
    """A private server that stops reading and answering; its connections stay."""

    def __init__(self, server) -> None:
        self.url = server.url
        self._process = server._process

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def freezing(tmp_path):
    with private(tmp_path, "--appendonly", "no") as server:
        yield Frozen(server)
