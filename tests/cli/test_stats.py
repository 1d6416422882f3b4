"""`daybreak stats`, and queues that shed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

from daybreak.cli.trends import percent, sparkline
from daybreak.client.trend_counts import take_snapshot
from daybreak.stores.sqlite import SqliteStore


def test_an_empty_store_has_nothing_to_tell(cli):
    cli("queues", "set", "small", "capacity=2")
    assert "No statistics yet" in cli("stats").stdout


@pytest.fixture
def shed(cli):
    cli("queues", "set", "small", "capacity=2", "when_full=shed")
    for priority in ("low", "low", "high"):
        cli("submit", "nothing", "--queue", "small", "--priority", priority)
    return cli


@pytest.fixture
def worked(cli, tmp_path):
    """A worker has taken the first snapshot, and three jobs were submitted since."""

    async def begin():
        async with SqliteStore(tmp_path / "daybreak.db") as store:
            await take_snapshot(store, datetime.now(UTC))

    asyncio.run(begin())
    for priority in ("normal", "normal", "high"):
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
    assert set(found) == {"queue", "timeouts", "retries", "adaptive", "queues", "batch_calls"}


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


def test_trends_of_a_time_without_jobs_say_so(cli):
    cli("queues", "set", "small", "capacity=2")
    assert "Nothing happened in this time" in cli("stats", "--since", "7d").stdout


def test_trends_show_what_happened_since_then(worked):
    shown = worked("stats", "--since", "2h", "--by", "priority").stdout
    for text in ("by minute", "submitted    3", "PRIORITY", "high", "normal", "TARGET", "30 min"):
        assert text in shown


def test_programs_get_trends_as_well(worked):
    found = json.loads(worked("stats", "small", "--since", "2h", "--by", "task", "--json").stdout)["trends"]
    assert (found["by"], found["queue"], found["resolution"], len(found["points"])) == ("task", "small", "minute", 121)
    assert found["figures"]["submitted"] == found["groups"][0]["figures"]["waiting"] == 3
    assert found["points"][-1]["at"].endswith("Z")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--since", "31d"), "30 days at most"),
        (("--since", "1d", "--resolution", "minute"), "12 hours at most"),
        (("--since", "1d", "--resolution", "week"), "no resolution named 'week'"),
        (("--since", "1d", "--by", "owner"), "no grouping named 'owner'"),
        (("nosuch", "--since", "1d"), "no queue named 'nosuch'"),
    ],
)
def test_trends_that_cannot_be_shown_say_why(worked, words, message):
    assert message in worked("stats", *words, code=None).stderr


def test_a_chart_shows_every_value_above_nothing_and_fits_its_width():
    assert sparkline([0, 1, 1000, 500], 10) == " ▁█▄"
    assert len(sparkline(list(range(721)), 48)) <= 48
    assert sparkline([0, 0], 10) == ""


@pytest.mark.parametrize(
    ("share", "text"), [(None, ""), (1.0, "100 %"), (0.99999, "99.9 %"), (0.9731, "97.31 %"), (0.0, "0 %")]
)
def test_a_share_is_a_hundred_per_cent_only_if_all_met_it(share, text):
    assert percent(share) == text
