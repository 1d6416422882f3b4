"""Metrics: what Prometheus reads equals what the store says, under our names and those of older systems."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server_world import LOCAL, problem

from daybreak import Daybreak, Resource
from daybreak.api.metrics.figures import Figures
from daybreak.api.metrics.labels import MAX_VALUES, OTHER
from daybreak.core.errors import BadInput
from daybreak.core.model import State
from daybreak.policy.alerts import AlertState
from daybreak.policy.trends import Sketch
from daybreak.server.exposition import expose
from daybreak.server.settings import ServerSettings
from daybreak.store.protocol import Tally, Total

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
NOTHING = Figures(
    now=datetime(2026, 3, 1, tzinfo=UTC), tallies=[], totals=[], oldest={}, resources=[], locks=[], workers=[],
    alerts=AlertState(), sketches={},
)  # fmt: skip


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found, name, **labels):
    return found[name, tuple(sorted(labels.items()))]


async def test_a_scrape_equals_the_store(connect, app: Daybreak):
    http = await connect()
    licence = Resource("licence", slots=2)

    @app.task(retry=1, resource=licence)
    def work(n: int) -> int:
        if n == 3:
            raise ValueError
        return n

    await work.using(queue="sims", priority="high").asubmit_many([{"n": n} for n in range(4)])
    later = await work.using(queue="mail", delay="1h").asubmit(9)
    await app.awork(queues=["sims"], isolation="thread")
    waiting = await work.using(queue="mail").asubmit(1)
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = samples(answer.content)
    named = {"queue": "sims", "task": "work", "priority": "high"}
    assert value(found, "daybreak_jobs", queue="sims", priority="high", state="completed") == 3
    assert value(found, "daybreak_jobs", queue="mail", priority="normal", state="scheduled") == 1
    assert value(found, "daybreak_jobs_submitted_total", **named) == 4
    assert value(found, "daybreak_jobs_completed_total", **named) == 3
    assert value(found, "daybreak_attempts_total", **named) == 4
    assert value(found, "daybreak_jobs_failed_total", queue="sims", task="work", reason="error") == 1
    assert value(found, "daybreak_wait_seconds_count", **named) == 4
    assert value(found, "daybreak_run_seconds_bucket", **named, le="+Inf") == 4
    assert value(found, "daybreak_resource_slots", resource="licence") == 2
    assert value(found, "daybreak_oldest_wait_seconds", queue="mail") >= 0
    assert value(found, "daybreak_workers", state="live") == 0
    await later.acancel()
    await waiting.acancel()


async def test_who_may_scrape(connect, make_token):
    strict = ServerSettings(hosts=LOCAL.hosts)
    problem(await (await connect(settings=strict)).get("/metrics"), 401, "unauthenticated")
    reader = await connect(await make_token("prometheus", "read"), settings=strict)
    assert (await reader.get("/metrics")).status_code == 200


async def test_the_names_of_older_systems(connect, app: Daybreak):
    @app.task
    def work(n: int) -> int:
        return n

    await work.asubmit_many([{"n": n} for n in range(3)])
    await app.awork(isolation="thread")
    await work.asubmit(4)
    settings = ServerSettings(
        hosts=LOCAL.hosts, anonymous_reads=True, metric_names=("pywats", "integr8scode", "atlantis")
    )
    text = (await (await connect(settings=settings)).get("/metrics")).content
    found = samples(text)
    assert value(found, "queue_items_added_total") == 4
    assert value(found, "queue_items_completed_total") == 3
    assert value(found, "queue_depth") == 1
    assert value(found, "pywats_queue_depth", queue_name="default") == 1
    assert value(found, "queue_active") == 0
    assert value(found, "queue_enqueue_total") == 4
    assert value(found, "queue_schedule_total") == 3
    assert value(found, "queue_wait_time_bucket", priority="normal", le="+Inf") == 3
    assert value(found, "atlantis_queue_size", queue_type="priority") == 1
    assert value(found, "atlantis_queue_wait_time_count", priority="normal") == 3
    assert value(found, "atlantis_operations_total") == 3
    assert value(found, "atlantis_timeouts_total") == 0
    assert value(found, "atlantis_retry_total") == 0
    assert value(found, "atlantis_retry_success_total") == 0
    assert text.count(b"# TYPE queue_depth ") == 1


def test_unknown_metric_names_are_refused(app: Daybreak):
    from daybreak.server import asgi

    with pytest.raises(BadInput, match="the sets are pywats, integr8scode, atlantis"):
        asgi(app, ServerSettings(metric_names=("wats",)))


def test_labels_are_bounded_and_nothing_is_left_out():
    tallies = [Tally(f"q{n}", f"t{n}", 1, 5, State.QUEUED, 1 + n % 3) for n in range(5000)]
    totals = [Total(f"q{n}", f"t{n}", 1, 5, "submitted", 2) for n in range(5000)]
    sketches = {(f"q{n}", f"t{n}", 5): Sketch({0: 1}, 1000, 1, {3: 1}, 2000) for n in range(5000)}
    figures = Figures(**{**as_dict(NOTHING), "tallies": tallies, "totals": totals, "sketches": sketches})
    text = expose(figures, ("pywats", "atlantis", "integr8scode"))
    found = samples(text)
    queues = {dict(labels).get("queue") for _, labels in found} - {None}
    assert len(queues) <= MAX_VALUES + 1
    assert OTHER in queues
    jobs = sum(n for (name, _), n in found.items() if name == "daybreak_jobs")
    assert jobs == sum(tally.n for tally in tallies)
    waits = sum(n for (name, _), n in found.items() if name == "daybreak_wait_seconds_count")
    assert waits == 5000
    assert len(text) < 5_000_000


def as_dict(figures: Figures) -> dict[str, object]:
    return {name: getattr(figures, name) for name in figures.__struct_fields__}


def test_hostile_names_stay_inside_their_label():
    hostile = 'q"} 1\ndaybreak_jobs{queue="x'
    figures = Figures(**{**as_dict(NOTHING), "tallies": [Tally(hostile, "t\\", 1, 5, State.QUEUED, 7)]})
    found = samples(expose(figures))
    assert value(found, "daybreak_jobs", queue=hostile, priority="normal", state="queued") == 7


def test_the_page_lists_every_metric_and_no_other():
    text = expose(NOTHING, ("pywats", "integr8scode", "atlantis")).decode()
    emitted = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    emitted = {name.removesuffix("_total") for name in emitted}
    listed = {
        name.removesuffix("_total") for name in re.findall(r"^\| `([a-z0-9_]+)[`{]", PAGE.read_text(), re.MULTILINE)
    }
    assert emitted == listed
