"""Durable hooks: every event at least once, from a place that is kept, by one worker at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta

import msgspec
import pytest

from daybreak import Client, Daybreak, Event
from daybreak.api.hooks import Hooks, durable
from daybreak.client import feed_follower
from daybreak.client.feed_follower import FeedFollower, FollowerCursor
from daybreak.core.errors import CursorExpired, StoreUnavailable
from daybreak.core.events import ends_job
from daybreak.core.model import Done, JobSpec, Put, QueueSettings
from daybreak.policy.settle import settle
from daybreak.store.protocol import Amend, Claim, Exchange, Purge
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld

SECONDS = 20


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(durable, "FIRST_RETRY_DELAY", timedelta(milliseconds=1))
    monkeypatch.setattr(feed_follower, "FIRST_RETRY_DELAY", timedelta(milliseconds=1))
    monkeypatch.setattr(feed_follower, "RENEW_INTERVAL", timedelta(milliseconds=30))
    monkeypatch.setattr(feed_follower, "TAKEOVER_AFTER", timedelta(milliseconds=150))


@pytest.fixture
def client():
    return Client(MemoryStore(), by="ann")


class Follow:
    """Hooks of one worker, and what they heard."""

    def __init__(self, client: Client, *kinds: str) -> None:
        self.client = client
        self.heard: list[Event] = []
        self.raises: list[BaseException] = []
        self.gate = threading.Event()
        self.gate.set()
        self.hooks = Hooks(RealWorld())
        self.hooks.on(*kinds or ("submitted",), durable=True, name="mail")(self.hear)

    def hear(self, event: Event) -> None:
        self.gate.wait(SECONDS)
        self.heard.append(event)
        if self.raises:
            raise self.raises.pop(0)

    @property
    def jobs(self) -> list[str]:
        return [event.job for event in self.heard]

    @contextlib.asynccontextmanager
    async def following(self):
        task = asyncio.create_task(self.hooks.follow(self.client))
        try:
            await wait_for(lambda: place(self.client))
            yield self
        finally:
            self.gate.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def wait_for(condition) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.002)


async def place(client: Client) -> FollowerCursor | None:
    for record in await client.store.records("hook", "mail"):
        return msgspec.json.decode(record.value, type=FollowerCursor)
    return None


async def test_it_begins_with_what_happens_after_its_first_start(client):
    before = await client.submit("t")
    async with Follow(client).following() as hook:
        after = [await client.submit("t") for _ in range(30)]
        await wait_for(lambda: len(hook.heard) == 30)
    assert hook.jobs == after
    assert before not in hook.jobs
    assert {event.n for event in hook.heard} == {1}


async def test_what_happened_while_nobody_followed_is_told_at_the_next_start(client):
    async with Follow(client).following():
        pass
    missed = [await client.submit("t") for _ in range(5)]
    async with Follow(client).following() as hook:
        await wait_for(lambda: len(hook.heard) == 5)
        assert hook.jobs == missed
    async with Follow(client).following() as again:
        last = await client.submit("t")
        await wait_for(lambda: again.heard)
    assert again.jobs == [last]


async def test_kinds_that_no_process_tells_are_told_with_task_and_queue(client):
    async with Follow(client, "reprioritised", "removed", "cancelled").following() as hook:
        job = await client.submit("t", queue="q")
        await client.reprioritise(job, "low")
        await client.cancel(job)
        await wait_for(lambda: len(hook.heard) == 2)
        await client.remove(job)
        await wait_for(lambda: len(hook.heard) == 3)
    assert [(event.kind, event.task, event.queue) for event in hook.heard[:2]] == [
        ("reprioritised", "t", "q"),
        ("cancelled", "t", "q"),
    ]
    assert hook.heard[2].kind == "removed"


async def test_one_that_raises_is_tried_again_then_skipped_and_the_next_is_told(client, caplog):
    async with Follow(client).following() as hook:
        hook.raises = [ValueError("1"), SystemExit("2"), StopIteration("3")]
        first = await client.submit("t")
        await wait_for(lambda: len(hook.heard) == 4)
        assert hook.jobs == [first] * 4
        hook.raises = [ValueError(str(n)) for n in range(durable.MAX_ATTEMPTS)]
        bad, good = await client.submit("t"), await client.submit("t")
        await wait_for(lambda: hook.jobs[-1:] == [good])
    assert hook.jobs == [first] * 4 + [bad] * durable.MAX_ATTEMPTS + [good]
    assert sum("skipping the event" in record.getMessage() for record in caplog.records) == 1
    assert sum("attempt 1/5" in record.getMessage() for record in caplog.records) == 2


async def test_pauses_between_tries_grow(client, monkeypatch):
    monkeypatch.setattr(durable, "FIRST_RETRY_DELAY", timedelta(seconds=1))
    slept = []

    class World(RealWorld):
        async def sleep(self, delay: timedelta) -> None:
            slept.append(delay.total_seconds())

    hook = Follow(client)
    hook.hooks.world = World()
    async with hook.following():
        hook.raises = [ValueError()] * durable.MAX_ATTEMPTS
        await client.submit("t")
        await wait_for(lambda: len(hook.heard) == durable.MAX_ATTEMPTS and not hook.raises)
        await wait_for(lambda: len(slept) == durable.MAX_ATTEMPTS - 1)
    assert slept == [1, 2, 4, 8]


def renewals(client: Client, more: int):
    """A condition: the record was written so often again."""
    seen: list[int] = []

    async def renewed() -> bool:
        [record] = await client.store.records("hook", "mail")
        seen.append(record.revision)
        return seen[-1] >= seen[0] + more

    return renewed


async def test_the_place_moves_on_only_after_the_function_returned(client):
    async with Follow(client).following() as hook:
        start = await place(client)
        hook.gate.clear()
        job = await client.submit("t")
        await wait_for(renewals(client, 2))  # and yet where it was
        assert (await place(client)).cursor == start.cursor
        hook.gate.set()
        await wait_for(lambda: hook.heard)

        async def moved() -> bool:
            return (await place(client)).cursor != start.cursor

        await wait_for(moved)
    assert hook.jobs == [job]


async def test_the_place_is_written_as_soon_as_a_page_was_told(client, monkeypatch):
    monkeypatch.setattr(feed_follower, "RENEW_INTERVAL", timedelta(hours=1))
    async with Follow(client).following():
        start = await place(client)
        await client.submit("t")

        async def moved() -> bool:
            return (await place(client)).cursor != start.cursor

        await wait_for(moved)


async def test_what_a_hook_is_not_for_is_passed_over_without_a_write(client, monkeypatch):
    monkeypatch.setattr(feed_follower, "RENEW_INTERVAL", timedelta(hours=1))
    async with Follow(client, "completed").following() as hook:
        [before] = await client.store.records("hook", "mail")
        for _ in range(20):
            await client.submit("t")
        await asyncio.sleep(0.05)
        assert await client.store.records("hook", "mail") == [before]
    assert hook.heard == []
    assert (await place(client)).cursor == (await client.store.events("latest")).cursor


async def test_one_follows_at_a_time(client):
    one, two = Follow(client), Follow(client)
    async with one.following(), two.following():
        for n in range(40):
            await client.submit("t")
            await asyncio.sleep(0.005 if n % 10 == 0 else 0)
        await wait_for(lambda: len(one.heard) + len(two.heard) >= 40)
    assert sorted([len(one.heard), len(two.heard)]) == [0, 40]


async def test_another_goes_on_at_once_when_the_first_stops(client, monkeypatch):
    monkeypatch.setattr(feed_follower, "TAKEOVER_AFTER", timedelta(hours=1))
    one, two = Follow(client), Follow(client)
    async with contextlib.AsyncExitStack() as stack:
        async with one.following():
            first = await client.submit("t")
            await wait_for(lambda: one.heard)
            await stack.enter_async_context(two.following())
        second = await client.submit("t")
        await wait_for(lambda: two.heard)
    assert (one.jobs, two.jobs) == ([first], [second])


async def test_another_takes_over_after_a_silence_and_repeats_what_was_not_finished(client):
    await client.store.put(
        [Put(kind="hook", name="mail", value=msgspec.json.encode(FollowerCursor("0", "dead")), expect=0)]
    )
    jobs = [await client.submit("t") for _ in range(3)]
    async with Follow(client).following() as hook:
        await wait_for(lambda: len(hook.heard) == 3)
    assert hook.jobs == jobs


async def test_one_that_was_overtaken_stops(client):
    hook = Follow(client)
    async with hook.following():
        [record] = await client.store.records("hook", "mail")
        taken = FollowerCursor(msgspec.json.decode(record.value, type=FollowerCursor).cursor, "someone")

        async def take() -> bool:
            [now] = await client.store.records("hook", "mail")
            put = Put(kind="hook", name="mail", value=msgspec.json.encode(taken), expect=now.revision)
            return (await client.store.put([put]))[0] is not None

        await wait_for(take)
        hook.gate.clear()
        await client.submit("t")

        async def keep_alive() -> None:
            while True:
                await take()
                await asyncio.sleep(0.02)

        alive = asyncio.create_task(keep_alive())
        await asyncio.sleep(0.1)
        alive.cancel()
        assert (await place(client)).holder == "someone"


async def test_a_purged_feed_is_said_and_the_oldest_is_where_it_goes_on(client, caplog):
    async with Follow(client).following():
        pass
    await client.submit("t")
    await client.store.purge(Purge(events_for=timedelta()))
    kept = [await client.submit("t") for _ in range(2)]
    with pytest.raises(CursorExpired):
        await client.store.events((await place(client)).cursor)
    async with Follow(client).following() as hook:
        await wait_for(lambda: len(hook.heard) == 2)
    assert hook.jobs == kept
    assert "were purged" in caplog.text


async def test_a_store_that_takes_none_of_its_cursors_has_nothing_told_again_and_again(client, monkeypatch, caplog):
    """As one whose feed was dumped from another server."""
    there, asked = client.store.events, []

    async def events(after=None, limit=1000):
        asked.append(after)
        if after not in (None, "latest"):
            raise CursorExpired(after)
        return await there(after, limit)

    hook = Follow(client)
    async with hook.following():
        pass
    jobs = [await client.submit("t") for _ in range(3)]
    monkeypatch.setattr(client.store, "events", events)
    async with hook.following():
        await wait_for(lambda: asked.count("latest") >= 3)
    assert set(hook.jobs) <= set(jobs)
    assert len(hook.jobs) == 1  # a page of one; what comes after it is out of reach
    assert "from now on" in caplog.text


async def test_a_store_out_of_reach_stops_nothing(client, monkeypatch, caplog):
    async with Follow(client).following() as hook:
        away = [True]
        for name in ("events", "put", "records"):
            there = getattr(client.store, name)

            async def maybe(*args, there=there, **kwargs):
                if away:
                    raise StoreUnavailable("away")
                return await there(*args, **kwargs)

            monkeypatch.setattr(client.store, name, maybe)
        await wait_for(lambda: "away" in caplog.text)
        away.clear()
        job = await client.submit("t")
        await wait_for(lambda: hook.heard)
    assert hook.jobs == [job]


async def test_an_answer_that_was_lost_is_not_taken_for_an_overtaking(client, monkeypatch, caplog):
    caplog.set_level("INFO")
    async with Follow(client).following() as hook:
        there, lost = client.store.put, [1, 2]

        async def put(puts):
            answer = await there(puts)
            if lost:
                lost.pop()
                raise StoreUnavailable("written, and the answer lost")
            return answer

        monkeypatch.setattr(client.store, "put", put)
        await wait_for(lambda: not lost)  # both while it says that it is still there
        jobs = [await client.submit("t") for _ in range(3)]
        await wait_for(lambda: len(hook.heard) == 3)
        await wait_for(renewals(client, 2))
    assert hook.jobs == jobs
    assert "another worker runs it now" not in caplog.text


async def test_stopping_in_the_midst_of_a_page_repeats_nothing_that_was_told(client, monkeypatch):
    monkeypatch.setattr(feed_follower, "STOP_TIMEOUT", timedelta(seconds=SECONDS))
    hook = Follow(client)
    permits = threading.Semaphore(40)
    hook.hear = None  # said below
    hook.hooks = Hooks(RealWorld())

    @hook.hooks.on("submitted", durable=True, name="mail")
    def hear(event: Event) -> None:
        assert permits.acquire(timeout=SECONDS)
        hook.heard.append(event)

    async with hook.following():
        for _ in range(40):  # quickly, so that pages grow
            await client.submit("t")
        await wait_for(lambda: len(hook.heard) == 40)
        jobs = [await client.submit("t") for _ in range(10)]
        permits.release(3)
        await wait_for(lambda: len(hook.heard) == 43)
        stopping = asyncio.get_running_loop().call_later(0.05, permits.release)  # the one under way ends while it stops
    stopping.cancel()
    told = len(hook.heard) - 40
    assert told in (3, 4)
    async with Follow(client).following() as rest:
        await wait_for(lambda: len(rest.heard) >= 10 - told)
    assert rest.jobs == jobs[told:]


def test_workers_follow_for_an_app_and_its_hook_s_name_is_its_function_s(tmp_path, until):
    heard = []
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.on("completed", "lease_expired", durable=True)
        async def tell_everyone(event: Event) -> None:
            heard.append((event.kind, event.task, event.n))

        @app.task
        def nothing() -> None: ...

        async def record_names():
            return [record.name for record in await (await app.client()).store.records("hook")]

        with app.worker(isolation="thread", processes=1):
            until(lambda: app.portal.run(record_names()) == ["tell_everyone"])
            nothing.submit().result("20s")
            until(lambda: heard)
    assert heard == [("completed", "nothing", 3)]


async def test_a_follower_of_ends_is_handed_every_end_whatever_its_kind(client):
    """Also those of which no worker hears: replaced, shed and cancelled while they wait."""
    store, heard, is_all = client.store, [], asyncio.Event()

    async def handle(event: Event) -> None:
        heard.append(event)
        if len(heard) == 4:
            is_all.set()

    await store.put(
        [Put(kind="saga", name="s", value=msgspec.json.encode(FollowerCursor()))]
    )  # from the first event on
    follower = FeedFollower("saga", "s", store, RealWorld(), handle=handle, wants=ends_job)
    follows = asyncio.create_task(follower.run())
    shed = QueueSettings(capacity=1, when_full="shed")
    await store.put([Put(kind="queue", name="q", value=msgspec.json.encode(shed))])
    await store.insert([
        JobSpec(id="waits", task="t"), JobSpec(id="old", task="t", unique="u"),
        JobSpec(id="new", task="t", unique="u", on_conflict="replace"),
        JobSpec(id="last", task="t", queue="q", priority=9),
        JobSpec(id="first", task="t", queue="q", priority=1),
    ])  # fmt: skip
    await store.amend(Amend(action="cancel", by="ann", jobs=("waits",)))
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w1", queues=("q",))))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w1")]))
    async with asyncio.timeout(SECONDS):
        await is_all.wait()
    follows.cancel()
    await asyncio.gather(follows, return_exceptions=True)
    assert [(event.job, event.kind, event.replaced_by) for event in heard] == [
        ("old", "cancelled", "new"), ("last", "shed", "first"), ("waits", "cancelled", None),
        ("first", "completed", None),
    ]  # fmt: skip
    assert [event.task for event in heard] == ["t"] * 4
