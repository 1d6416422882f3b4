"""`daybreak report`: what happened, failures by their cause, and retry commands that touch only their cluster."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from daybreak.cli.report import sparkline

XSS = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u2028javascript:alert(1)"


@pytest.fixture
def night(place):
    """Three kinds of failure, one job that a retry saved, and one that waits."""
    for n in range(4):
        place.fail(f"connect to 10.0.0.{n} failed", kind="PermissionError")
    for n in range(2):
        place.fail(f"matrix {n} is singular")
    place.fail(XSS, task="evil")
    place.complete()
    place.submit()


def test_failures_are_grouped_and_each_cluster_has_its_command(cli, ask, place, night):
    report = ask("report", "--since", "1h", "--json")
    assert report["counts"] == {"completed": 1, "cancelled": 0, "failed": 7}
    assert report["unfinished"] == {"queued": 1}
    assert [cluster["jobs"] for cluster in report["failures"]] == [4, 2, 1]
    told = cli("report", "--since", "1h").stdout
    assert "4 jobs failed: PermissionError: connect to 10.0.0.3 failed" in told
    assert "\x1b" not in told
    commands = [line.split("retry:")[1].strip() for line in told.splitlines() if "retry:" in line]
    assert len(commands) == 3
    cli(*shlex.split(commands[1])[1:])
    counts = place.do(lambda client: client.count())
    assert (counts["failed"], counts["queued"]) == (5, 3), "two of them were retried, and no other"
    after = ask("report", "--since", "1h", "--json")
    assert [cluster["jobs"] for cluster in after["failures"]] == [4, 1], "what was retried is not listed any more"


def test_a_cluster_selects_jobs_in_lists_too(ask, night):
    clusters = ask("report", "--since", "1h", "--json")["failures"]
    for cluster in clusters:
        found = ask("jobs", "--cluster", cluster["cluster"], "--state", "failed", "--json")["jobs"]
        assert len(found) == cluster["jobs"]
        assert cluster["example"] in {job["id"] for job in found}


def test_a_rate_spreads_retries(cli, place, night, ask):
    [largest, *_] = ask("report", "--since", "1h", "--json")["failures"]
    told = cli("jobs", "retry", "--cluster", largest["cluster"], "--rate", "1000/s", "--yes").stdout
    assert told.count("queued again") == 5, "each by itself, and all of them at the end"
    assert place.do(lambda client: client.count())["failed"] == 3
    assert "write" in cli("jobs", "retry", "--queue", "default", "--rate", "often", code=2).stderr


class Page(HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_page_is_one_small_file_without_scripts(cli, night, tmp_path):
    cli("report", "--since", "1h", "--html", "morning.html")
    text = (tmp_path / "morning.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.tags & {"script", "img", "iframe", "link", "object", "form", "a"}
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href")}
    assert len(text) < 1_000_000
    assert "\x1b" not in text
    assert "\u2028" not in text
    assert "&lt;script&gt;" in text
    assert "daybreak jobs retry --cluster" in text


def test_a_time_of_day_is_the_latest_one(cli, place):
    place.submit()
    soon = datetime.now(UTC) + timedelta(minutes=2)
    report = json.loads(cli("report", "--since", f"{soon:%H:%M}", "--json").stdout)
    since = datetime.fromisoformat(report["since"])
    assert timedelta(hours=23) < datetime.now(UTC) - since < timedelta(hours=24)
    assert "not a time of day" in cli("report", "--since", "25:00", code=2).stderr


def test_nothing_happened(cli, place):
    place.submit()
    told = cli("report", "--since", "1h").stdout
    assert "failed      0" in " ".join(told.split("\n")) or "failed" in told
    assert "unfinished" in told


def test_a_sparkline_shows_the_greatest_of_each_part():
    assert sparkline([0, 1, 2, 4], 4) == " ▂▄█"
    assert sparkline([0, 8] * 50, 10) == "█" * 10
    assert sparkline([], 10) == ""
