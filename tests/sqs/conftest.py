"""A server that speaks SQS, and a stage on it: a ledger with its dispatcher, and remote workers that a test plays."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from sqs_stage import Stage, open_stage


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Credentials of nobody. What files of the test define is forgotten with it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("DAYBREAK_METADATA_URL", "off")
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
async def stage(endpoint: str, tmp_path) -> AsyncIterator[Stage]:
    async with open_stage(endpoint, f"t{secrets.token_hex(4)}", tmp_path) as stage:
        yield stage
