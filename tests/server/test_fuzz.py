"""The whole OpenAPI document, fuzzed by schemathesis against a server on a socket: no 5xx, no breach of the schema.

The short form sends a few requests to each route; `DAYBREAK_TORTURE=long` sends hundreds."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from typing import Self

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance
from server_world import Jobs

from daybreak import Daybreak
from daybreak.core.units import moment
from daybreak.server import application, asgi
from daybreak.server.access.tokens import create_token
from daybreak.server.settings import ServerSettings

EXAMPLES = 300 if os.environ.get("DAYBREAK_TORTURE") == "long" else 6
# A stream has no end.
ROUTES = [
    route for route in application.all_routes() if route.answer_type != "text/event-stream" and route.tag != "dashboard"
]
# A schema cannot say everything: that a duration is written 90s, or which jobs there are. Who may do what is tested by
# test_matrix.py: here every request carries a token.
EXCLUDED = [positive_data_acceptance, ignored_auth]


class Served:
    """A server in a thread of its own, with a few jobs, and an admin's token."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)

    async def _serve(self) -> None:
        app = Daybreak(self._path)
        client = await app.client()
        _, self.token = await create_token(client.store, "fuzz", ["admin"], now=moment(client.wall()))
        jobs = Jobs(app)
        await jobs.complete(queue="mail")
        await jobs.fail(queue="mail", tags=["x"], owner="ann")
        await jobs.submit(queue="mail", delay=timedelta(hours=1), key="k", run="r")
        settings_ = ServerSettings(requests_per_second=1e6, request_burst=10**6)
        config = uvicorn.Config(asgi(app, settings_), port=0, lifespan="off", log_config=None)
        self.server = uvicorn.Server(config)
        serving = asyncio.create_task(self.server._serve())
        while not self.server.started:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self._ready.set()
        await serving
        await app.aclose()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(str(tmp_path_factory.mktemp("fuzz") / "jobs.db")) as served:
        yield served


@pytest.fixture(scope="module")
def schema(served):
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{served.port}/api/v1/openapi.json")


def modes_of(route):
    yield GenerationMode.POSITIVE
    if route.query or route.body or route.form or route.takes_key:  # otherwise nothing about it can be wrong
        yield GenerationMode.NEGATIVE


@pytest.mark.parametrize(
    ("route", "mode"),
    [(route, mode) for route in ROUTES for mode in modes_of(route)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_no_request_breaks_the_server_or_its_schema(served, schema, route, mode):
    operation = schema[route.path][route.method]
    headers = {"authorization": f"Bearer {served.token}"}

    @seed(1)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        case.call_and_validate(headers=headers, excluded_checks=EXCLUDED)

    send()
