"""`daybreak stats`, and queues that shed."""

from __future__ import annotations

import json

import pytest


def test_an_empty_store_has_nothing_to_tell(cli):
    cli("queues", "set", "small", "capacity=2")
    assert "No statistics yet" in cli("stats").stdout


@pytest.fixture
def shed(cli):
    cli("queues", "set", "small", "capacity=2", "when_full=shed")
    for priority in ("low", "low", "high"):
        cli("submit", "nothing", "--queue", "small", "--priority", priority)
    return cli


def test_it_counts_what_happened(shed):
    told = shed("stats", "small").stdout
    for line in ("submitted  3", "shed       1", "waiting    2 (1 high, 1 low)"):
        assert line in told
    assert "QUEUE" in shed("stats").stdout


def test_programs_get_every_number(shed):
    found = json.loads(shed("stats", "small", "--json").stdout)
    assert (found["queue"]["submitted"], found["queue"]["shed"], found["queue"]["waiting"]) == (3, 1, 2)
    assert found["queue"]["by_priority"] == {"0": 0, "1": 0, "2": 1, "5": 0, "7": 1, "10": 0}
    assert found["queue"]["average_wait"] == 0.0
    assert set(found) == {"queue", "timeouts", "retries", "adaptive", "queues"}


def test_a_queue_says_that_it_sheds(shed):
    assert "sheds the least urgent job" in shed("queues", "show", "small").stdout
    assert "capacity 2, sheds" in shed("queues").stdout
    assert "write refuse or shed" in shed("queues", "set", "small", "when_full=explode", code=2).stderr


def test_a_queue_that_there_is_not_is_not_found(shed):
    assert "did you mean 'small'" in shed("stats", "smal", code=4).stderr
    for words in (["other"], ["other", "--json"]):
        result = shed("stats", *words, code=4)
        assert "no queue named 'other': it has neither jobs nor settings" in result.stderr
        assert result.stdout == ""
