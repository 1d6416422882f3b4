"""The live feed: every event once, in order per job, whatever breaks meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from server_world import LOCAL, problem

from daybreak import Daybreak
from daybreak.client import feed_pages
from daybreak.core.events import Event
from daybreak.server import asgi, live_feed
from daybreak.server.settings import ServerSettings
from daybreak.store.protocol import Feed, Purge
from daybreak.system.ports import RealWorld

PATIENCE = 60


def tasks_of(app: Daybreak) -> Any:
    @app.task
    def work(n: int) -> int:
        return n

    return work


class Served:
    """A server of an app on a socket, which can be stopped and started again."""

    def __init__(self, app: Daybreak, settings: ServerSettings = LOCAL) -> None:
        self.app = app
        self.settings = settings
        self.port = 0
        self.restarts = 0

    async def start(self) -> None:
        self.edge = asgi(self.app, self.settings)
        edge = self.edge

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: Any = None) -> None:
                edge.stop()
                await super().shutdown(sockets)

        config = uvicorn.Config(edge, port=0, lifespan="off", log_config=None, timeout_graceful_shutdown=5)
        self._server = Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._serving = asyncio.create_task(self._server._serve())
        while not self._server.started:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._serving

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/api/v1/events"


@pytest.fixture
async def served(app: Daybreak) -> AsyncIterator[Served]:
    server = Served(app)
    await server.start()
    yield server
    await server.stop()


class Listener:
    """A client as a browser is one: it connects again with the last id it saw."""

    def __init__(self, served: Served, **params: Any) -> None:
        self.served = served  # each start has another port, because another program may take the old one
        self.params = params
        self.seen: list[dict[str, Any]] = []
        self.last_id: str | None = None
        self.connections = 0
        self.cut_after: int | None = None  # messages; then the connection is closed without a word

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await self._connection(http)
                await asyncio.sleep(0.01)

    async def _connection(self, http: httpx.AsyncClient) -> None:
        headers = {} if self.last_id is None else {"last-event-id": self.last_id}
        left = self.cut_after
        async with http.stream("GET", self.served.url, params=self.params, headers=headers) as response:
            if response.status_code >= 500:
                return  # the server stops, and cut off a request that it had not answered
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            self.connections += 1
            async for message in messages(response):
                if "id" in message:
                    self.last_id = message["id"]
                if message.get("event") is None:
                    self.seen.append(json.loads(message["data"]))
                if left is not None:
                    left -= 1
                    if left < 0:
                        return


async def messages(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    """Whole messages only: what is cut off in the middle does not count, as in a browser."""
    found: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line == "":
            if found:
                yield found
            found = {}
        else:
            name, _, value = line.partition(": ")
            found[name] = value


@contextlib.asynccontextmanager
async def listening(*listeners: Listener) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(listener.run()) for listener in listeners]
    try:
        await until(lambda: all(listener.connections and listener.last_id for listener in listeners))
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def told(events: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(event["job"], event["n"], event["kind"]) for event in events]


async def expected(app: Daybreak) -> list[tuple[str, int, str]]:
    client = await app.client()
    found: list[Event] = []
    cursor = None
    while (feed := await client.store.events(cursor, 1000)).events:
        found += feed.events
        cursor = feed.cursor
    return [(event.job, event.n, event.kind) for event in found]


async def test_a_change_by_another_process_is_told_with_the_names_of_its_job(served, app, tmp_path: Path):
    other = Daybreak(str(tmp_path / "jobs.db"), by="bob")
    work = tasks_of(other)
    listener = Listener(served)
    async with listening(listener):
        job = await work.using(run="night", owner="ann", queue="sims").asubmit(1)
        await job.acancel()
        await until(lambda: len(listener.seen) == 2)
    await other.aclose()
    submitted, cancelled = listener.seen
    names = {"job": job.id, "task": "work", "queue": "sims", "run": "night", "owner": "ann", "by": "bob"}
    assert names.items() <= submitted.items()
    assert (submitted["kind"], submitted["n"], submitted["state"]) == ("submitted", 1, "queued")
    assert names.items() <= cancelled.items()
    assert (cancelled["kind"], cancelled["n"], cancelled["state"]) == ("cancelled", 2, "cancelled")


async def test_disconnects_and_restarts_lose_and_repeat_nothing(served, app):
    chance = random.Random(7)
    work = tasks_of(app)
    listeners = [Listener(served) for _ in range(8)]
    async with listening(*listeners):
        for round_ in range(12):
            for listener in listeners:
                listener.cut_after = chance.choice([0, 1, 3, 7])
            jobs = await work.asubmit_many([{"n": n} for n in range(chance.randrange(1, 30))])
            for job in jobs[::3]:
                await job.acancel()
            if round_ % 4 == 3:
                await served.stop()
                await (await work.asubmit(-1)).acancel()
                await served.start()
        for listener in listeners:
            listener.cut_after = None
        events = await expected(app)
        await until(lambda: all(len(listener.seen) >= len(events) for listener in listeners))
    for listener in listeners:
        assert told(listener.seen) == events
    assert all(listener.connections > 1 for listener in listeners), "they were really cut off"


async def test_filters_choose_by_every_name(served, app):
    work = tasks_of(app)

    @app.task
    def other(n: int) -> int:
        return n

    wanted = {
        "run": Listener(served, run="night"),
        "owner": Listener(served, owner="ann"),
        "queue": Listener(served, queue="sims,mail"),
        "task": Listener(served, task="other", kind="cancelled"),
        "kind": Listener(served, kind=["cancelled", "suspended"]),
    }
    async with listening(*wanted.values()):
        first = await work.using(run="night", owner="ann", queue="sims").asubmit(1)
        second = await work.using(run="day", queue="mail").asubmit(2)
        third = await other.asubmit(3)
        job = Listener(served, job=second.id)
        async with listening(job):
            for one in (first, second, third):
                await one.acancel()
            await until(lambda: len(wanted["kind"].seen) == 3 and len(job.seen) == 1)
            await until(lambda: len(wanted["run"].seen) == 2 and len(wanted["queue"].seen) == 4)
            await until(lambda: len(wanted["owner"].seen) == 2 and len(wanted["task"].seen) == 1)
    assert {event["job"] for event in wanted["run"].seen} == {first.id}
    assert {event["job"] for event in wanted["owner"].seen} == {first.id}
    assert {event["queue"] for event in wanted["queue"].seen} == {"sims", "mail"}
    assert told(wanted["task"].seen) == [(third.id, 2, "cancelled")]
    assert told(job.seen) == [(second.id, 2, "cancelled")]


async def test_a_token_of_some_queues_sees_their_events_only(served, app, make_token):
    token = await make_token("station", "read", queues=["mail"])
    work = tasks_of(app)
    async with httpx.AsyncClient(timeout=PATIENCE, headers={"authorization": f"Bearer {token}"}) as http:
        problem(await http.get(served.url, params={"queue": "sims"}), 403, "forbidden")
        async with http.stream("GET", served.url) as response:
            stream = messages(response)
            assert (await anext(stream))["event"] == "open"
            await work.using(queue="sims").asubmit(1)
            mail = await work.using(queue="mail").asubmit(2)
            assert json.loads((await anext(stream))["data"])["job"] == mail.id


async def test_a_revoked_token_ends_its_stream(served, app, make_token, monkeypatch):
    from daybreak.core.units import moment
    from daybreak.server.access import identify, tokens

    monkeypatch.setattr(live_feed, "CHECK_CALLER_EVERY", timedelta(0))
    monkeypatch.setattr(identify, "CACHED_FOR", timedelta(0))
    monkeypatch.setattr(live_feed, "KEEP_ALIVE", timedelta(milliseconds=50))
    token = await make_token("station", "read")
    async with (
        httpx.AsyncClient(timeout=PATIENCE, headers={"authorization": f"Bearer {token}"}) as http,
        http.stream("GET", served.url) as response,
    ):
        stream = messages(response)
        await anext(stream)
        assert (await anext(stream))["event"] == "quiet"
        client = await app.client()
        await tokens.revoke_token(client.store, "station", now=moment(client.wall()))
        async with asyncio.timeout(PATIENCE):
            async for message in stream:
                assert message["event"] == "quiet"


async def test_a_purged_cursor_is_gone_and_a_foreign_one_is_invalid(connect, app):
    http = await connect()
    work = tasks_of(app)
    await work.asubmit_many([{"n": n} for n in range(3)])
    client = await app.client()
    old = (await client.store.events(None, 1)).cursor
    await client.store.purge(Purge(events_for=timedelta(0)))
    problem(await http.get("/api/v1/events", headers={"last-event-id": old}), 410, "cursor-expired")
    for cursor in ("nonsense", "9" * 300, "1:2:3", "-1:0"):
        found = await http.get("/api/v1/events", params={"after": cursor})
        assert found.status_code in (410, 422), found.text
        assert found.headers["content-type"] == "application/problem+json"


async def test_nothing_is_read_while_nobody_listens(served, app, monkeypatch):
    store = (await app.client()).store
    reads = 0
    events = store.events

    async def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await events(*args)

    monkeypatch.setattr(store, "events", counted)
    work = tasks_of(app)
    await work.asubmit_many([{"n": n} for n in range(5)])
    assert reads == 0
    listener = Listener(served)
    async with listening(listener):
        await work.asubmit(1)
        await until(lambda: listener.seen)
    await until(lambda: live(served).listeners == 0)
    before = reads
    await work.asubmit_many([{"n": n} for n in range(5)])
    await asyncio.sleep(3 * feed_pages.READ_INTERVAL.total_seconds())
    assert reads == before


def live(served: Served) -> live_feed.LiveFeed:
    return served.edge._on_stop.__self__  # type: ignore[attr-defined]


async def test_listeners_at_one_place_share_the_reads(served, app, monkeypatch):
    store = (await app.client()).store
    pages = 0
    events = store.events

    async def counted(*args: Any) -> Any:
        nonlocal pages
        feed = await events(*args)
        pages += bool(feed.events)
        return feed

    monkeypatch.setattr(store, "events", counted)
    work = tasks_of(app)
    listeners = [Listener(served) for _ in range(20)]
    async with listening(*listeners):
        before = pages
        for n in range(10):
            await work.asubmit(n)
            await until(lambda n=n: all(len(listener.seen) == n + 1 for listener in listeners))
        assert pages - before <= 2 * 10, "not once per listener"


class SlowStore:
    """A store whose reads wait for a sign after they have found nothing."""

    def __init__(self) -> None:
        self.found, self.may_return = asyncio.Event(), asyncio.Event()
        self.reads = 0

    async def events(self, after: str, limit: int = 500) -> Feed:
        self.reads += 1
        self.found.set()
        await self.may_return.wait()
        return Feed(events=[], cursors=[], cursor=after)


async def test_what_happens_during_a_read_is_news_to_its_reader():
    """It may have happened after the read, and then nobody else would wake the reader."""
    store = SlowStore()

    async def opened() -> Any:
        return store

    pages = feed_pages.FeedPages(opened, RealWorld())
    news = pages.news
    first = asyncio.create_task(pages.after("1"))
    await store.found.wait()
    pages.wake()
    second = asyncio.create_task(pages.after("1"))
    await until(lambda: store.reads == 2)
    store.may_return.set()
    assert (await first).events == (await second).events == []
    async with asyncio.timeout(PATIENCE):
        await pages.wait(news, timedelta(days=1))


async def test_a_page_is_encoded_once_for_all_listeners(served, app, monkeypatch):
    made = 0
    encoded = live_feed.EncodedPage

    def counted(*args: Any) -> Any:
        nonlocal made
        made += bool(args[0])
        return encoded(*args)

    monkeypatch.setattr(live_feed, "EncodedPage", counted)
    work = tasks_of(app)
    listeners = [*(Listener(served) for _ in range(10)), Listener(served, kind="cancelled")]
    async with listening(*listeners):
        before = made
        jobs = await work.asubmit_many([{"n": n} for n in range(5)])
        await until(lambda: all(len(listener.seen) == 5 for listener in listeners[:-1]))
        await jobs[0].acancel()
        await until(lambda: all(listener.seen and listener.seen[-1]["n"] == 2 for listener in listeners))
        assert made - before <= 2 * 2, "not once per listener"
    assert told(listeners[-1].seen) == [(jobs[0].id, 2, "cancelled")]


async def test_too_many_listeners_are_refused(app):
    server = Served(app, ServerSettings(hosts=LOCAL.hosts, anonymous_reads=True, max_listeners=1))
    await server.start()
    try:
        async with listening(Listener(server)), httpx.AsyncClient() as http:
            found = await http.get(server.url)
            problem(found, 503, "store-unavailable")
            assert int(found.headers["retry-after"]) >= 1
    finally:
        await server.stop()


async def test_a_client_that_takes_nothing_is_disconnected(served, app, monkeypatch):
    monkeypatch.setattr(live_feed, "SLOW_AFTER", timedelta(milliseconds=200))
    work = tasks_of(app)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        while live(served).dropped == 0:
            await work.using(meta={"note": "x" * 2000}).asubmit_many([{"n": n} for n in range(2000)])
        await until(lambda: live(served).listeners == 0)
    writer.close()
