"""Metrics by OpenTelemetry are those that Prometheus reads; a request's trace goes on in the jobs that it submits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from worker_processes import until

from daybreak import Breaker, Daybreak, Resource
from daybreak.api.metrics.instruments import spelling
from otlp_receiver import receiving

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
CLI = [sys.executable, "-m", "daybreak.cli"]
OLDER = {"queue.depth", "queue.active", "queue.enqueue.total", "queue.schedule.total", "queue.wait_time"}


@pytest.fixture
def receiver():
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def served(tmp_path, receiver):
    env = {**os.environ, **receiver.env, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
    token = subprocess.run(
        [*CLI, "tokens", "create", "ann", "--role", "admin", "--url", "jobs.db"], cwd=tmp_path, capture_output=True,
        text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    words = ["serve", "--port", "0", "--url", "jobs.db", "--metric-names", "integr8scode"]
    process = subprocess.Popen([*CLI, *words], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    address = re.search(r"(http://\S+?)\. ", process.stderr.readline())
    assert address is not None
    with httpx.Client(base_url=address[1], headers={"authorization": f"Bearer {token}"}) as client:
        yield client
    process.terminate()
    process.communicate()


def test_they_equal_what_prometheus_reads(served, receiver, tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(retry=1, resource=Resource("licence", slots=2, breaker=Breaker()))
    def work(n: int) -> int:
        if n == 3:
            raise ValueError
        return n

    work.using(queue="sims", priority="high").submit_many([{"n": n} for n in range(4)])
    app.work(queues=["sims"], isolation="thread")
    work.using(queue="mail").submit(1)
    with app.lock("printer"):
        until(lambda: receiver.metrics.get("daybreak.lock.held") == [({"lock": "printer"}, 1.0)], "the lock is held")
        told = served.get("/metrics").text
        receiver.services.clear()
        until(lambda: len(receiver.services) > 2, "the metrics were exported again")
        exported = {name: dict(_keyed(points)) for name, points in receiver.metrics.items()}
    app.close()
    expected: dict[str, dict[tuple[tuple[str, str], ...], object]] = {}
    for family in text_string_to_metric_families(told):
        name, _ = spelling(family.name)
        if family.type == "histogram":
            counts = {_key(one.labels): one.value for one in family.samples if one.name.endswith("_count")}
            sums = {_key(one.labels): one.value for one in family.samples if one.name.endswith("_sum")}
            points = {key: (count, sums[key]) for key, count in counts.items()}
        else:
            points = {_key(one.labels): one.value for one in family.samples}
        if points:
            expected[name] = points
    for timed in (exported, expected):  # it grows while we look
        assert timed.pop("daybreak.oldest.wait").keys() == {(("queue", "mail"),)}
    assert exported == expected
    assert exported["daybreak.jobs.failed"] == {(("queue", "sims"), ("reason", "error"), ("task", "work")): 1}
    assert exported["queue.depth"] == {(): 1}
    assert exported.keys() >= OLDER
    assert exported.keys() - OLDER <= documented()
    assert {"daybreak.wait", "daybreak.run", "daybreak.breaker.state", "daybreak.attempts"} <= exported.keys()


def test_a_job_continues_the_trace_of_its_request(served, receiver):
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace}-{span}-01"}
    served.post("/api/v1/jobs", json={"task": "mail"}, headers=headers).raise_for_status()
    served.post("/api/v1/jobs/batch", json={"jobs": [{"task": "mail"}] * 2}, headers=headers).raise_for_status()
    served.post("/api/v1/jobs", json={"task": "mail"}, headers={"traceparent": "x" * 4000}).raise_for_status()
    until(lambda: len(receiver.spans) == 3, "the spans of the submits")
    assert [(one.name, one.trace, one.parent) for one in receiver.spans[:2]] == [("submit mail", trace, span)] * 2
    assert receiver.spans[1].attributes["daybreak.jobs"] == 2
    assert receiver.spans[2].parent == ""


def documented() -> set[str]:
    """The names in the table of the page."""
    own = PAGE.read_text().partition("## Names of older systems")[0]
    return {
        spelling(name.removesuffix("_total"))[0] for name in re.findall(r"^\| `(daybreak_\w+)` \|", own, re.MULTILINE)
    }


def _key(labels):
    return tuple(sorted(labels.items()))


def _keyed(points):
    return [(_key(attributes), value) for attributes, value in points]
