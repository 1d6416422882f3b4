"""Messages become jobs, and events become messages, on every broker."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from datetime import timedelta

import pytest
from bridge_rig import BridgeRig, about, submit, until
from brokers import Broker
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from daybreak.core.model import State
from daybreak.feeds.bridge.channels.channel import ChannelError, Outgoing
from daybreak.store.protocol import Beat
from daybreak.testing.contract.builders import claim_jobs


@pytest.fixture
async def rig(tmp_path, broker: Broker):
    async with BridgeRig(tmp_path, broker) as rig:
        yield rig


async def test_each_message_is_one_job_however_often_it_comes(rig: BridgeRig):
    messages = [submit(number) for number in range(30)]
    # NATS itself drops a second message of the same id; so half of the ids are in the body.
    inside = [
        submit(number, id=f"copy {copy} {number}", key=f"order {number}") for copy in (1, 2) for number in (40, 41)
    ]
    await rig.send(*messages, *messages[::2], *inside)
    async with rig.running() as runner:
        await until(lambda: runner.intake.counts.received >= 30 + (0 if rig.broker.kind == "nats" else 15) + 4, "all")
        await until(lambda: runner.intake.counts.submitted + runner.intake.counts.repeated >= 34, "all are handled")
    assert await rig.numbers() == [*range(30), 40, 41]
    [job] = [job for job in await rig.jobs() if job.spec.key == "order 40"]
    assert job.spec.by == f"bridge {rig.topics.incoming}"


async def test_a_message_whose_result_is_known_is_a_job_of_its_own(tmp_path, broker: Broker):
    async with BridgeRig(tmp_path, broker, cache=True) as rig:
        heard: list[str] = []
        rig.app.on("submitted", "completed")(lambda event: heard.append(event.kind))
        async with rig.running() as runner:
            counts = runner.intake.counts
            await rig.send(submit(1, id="a"), submit(1, id="b"))
            await until(lambda: counts.submitted + counts.repeated == 2, "both are handled")
            await rig.run_jobs()
            await rig.send(submit(1, id="c"))
            await until(lambda: counts.submitted + counts.repeated == 3, "the third is handled")
            assert (counts.submitted, counts.repeated) == (3, 0)
            await until(lambda: "completed" in heard, "hooks hear of the known result")
        assert {job.state for job in await rig.jobs()} == {State.COMPLETED}
        assert heard == ["submitted", "submitted", "submitted", "completed"]  # the rig completes the others


async def test_messages_without_an_id_are_known_by_their_position(rig: BridgeRig):
    """The connection is cut after the store accepted the jobs and before the messages are acknowledged."""
    cut = []

    async def lose(*_):
        cut.append(1)
        raise ChannelError("cut off")

    plain = rig.broker.kind != "rabbitmq"
    await rig.send(*[submit(number) for number in range(10)])
    async with rig.running() as runner:
        make = runner._connect

        def connect():
            channel = make()
            if not cut:
                channel.acknowledge = lose
            if plain:
                receive = channel.receive

                async def without_ids(*args):
                    return [_without_id(message) for message in await receive(*args)]

                channel.receive = without_ids
            return channel

        runner._connect = connect
        await until(lambda: len(cut) > 0, "the cut")
        await until(lambda: runner.intake.counts.repeated >= 1, "messages come again")
        await until(lambda: runner.intake.counts.submitted == 10, "all are jobs")
    assert await rig.numbers() == list(range(10))
    if plain:
        positions = {job.spec.meta["message"] for job in await rig.jobs()}
        assert len(positions) == 10
        assert not any("message" in position for position in positions)


def _without_id(message):
    from msgspec.structs import replace

    return replace(message, id=None)


POISON = {
    "not JSON": (b"\xff\x00", "not a JSON object"),
    "no version": (b'{"kind": "submit"}', 'no "version"'),
    "another version": (b'{"version": 9, "kind": "submit"}', "version 9"),
    "another kind": (b'{"version": 1, "kind": "destroy"}', "'destroy'"),
    "wrong arguments": (b'{"version": 1, "kind": "submit", "args": {"nummer": 1}}', "did you mean 'number'?"),
    "missing arguments": (b'{"version": 1, "kind": "submit", "args": {}}', "missing 'number'"),
    "another task": (b'{"version": 1, "kind": "submit", "task": "other", "args": {"number": 1}}', "'other'"),
    "unknown field": (b'{"version": 1, "kind": "submit", "prio": 1, "args": {"number": 1}}', "prio"),
    "wrong priority": (b'{"version": 1, "kind": "submit", "priority": "top", "args": {"number": 1}}', "top"),
    "empty": (b" ", "not a JSON object"),
    "no time to wait": (b'{"version": 1, "kind": "submit", "expires_in": "0s", "args": {"number": 1}}', "longer than"),
    "a key nobody can type": (b'{"version": 1, "kind": "submit", "key": "a\\u0000", "args": {"number": 1}}', "control"),
    "an owner with a line": (b'{"version": 1, "kind": "submit", "owner": "a\\n", "args": {"number": 1}}', "control"),
    "too many tags": (
        json.dumps({"version": 1, "kind": "submit", "tags": list("ab" * 30), "args": {"number": 1}}).encode(), "60 tags"
    ),
}  # fmt: skip


async def test_messages_that_nobody_understands_go_to_the_dead_letters_with_the_reason(rig: BridgeRig):
    poison = [Outgoing(body=body, id=name) for name, (body, _) in POISON.items()]
    await rig.send(
        submit(1), *poison[:5], submit(2), *poison[5:], submit(3, id="once", key="k"), submit(4, id="x", key="k")
    )
    async with rig.running() as runner:
        letters = await rig.read(rig.topics.dead, len(POISON) + 1)
        await until(lambda: runner.intake.counts.submitted == 3, "the good ones are jobs")
    reasons = {letter.headers["daybreak-id"]: letter.headers["daybreak-reason"] for letter in letters}
    for name, (body, reason) in POISON.items():
        assert reason in reasons[name]
        assert body in [letter.body for letter in letters]
    conflicts = [text for text in reasons.values() if "belongs to job" in text]
    assert len(conflicts) == 1
    assert len(await rig.jobs()) == 3


async def test_a_full_queue_stops_the_messages_and_loses_none(tmp_path, broker: Broker):
    async with BridgeRig(tmp_path, broker, capacity=5) as rig:
        await rig.send(*[submit(number) for number in range(23)])
        async with rig.running() as runner:
            await until(lambda: runner.intake.counts.full >= 2, "the queue is full")
            counts = await rig.client.count(queue="work")
            assert counts[State.QUEUED] == 5
            ran = 0
            while ran < 15:
                ran += await rig.run_jobs()
                await until(lambda: has_waiting(rig), "more jobs come when there is room")
        # Now another bridge gets what is left.
        async with rig.running() as second:

            async def all_ran() -> bool:
                await rig.run_jobs()
                return len(await rig.jobs()) == 23

            await until(all_ran, "the rest comes")
            assert second.intake.counts.dead == 0
        assert await rig.numbers() == list(range(23))


async def has_waiting(rig: BridgeRig) -> bool:
    return (await rig.client.count(queue="work"))[State.QUEUED] > 0


async def test_messages_cancel_jobs_by_id_and_by_key(rig: BridgeRig):
    async with rig.running() as runner:
        await rig.send(submit(1, key="first"), submit(2, key="second"), submit(3, key="third"))
        await until(lambda: runner.intake.counts.submitted == 3, "jobs")
        [second] = [job for job in await rig.jobs() if job.spec.key == "second"]
        await rig.send(
            about("cancel", "c1", key="first", note="not needed"), about("cancel", "c2", job=second.id),
            about("cancel", "c3", key="first"), about("cancel", "c4", key="nobody"),
            about("cancel", "c5", job="nobody"), about("completed", "c6", key="third", result=3), about("cancel", "c7"),
        )  # fmt: skip
        letters = await rig.read(rig.topics.dead, 4)
        await until(lambda: runner.intake.counts.finished == 3, "the cancels")
    states = {job.spec.key: job.state for job in await rig.jobs()}
    assert states == {"first": State.CANCELLED, "second": State.CANCELLED, "third": State.QUEUED}
    reasons = {letter.headers["daybreak-id"]: letter.headers["daybreak-reason"] for letter in letters}
    assert "no job has the key 'nobody'" in reasons["c4"]
    assert "no job has the id 'nobody'" in reasons["c5"]
    assert "it is not detached" in reasons["c6"]
    assert 'by "job" (its id) or by "key"' in reasons["c7"]


async def test_messages_end_work_that_goes_on_elsewhere_once_and_by_its_fence(rig: BridgeRig):
    names = ["done", "failed", "slow", "gone", "wrong"]
    async with rig.running() as runner:
        await rig.send(*[submit(number, key=name) for number, name in enumerate(names)])
        await until(lambda: runner.intake.counts.submitted == 5, "jobs")
        leases = await claim_jobs(rig.store, 5, queues=("work",), now=None)
        beats = [Beat(seq=lease.seq, fence=lease.fence, lease_for=timedelta(hours=24), detach=True) for lease in leases]
        assert all(reply.held for reply in await rig.store.extend(beats))
        await rig.send(
            about("completed", "m1", key="done", fence=1, result=7),
            about("completed", "m2", key="done", fence=1, result=7),  # it came twice
            about("completed", "m3", key="done", fence=1, result=8),  # it says something else, and is late
            about("failed", "m4", key="failed", fence=1, error="no such image", permanent=True),
            about("timeout", "m5", key="slow", fence=1, note="60 s of CPU"),
            about("completed", "m6", key="slow", fence=1, result=7),  # the attempt is over
            about("cancel", "m7", key="gone", note="not needed"),
            about("completed", "m8", key="gone", fence=1, result=7),
            about("completed", "m9", key="done", fence=2, result=7),  # there is no such attempt
            about("completed", "m10", key="wrong", fence=1, result="seven"),  # the task returns a number
            about("completed", "m11", job="nobody", fence=1),
        )
        letters = await rig.read(rig.topics.dead, 2)
        await until(lambda: runner.intake.counts.finished + runner.intake.counts.late == 9, "the outcomes")
        assert (runner.intake.counts.finished, runner.intake.counts.late) == (5, 4)
    jobs = {job.spec.key: job for job in await rig.jobs()}
    assert {name: jobs[name].state for name in names} == {
        "done": State.COMPLETED, "failed": State.FAILED, "slow": State.SCHEDULED, "gone": State.CANCELLED,
        "wrong": State.RUNNING,
    }  # fmt: skip
    assert (jobs["done"].result, jobs["slow"].timeouts, jobs["wrong"].detached) == (b"7", 1, True)
    [*_, last] = await rig.client.history(jobs["done"].id)
    assert (last.kind, last.by) == ("completed", f"bridge {rig.topics.incoming}")
    reasons = {letter.headers["daybreak-id"]: letter.headers["daybreak-reason"] for letter in letters}
    assert "result" in reasons["m10"]
    assert "no job has the id 'nobody'" in reasons["m11"]


async def test_events_come_in_order_per_job_as_cloud_events(rig: BridgeRig):
    async with rig.running() as runner:
        await rig.send(*[submit(number, key=f"order {number}") for number in range(20)])
        await until(lambda: runner.intake.counts.submitted == 20, "jobs")
        await rig.run_jobs()
        letters = await rig.read(rig.topics.outgoing, 60)
    kinds, numbers = defaultdict(list), defaultdict(list)
    for letter in letters:
        event = JSONFormat().read(CloudEvent, letter.body)
        data = event.get_data()
        assert event.get_source() == f"/daybreak/{rig.topics.incoming}"
        assert event.get_subject() == data["job"]
        assert data["task"] == "work"
        kinds[data["key"]].append(event.get_type())
        numbers[data["key"]].append(data["n"])
    assert len(kinds) == 20
    assert set(map(tuple, kinds.values())) == {
        tuple(f"daybreak.job.{kind}" for kind in ("submitted", "started", "completed"))
    }
    assert set(map(tuple, numbers.values())) == {(1, 2, 3)}


async def test_events_of_other_tasks_are_sent_only_if_asked_for(tmp_path, broker: Broker):
    async with BridgeRig(tmp_path, broker, events=["submitted"]) as rig:
        async with rig.running() as runner:
            await until(lambda: has_cursor(rig), "the bridge runs")
            await rig.client.submit("other", {"number": 1})
            await rig.send(submit(7))
            await until(lambda: runner.intake.counts.submitted == 1, "a job")
            [letter] = await rig.read(rig.topics.outgoing, 1)
        assert json.loads(letter.body)["data"]["task"] == "work"


async def has_cursor(rig: BridgeRig) -> bool:
    return bool(await rig.store.records("bridge", rig.bridge.name))


async def test_events_wait_for_a_bridge_that_is_away(rig: BridgeRig):
    """The cursor is stored before the first message is read, so nothing that follows is missed."""
    async with rig.running():
        await until(lambda: has_cursor(rig), "the bridge runs")
    await rig.client.submit("work", {"number": 1}, queue="work")
    async with rig.running():
        [letter] = await rig.read(rig.topics.outgoing, 1)
    assert json.loads(letter.body)["type"] == "daybreak.job.submitted"


async def test_a_bridge_can_be_stopped_while_it_connects(rig: BridgeRig):
    for _ in range(3):
        async with rig.running():
            await asyncio.sleep(0)
        async with rig.running():
            await until(lambda: has_cursor(rig), "the bridge runs")
