"""The pod worker of the example of code execution, with a real broker and the real sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta

import msgspec
import pytest
from execution_queue import broker, pod_worker, sandbox
from execution_queue.events import (
    COMMANDS,
    OUTCOMES,
    OUTPUT,
    CreatePodCommandEvent,
    DeletePodCommandEvent,
    Outcome,
    message_of,
    read_output,
)
from execution_queue.pod_worker import PodWorker
from execution_queue.pods import Pods

from code_sandbox import load_run, need_nats, need_sandbox
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import Message, Outgoing, Topics

SECOND = timedelta(seconds=1)
PATIENCE = 20.0


class Rig:
    """A broker, and the other side of the topics of a pod worker."""

    def __init__(self, url, folder):
        self.url, self.pods = url, Pods(folder / "pods")
        self._sent = 0
        self._channels = {}

    async def channel(self, topic):
        if topic not in self._channels:
            self._channels[topic] = make_channel(parse_broker(self.url), Topics(group="test", incoming=topic))
            await self._channels[topic].open()
        return self._channels[topic]

    async def send(self, event):
        self._sent += 1
        await (await self.channel(OUTCOMES)).publish(COMMANDS, [message_of(event, f"command {self._sent}")])

    async def create(self, saga, script, fence=1, **fields):
        given = {
            "execution_id": saga, "saga_id": saga, "execution_job": saga, "run": 101, "job": f"step of {saga}",
            "fence": fence, "script": script, "language": "bash", "timeout_seconds": 10.0, "memory_mb": 64, **fields,
        }  # fmt: skip
        await self.send(CreatePodCommandEvent(**given))

    async def receive(self, topic, number):
        """The next messages of a topic."""
        channel, found = await self.channel(topic), []
        deadline = time.monotonic() + PATIENCE
        while len(found) < number:
            assert time.monotonic() < deadline, found
            for message in await channel.receive(number - len(found), SECOND):
                found.append(message)
                await channel.acknowledge([message])
        return found

    async def outcomes(self, number):
        return [msgspec.json.decode(one.body, type=Outcome) for one in await self.receive(OUTCOMES, number)]

    async def until_running(self, *pods):
        deadline = time.monotonic() + PATIENCE
        while self.pods.running() != list(pods):
            assert time.monotonic() < deadline, self.pods.running()
            await asyncio.sleep(0.02)

    async def close(self):
        for channel in self._channels.values():
            await channel.close()

    @contextlib.asynccontextmanager
    async def worker(self):
        worker = PodWorker(self.url, self.pods, room=4, limits=sandbox.Limits())
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(running, PATIENCE)


@pytest.fixture
async def rig(tmp_path):
    need_sandbox()
    need_nats()
    with load_run().nats(tmp_path) as url:
        rig = Rig(url, tmp_path)
        yield rig
        await rig.close()


async def test_a_pod_runs_once_whatever_comes_again(rig):
    async with rig.worker():
        await rig.create("s", "echo $RANDOM zwölf; exit 3")
        [outcome] = await rig.outcomes(1)
        for _ in range(3):
            await rig.create("s", "echo $RANDOM zwölf; exit 3")
        await rig.create("other", "echo other")
        [other] = await rig.outcomes(1)  # the broker has dropped the outcomes that came again: their ids are the same
    assert (type(outcome).__name__, outcome.exit_code, outcome.fence) == ("ExecutionFailed", 3, 1)
    assert other.stdout == "other\n"
    printed = [read_output(message.body).text for message in await rig.receive(OUTPUT, 2)]
    assert printed == [outcome.stdout, "other\n"]
    with rig.pods.begin("s", 1) as pod:
        assert msgspec.json.decode(pod.outcome, type=Outcome) == outcome


async def test_a_deleted_pod_ends_and_one_that_was_deleted_before_it_came_does_not_start(rig):
    async with rig.worker():
        await rig.create("s", "sleep 60")
        await rig.until_running("s.1")
        await rig.send(DeletePodCommandEvent(execution_id="s", saga_id="s"))
        [ended] = await rig.outcomes(1)
        await rig.create("s", "echo never", fence=2)
        [refused] = await rig.outcomes(1)
    assert (ended.error, refused.error) == ("the pod was deleted", "the pod was deleted before it started")
    assert ended.exit_code is refused.exit_code is None


async def test_a_newer_attempt_ends_the_pod_of_an_older_one(rig):
    async with rig.worker():
        await rig.create("s", "sleep 60")
        await rig.until_running("s.1")
        await rig.create("s", "echo new", fence=2)
        found = {one.fence: one for one in await rig.outcomes(2)}
    assert (found[1].error, found[2].stdout) == ("the pod was deleted", "new\n")


async def test_a_pod_that_cannot_be_started_is_no_failure_of_the_code(rig, monkeypatch):
    async def refused(*_):
        raise sandbox.NoSandbox("no user namespaces")

    monkeypatch.setattr(sandbox, "run", refused)
    async with rig.worker():
        await rig.create("a", "echo never")
        [outcome] = await rig.outcomes(1)
    assert type(outcome).__name__ == "ExecutionFailed"
    assert (outcome.exit_code, outcome.error) == (None, "the pod could not be started: no user namespaces")


class PatientChannel:
    """Of a broker that does nothing else on a connection that waits for messages, as Redis does. It waits for ever."""

    def __init__(self, commands, published):
        self._commands, self._published = commands, published
        self._one_at_a_time = asyncio.Lock()

    async def open(self):
        pass

    async def close(self):
        pass

    async def receive(self, *_):
        async with self._one_at_a_time:
            return [await self._commands.get()]

    async def publish(self, topic, messages):
        async with self._one_at_a_time:
            await self._published.put((topic, messages))

    async def acknowledge(self, _):
        pass


async def test_what_a_pod_says_does_not_wait_for_the_next_command(tmp_path, monkeypatch):
    need_sandbox()
    commands, published = asyncio.Queue(), asyncio.Queue()
    for module in (pod_worker, broker):
        monkeypatch.setattr(module, "make_channel", lambda *_: PatientChannel(commands, published))
    worker = PodWorker("redis://nowhere", Pods(tmp_path), room=4, limits=sandbox.Limits())
    running = asyncio.create_task(worker.run())
    command = CreatePodCommandEvent(
        execution_id="a", saga_id="a", execution_job="a", run=101, job="step", fence=1, script="echo done",
        language="bash", timeout_seconds=10.0, memory_mb=64,
    )  # fmt: skip
    await commands.put(Message(body=message_of(command, "m").body))
    topics = [(await asyncio.wait_for(published.get(), PATIENCE))[0] for _ in range(2)]
    assert topics == [OUTPUT, OUTCOMES]
    running.cancel()
    await asyncio.wait([running])


async def test_a_pod_worker_that_stops_reports_its_pods(rig):
    async with rig.worker():
        await rig.create("s", "sleep 60")
        await rig.until_running("s.1")
    [ended] = await rig.outcomes(1)
    assert ended.error == "the pod worker was stopped while the pod ran"
    assert rig.pods.running() == []


async def test_a_message_that_is_no_command_is_put_aside_with_the_reason(rig):
    await (await rig.channel(OUTCOMES)).publish(COMMANDS, [Outgoing(body=b'{"event_type": "Other"}', id="odd")])
    async with rig.worker():
        await rig.create("s", "echo next")
        [dead] = await rig.receive(f"{COMMANDS}.dead", 1)
        [ended] = await rig.outcomes(1)
    assert "no event of this system" in dead.headers["daybreak-reason"]
    assert ended.stdout == "next\n"
