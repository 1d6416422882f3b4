"""The commands: init, status, redrive, destroy, scale, and what they say about bad input."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta

import pytest
from click.testing import CliRunner
from sqs_tasks import add

from daybreak.cli.root import root
from daybreak.core.errors import BadInput
from daybreak.sqs import queue_names as names
from daybreak.sqs import setup
from daybreak.sqs.address import Address, address_of
from daybreak.sqs.dispatched import Dispatched
from daybreak.sqs.scale import Load, load_of, wanted


def run(*words):
    result = CliRunner().invoke(root, list(words))
    return result.exit_code, result.output


@pytest.fixture
def prefix():
    return f"c{secrets.token_hex(4)}"


def test_queues_are_created_counted_and_deleted(endpoint, prefix):
    words = ("--prefix", prefix, "--region", "eu-west-1", "--endpoint", endpoint)
    code, told = run("sqs", "status", *words)
    assert code == 0
    assert "missing" in told
    code, told = run("sqs", "init", *words, "--visibility", "90s")
    assert (code, "11 queues created" in told) == (0, True)
    code, told = run("sqs", "init", *words)
    assert (code, "0 queues created" in told) == (0, True)
    code, told = run("sqs", "status", *words, "--json")
    counted = json.loads(told)["queues"]
    assert [one["name"] for one in counted] == names.fixed_queues(prefix)
    assert all(one["exists"] and not one["visible"] for one in counted)
    code, told = run("sqs", "redrive", *words)
    assert code == 0
    assert run("sqs", "destroy", *words)[0] == 2  # without --yes
    assert run("sqs", "destroy", *words, "--yes")[1] == "11 queues deleted.\n"
    assert run("sqs", "destroy", *words, "--yes")[1] == "0 queues deleted.\n"


async def test_attributes_and_dead_letter_queues(stage):
    prefix = stage.address.prefix
    for name in names.fixed_queues(prefix):
        reply = await stage.queues.call(
            "get_queue_attributes", QueueUrl=await stage.queues.url(name), AttributeNames=["All"]
        )
        found = reply["Attributes"]
        dead = names.dead_queue_of(prefix, name)
        assert found["ReceiveMessageWaitTimeSeconds"] == "20"
        if dead is None:
            assert "RedrivePolicy" not in found
        else:
            assert json.loads(found["RedrivePolicy"])["deadLetterTargetArn"].endswith(dead)


async def test_a_dead_letter_is_redriven(stage):
    prefix = stage.address.prefix
    await stage.queues.send(names.status_dead_queue(prefix), ["one", "two"])
    await stage.queues.send(names.task_dead_queue(prefix), ["three"])
    assert await setup.redrive(stage.queues) == {
        names.task_dead_queue(prefix): 1,
        names.status_dead_queue(prefix): 2,
    }
    found = await stage.queues.receive(names.status_queue(prefix))
    assert {message.body for message in found} == {"one", "two"}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqs://", "write sqs://eu-west-1/prefix"),
        ("sqs://eu-west-1/", "1 to 30 letters"),
        ("sqs://eu-west-1/a b", "1 to 30 letters"),
        ("sqs://eu-west-1/p?speed=9", "no option 'speed'"),
        ("sqs://eu-west-1/p?endpoint=ftp://x", "write a URL"),
        ("sqs://ann:hunter2@eu-west-1/p", "without a name or password"),
        ("sqs://EU_west/p", "write --region eu-west-1"),
        ("https://eu-west-1/p", "write sqs://eu-west-1/prefix"),
    ],
)
def test_a_bad_address_is_refused_with_the_right_spelling(url, told):
    with pytest.raises(BadInput, match=told) as caught:
        address_of(url)
    assert "hunter2" not in str(caught.value)


def test_an_address():
    assert address_of("sqs://eu-west-1/jobs?endpoint=http://127.0.0.1:5000") == Address(
        "eu-west-1", "jobs", "http://127.0.0.1:5000"
    )
    longest = names.control_queue("p" * 30, "w" * 100)
    assert len(longest) <= names.NAME_LIMIT


@pytest.mark.parametrize(
    ("load", "workers"),
    [
        (Load(waiting=0, running=0, seconds=10.0), 0),
        (Load(waiting=5, running=0, seconds=None), 2),  # as many slots as jobs
        (Load(waiting=600, running=0, seconds=10.0), 4),  # 6,000 s of work in 600 s, 3 at once
        (Load(waiting=1, running=0, seconds=0.001), 1),
        (Load(waiting=100_000, running=0, seconds=10.0), 50),  # the greatest number
    ],
)
def test_the_number_of_workers(load, workers):
    assert wanted(load, slots=3, within=timedelta(minutes=10), most=50).workers == workers


async def test_scale_counts_jobs_and_how_long_they_took(stage):
    await stage.dispatcher()
    await stage.worker()
    await stage.ended(await add.asubmit(1, 2))
    await add.using(queue="later").asubmit(1, 2)
    load = await load_of(await stage.store())
    assert (load.waiting, load.running) == (1, 0)
    assert load.seconds is not None
    assert 0 <= load.seconds < 60


def test_scale_without_jobs_prints_the_least_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text("from daybreak import Daybreak\napp = Daybreak()\n@app.task\ndef t(): ...\n")
    assert run("submit", "t", "--app", "tasks.py")[0] == 0
    assert run("scale", "--max", "7") == (0, "1\n")
    assert run("scale", "--queue", "other", "--min", "2") == (0, "2\n")
    assert run("scale", "--min", "9", "--max", "7")[0] == 2


def test_room_is_by_bucket_and_ends_where_rank_does():
    dispatched = Dispatched(depth=3)
    assert dispatched.room({}) == 0
    assert dispatched.room({5: 2}) == 2
    assert dispatched.room({5: 9, 8: 9}) == 3  # the rest of the normal ones would come before the low ones
    assert dispatched.room({1: 1, 5: 9}) == 4
    assert dispatched.room({4: 2, 5: 2}) == 3  # one bucket
