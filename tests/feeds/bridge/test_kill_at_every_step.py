"""A bridge that is killed at any operation on the broker or the store: the next one ends with one job per message,
every bad message among the dead letters, every event sent in order, and work that went on elsewhere ended once, by its
own attempt."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

import pytest
from bridge_rig import about, submit

from daybreak import Daybreak
from daybreak.client import feed_follower
from daybreak.core.model import HandedBack, State
from daybreak.feeds.bridge import runner as runner_module
from daybreak.feeds.bridge.channels.channel import Channel, Message, Outgoing
from daybreak.feeds.bridge.runner import BridgeRunner
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange

DAY = timedelta(days=1)
STORE_STEPS = ("insert", "known_keys", "amend", "put", "events", "get")


class Killed(BaseException):
    """The process ends here: nothing below this line runs."""


class Topic:
    """A topic in memory: what is not acknowledged is delivered to the next channel."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.acknowledged: set[int] = set()


class MemoryChannel(Channel):
    extra = ""

    def __init__(self, topics: dict[str, Topic], incoming: str, step) -> None:
        self._topics = topics
        self._incoming = incoming
        self._step = step
        self._given: set[int] = set()

    async def open(self) -> None:
        self._step()

    async def close(self) -> None: ...

    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        self._step()
        await asyncio.sleep(0.001)
        topic = self._topics[self._incoming]
        found = [
            Message(body=sent.body, id=sent.id, position=str(number), receipt=number)
            for number, sent in enumerate(topic.messages)
            if number not in self._given | topic.acknowledged
        ][: min(limit, 4)]
        self._given |= {message.receipt for message in found}
        return found

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self._step()
        self._topics[self._incoming].acknowledged |= {message.receipt for message in messages}
        self._step()

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            self._step()
            self._topics[topic].messages.append(message)
        self._step()


class Story:
    """Ten messages about jobs of the bridge and four about work that goes on elsewhere; one bridge that is killed, and
    one that is not."""

    def __init__(self, path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.at = 0
        self.path = path
        self.topics: dict[str, Topic] = defaultdict(Topic)
        monkeypatch.setattr(
            runner_module, "make_channel", lambda _, topics: MemoryChannel(self.topics, topics.incoming, self._step)
        )

    def _step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed
        if self.at and self.count > self.at:
            raise Killed  # a process that was killed does nothing more

    async def run(self, at: int) -> int:
        self.count, self.at = 0, 0
        self.topics.clear()
        self.topics["in"].messages = [
            submit(1, key="one"), Outgoing(body=b"bad", id="bad 1"), submit(2), submit(2),
            about("cancel", "c", key="one"), submit(3, key="three"), Outgoing(body=b"{}", id="bad 2"), submit(4),
            about("completed", "d", key="three"),
            submit(1, id="again", key="one"),
            about("completed", "e", key="pod", fence=1, result=7),
            about("completed", "f", key="pod", fence=1, result=7),
            about("completed", "g", key="second pod", fence=1, result=8),  # the attempt before
            about("completed", "h", key="second pod", fence=2, result=9),
        ]  # fmt: skip
        app = Daybreak(f"sqlite:///{self.path}/jobs-{at}.db")

        @app.task
        def work(number: int) -> int:
            return number

        bridge = app.bridge("nats://memory:1", work, incoming="in", outgoing="out")
        client = await app.client()
        await detach_two(client)
        try:
            await self._until_done(app, client, bridge, at)
            count = self.count
            if at:
                self.at = 0
                await self._until_done(app, client, bridge, 0)
            await self._check(client)
        finally:
            await app.aclose()
        return count

    async def _until_done(self, app, client, bridge, at: int) -> None:
        """Run a bridge until it is killed, or until it has nothing left to do."""
        self.at = at
        runner = BridgeRunner(app, replace_store(client, self._step), bridge)
        task = asyncio.create_task(runner.run())
        async with asyncio.timeout(60):
            while not (self.at and self.count >= self.at) and not await self._is_done(client):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _is_done(self, client) -> bool:
        if len(self.topics["in"].acknowledged) < 14:
            return False
        sent = {message.id for message in self.topics["out"].messages}
        for job in await jobs_of(client):
            last = await events_of(client, job)
            first = last if "pod" in (job.spec.key or "") else 1  # before that, no bridge followed them
            if not {f"{job.id}.{n}" for n in range(first, last + 1)} <= sent:
                return False
        return True

    async def _check(self, client) -> None:
        jobs = await jobs_of(client)
        pods = {job.spec.key: job for job in jobs if "pod" in (job.spec.key or "")}
        assert {key: (job.state, job.result) for key, job in pods.items()} == {
            "pod": (State.COMPLETED, b"7"),
            "second pod": (State.COMPLETED, b"9"),
        }
        for job in pods.values():
            assert [event.kind for event in await client.history(job.id)].count("completed") == 1
        jobs = [job for job in jobs if job not in pods.values()]
        assert sorted(json.loads(job.spec.args)["number"] for job in jobs) == [1, 2, 3, 4]
        assert [job.state for job in jobs if job.spec.key == "one"] == [State.CANCELLED]
        assert {message.headers["daybreak-id"] for message in self.topics["in.dead"].messages} == {
            "bad 1",
            "bad 2",
            "d",
        }
        first: dict[str, list[int]] = defaultdict(list)
        for message in self.topics["out"].messages:
            data = json.loads(message.body)["data"]
            if data["n"] not in first[data["job"]]:
                first[data["job"]].append(data["n"])
        assert {job: sorted(numbers) for job, numbers in first.items()} == dict(first)
        assert set(first) == {job.id for job in [*jobs, *pods.values()]}


def replace_store(client, step):
    """The same client, on a store whose operations are counted."""

    class Counted:
        def __getattr__(self, name):
            found = getattr(client.store, name)
            if name not in STORE_STEPS:
                return found

            async def counted(*args, **kwargs):
                step()
                return await found(*args, **kwargs)

            return counted

    class Holder:
        store = Counted()

    return Holder()


async def detach_two(client) -> None:
    """Two jobs whose work goes on elsewhere: one in its first attempt, one in its second."""
    for key, number in (("second pod", 11), ("pod", 10)):
        await client.submit("work", {"number": number}, key=key)
        for _ in range(2 if key == "second pod" else 1):
            [lease] = (await client.store.exchange(Exchange(claim=Claim(worker="w", lease_for=DAY)))).leases
            beat = Beat(seq=lease.seq, fence=lease.fence, lease_for=DAY, detach=True)
            assert [reply.held for reply in await client.store.extend([beat])] == [True]
            if (key, lease.fence) == ("second pod", 1):
                back = settle(lease, HandedBack(), chance=0.5, by="w")
                assert (await client.store.exchange(Exchange(settle=[back]))).settled == [True]


async def jobs_of(client):
    return [job async for job in client.find_all()]


async def events_of(client, job) -> int:
    return len(await client.history(job.id))


async def test_whatever_is_killed_each_message_is_one_job_and_each_event_is_sent(tmp_path, monkeypatch):
    # A follower that was killed holds its record; the next one takes it over at once.
    monkeypatch.setattr(feed_follower, "TAKEOVER_AFTER", timedelta())
    story = Story(tmp_path, monkeypatch)
    steps = await story.run(0)
    assert steps > 30
    for at in range(1, steps + 1):
        await story.run(at)
