"""The parts of a bridge: addresses, declarations, messages, CloudEvents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from daybreak import Daybreak
from daybreak.core.events import Event
from daybreak.errors import BadInput
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.cloud_events import cloud_event
from daybreak.feeds.bridge.event_publisher import in_turns
from daybreak.feeds.bridge.intake import key_of
from daybreak.feeds.bridge.messages import (
    Cancel,
    Completed,
    Failed,
    Submit,
    TimedOut,
    checked,
    json_schema,
    read_arguments,
    read_message,
)

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.fixture
def app(tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work(number: int) -> int:
        return number

    return app


# -- addresses and declarations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("broker", "write the URL of a broker"),
        (None, "write the URL of a broker"),
        ("http://host", "http:// is no broker"),
        ("nats://", "names no host"),
        ("nats://host:4222?wait=1s", "'wait' is not an option of nats://"),
        ("kafka://host:9092?group=x", "'group' is not an option of kafka://"),
        ("nats://one:4222,two:99999", "'two:99999' has no valid port"),
        ("redis://host:port", "'host:port' has no valid port"),
        ("nats://host:4222?ack_wait=soon", "ack_wait: 'soon' is not a duration"),
        ("redis://host:6379?claim_after=5", "claim_after: '5' is not a duration"),
        ("redis://host:6379?maxlen=many", "maxlen='many': write how many entries"),
        ("redis://host:6379?maxlen=0", "maxlen='0': write how many entries"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_spelling(app, url, says):
    with pytest.raises(BadInput, match=says):
        app.bridge(url, "work", incoming="in")


def test_an_address_never_shows_its_password():
    address = parse_broker("amqp://user:secret@host:5672/vhost?exchange=events&heartbeat=30")
    assert "secret" not in f"{address} {address!r}"
    assert address.password == "secret"  # noqa: S105
    assert address.options == {"exchange": "events"}
    assert address.url.endswith("/vhost?heartbeat=30")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "incoming='...'"),
        ({"outgoing": "out"}, "which topic brings the jobs"),
        ({"incoming": "in", "outgoing": "in"}, "named twice"),
        ({"incoming": "in", "dead": "in"}, "named twice"),
        ({"incoming": "two words"}, "the name of a topic"),
        ({"incoming": "in", "capacity": 0}, "1 or more"),
        ({"incoming": "in", "form": "xml"}, "'message' or 'arguments'"),
        ({"incoming": "in", "events": ["finished"]}, "no event 'finished'"),
        ({"incoming": "in", "events": ["saga_stuck"]}, "no event 'saga_stuck'"),
        ({"incoming": "in", "events": ["queue_full"]}, "no event 'queue_full'"),
    ],
)
def test_wrong_options_are_refused_with_the_right_spelling(app, options, says):
    with pytest.raises(BadInput, match=says):
        app.bridge("nats://host:4222", "work", **options)


@pytest.mark.parametrize(
    ("url", "topic"),
    [("nats://h:1", "in.*"), ("nats://h:1", "in.>"), ("nats://h:1", "in..x"), ("nats://h:1", "in."),
     ("kafka://h:1", "^in"), ("kafka://h:1", "in*"), ("kafka://h:1", "été")],
)  # fmt: skip
def test_a_topic_that_cannot_have_dead_letters_is_refused(app, url, topic):
    for options in ({"incoming": topic}, {"incoming": "in", "dead": topic}, {"incoming": "in", "outgoing": topic}):
        with pytest.raises(BadInput, match=r"one subject|a topic of Kafka"):
            app.bridge(url, "work", **options)
    app.bridge("redis://h:1", "work", incoming=topic)


def test_two_bridges_of_one_name_are_refused(app):
    app.bridge("nats://host:4222", "work", incoming="in")
    with pytest.raises(BadInput, match="another name"):
        app.bridge("redis://host:6379", "work", incoming="in")
    app.bridge("redis://host:6379", "work", incoming="in", name="second")
    assert [bridge.topics.dead for bridge in app.bridges] == ["in.dead", "in.dead"]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_is_read_plain_or_as_a_cloud_event():
    plain = read_message(b'{"version": 1, "kind": "submit", "id": "7", "args": {"number": 1}, "priority": "high"}')
    assert plain == Submit(id="7", args={"number": 1}, priority="high")
    event = {"specversion": "1.0", "type": "daybreak.cancel.v1", "source": "/shop", "id": "8", "data": {"key": "k"}}
    assert read_message(json.dumps(event).encode()) == Cancel(id="/shop 8", key="k")
    assert read_arguments(b'{"version": 3}') == Submit(args={"version": 3})


def test_a_cloud_event_with_a_long_source_has_an_identity_of_its_own():
    def read(source, id):  # noqa: A002 - the name of the attribute
        event = {"specversion": "1.0", "type": "daybreak.submit.v1", "source": source, "id": id}
        return read_message(json.dumps(event).encode()).id

    long = "https://shop.example/" + "branch/" * 40
    assert read(long, "1") == read(long, "1") != read(long, "2")
    assert read(long, "1") != read(long + "x", "1")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"specversion": "0.3", "type": "daybreak.submit.v1", "source": "/s", "id": "1"}, "specversion '0.3'"),
        ({"specversion": "1.0", "type": "com.example.submit", "source": "/s", "id": "1"}, "com.example.submit"),
        ({"specversion": "1.0", "type": "daybreak.submit.v2", "source": "/s", "id": "1"}, "version 2"),
        ({"specversion": "1.0", "type": "daybreak.submit.v1"}, "id"),
        ({"specversion": "1.0", "type": "daybreak.submit.v1", "source": "/s", "id": "1", "data": 3}, "JSON object"),
        ({"version": 1, "kind": "cancel", "job": "a", "key": "b"}, "must name one job"),
        ({"version": 1, "kind": "submit", "args": [1]}, "args"),
        ({"version": 1, "kind": "submit", "key": ""}, "key"),
        ([], "JSON object"),
    ],
)
def test_a_wrong_message_is_refused_with_what_is_wrong(message, says):
    with pytest.raises(BadInput, match=says):
        read_message(json.dumps(message).encode())


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, r"read\(\) returned None"),
        ({"args": {}}, r"read\(\) returned \{'args'"),
        (Cancel(), "must name one job"),
        (Completed(job="a", key="b"), "must name one job"),
        (Cancel(key=5), "key"),
        (Completed(key="a", fence="1"), "fence"),
        (Failed(key="a", error=ValueError("x")), "error"),
        (TimedOut(job="a", note=5), "note"),
    ],
)
def test_what_a_read_function_returns_is_checked_like_a_message(found, says):
    with pytest.raises(BadInput, match=says):
        checked(found)


def test_what_a_read_function_may_return():
    for found in (Submit(args={"number": 1}), Cancel(key="a"), Completed(key="a", result=object()), TimedOut(job="b")):
        assert checked(found) is found


def test_the_schema_in_the_docs_is_that_of_the_code():
    assert json.loads((DOCS / "bridge-messages.json").read_text()) == json_schema()


def test_every_message_of_the_reference_can_be_read():
    blocks = (DOCS / "bridge.md").read_text().split("```json\n")[1:]
    shown = [json.loads(block.partition("```")[0]) for block in blocks]
    *messages, event = shown
    read = [type(read_message(json.dumps(each).encode())) for each in messages]
    assert read == [Submit, Cancel, Completed, Failed, TimedOut, Submit]
    job, number = event["data"]["job"], event["data"]["n"]
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    made = cloud_event(Event(n=number, kind="completed", job=job, at=at), event["source"])
    envelope = json.loads(made.body)
    assert {**envelope, "data": None} == {**event, "data": None}


def test_completed_messages_belong_to_the_schema():
    message = {"version": 1, "kind": "completed", "key": "k", "fence": 3, "result": [1]}
    assert read_message(json.dumps(message).encode()) == Completed(key="k", fence=3, result=[1])


def test_a_long_or_strange_identity_is_a_valid_key():
    assert key_of("in", "17") == "bridge in 17"
    for identity in ("x" * 500, "a\nb", "\udc80"):
        key = key_of("in", identity)
        assert len(key) <= 200
        assert key.isprintable()
        assert key == key_of("in", identity) != key_of("in", identity + "!")


# -- events ------------------------------------------------------------------------------------------------------------


def events(*names: str) -> list[Event]:
    at, counts, made = datetime(2026, 1, 1, tzinfo=UTC), {}, []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        made.append(Event(n=counts[name], kind="started", job=name, at=at))
    return made


def test_at_most_one_event_of_a_job_is_in_flight():
    turns = in_turns(events("a", "b", "a", "c", "a", "b"))
    assert [[(event.job, event.n) for event in turn] for turn in turns] == [
        [("a", 1), ("b", 1), ("c", 1)], [("a", 2), ("b", 2)], [("a", 3)],
    ]  # fmt: skip


def test_an_event_has_the_same_id_each_time_and_progress_one_per_time():
    [first] = events("a")
    later = msgspec.structs.replace(first, kind="progress", progress=0.5)
    assert cloud_event(first, "/s").id == cloud_event(first, "/s").id == "a.1"
    assert cloud_event(later, "/s").id != "a.1"
