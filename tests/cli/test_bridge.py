"""`daybreak bridge`: a real process between Redis streams and a store, and what people see."""

from __future__ import annotations

import json
import os
import secrets
import signal
from pathlib import Path

import pytest

TASKS = """
from daybreak import Daybreak

app = Daybreak()

@app.task
def work(number: int) -> int:
    return number
"""


@pytest.fixture
def tasks():
    Path("tasks.py").write_text(TASKS)


@pytest.fixture
def streams():
    """A connection to Redis, and the name of a topic in it."""
    pytest.importorskip("hiredis")
    from redis_servers import REDIS, connect, need_redis

    need_redis()
    topic = f"in.{secrets.token_hex(5)}"
    with connect() as connection:
        yield REDIS, topic, connection
        for name in (topic, f"{topic}.dead", f"{topic}.events"):
            connection.call(("DEL", name))


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_messages_are_run_and_events_sent_until_the_process_is_stopped(start, cli, until, tasks, streams):
    url, topic, connection = streams
    body = json.dumps({"version": 1, "kind": "submit", "key": "order 7", "args": {"number": 7}})
    connection.call(("XADD", topic, "*", "body", body))
    process = start(
        "bridge", url, "--app", "tasks.py", "--task", "work", "--in", topic, "--out", f"{topic}.events",
        "--event", "completed", "--worker",
    )  # fmt: skip
    until(lambda: connection.call(("XLEN", f"{topic}.events")) == 1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    [[_, fields]] = connection.call(("XRANGE", f"{topic}.events", "-", "+"))
    event = json.loads(dict(zip(fields[::2], fields[1::2], strict=True))[b"body"])
    assert (event["type"], event["data"]["key"]) == ("daybreak.job.completed", "order 7")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_the_bridges_of_the_code_run_without_a_worker(start, cli, until, streams):
    url, topic, connection = streams
    Path("tasks.py").write_text(f"{TASKS}\napp.bridge({url!r}, work, incoming={topic!r}, form='arguments')\n")
    connection.call(("XADD", topic, "*", "body", '{"number": 7}'))
    connection.call(("XADD", topic, "*", "body", '{"nummer": 7}'))
    process = start("bridge", "--app", "tasks.py")
    until(lambda: connection.call(("XLEN", f"{topic}.dead")) == 1 and len(queued(cli)) == 1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"messages from {topic} for task work" in told
    assert "did you mean 'number'?" in told


def queued(cli) -> list[object]:
    return json.loads(cli("jobs", "--json").stdout)["jobs"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "which broker? write its URL"),
        (["--in", "x"], "which broker? --in needs its URL"),
        (["http://host"], "is no broker that Daybreak knows"),
        (["nats://host:1"], "name a topic to read"),
        (["nats://host:1", "--in", "x", "--task", "wrok"], "did you mean 'work'?"),
        (["nats://host:1", "--in", "x", "--task", "work", "--event", "done"], "there is no event 'done'"),
    ],
)
def test_what_is_missing_or_wrong_is_said(cli, tasks, words, says):
    assert says in cli("bridge", *words, "--app", "tasks.py", code=2).stderr
