"""A server on a store of its own, asked through ASGI without a socket; and tokens of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_world import LOCAL, Jobs, World

from daybreak import Daybreak
from daybreak.core.units import moment
from daybreak.server import asgi
from daybreak.server.access.tokens import create_token
from daybreak.server.settings import ServerSettings

Connect = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def app(tmp_path: Path, world: World) -> AsyncIterator[Daybreak]:
    app = Daybreak(str(tmp_path / "jobs.db"), by="tester", world=world)
    yield app
    await app.aclose()


@pytest.fixture
async def connect(app: Daybreak) -> AsyncIterator[Connect]:
    """Connects to a server of the app: with a token, or without; each call is another server on the same store."""
    async with AsyncExitStack() as stack:

        async def connected(
            token: str | None = None, settings: ServerSettings = LOCAL, of: Daybreak | None = None, **how: Any
        ) -> httpx.AsyncClient:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            transport = httpx.ASGITransport(asgi(of or app, settings))
            how = {"base_url": "http://localhost", "headers": headers, "transport": transport, **how}
            return await stack.enter_async_context(httpx.AsyncClient(**how))

        yield connected


@pytest.fixture
def make_token(app: Daybreak) -> Callable[..., Awaitable[str]]:
    """The text of a new token."""

    async def make(name: str = "ann", *roles: str, **how: Any) -> str:
        client = await app.client()
        _, text = await create_token(client.store, name, roles or ("admin",), now=moment(client.wall()), **how)
        return text

    return make


@pytest.fixture
async def admin(connect: Connect, make_token: Callable[..., Awaitable[str]]) -> httpx.AsyncClient:
    """A caller who may do everything."""
    return await connect(await make_token("root", "admin"))


@pytest.fixture
def jobs(app: Daybreak) -> Jobs:
    return Jobs(app)
