"""Spans of jobs: which there are, what they say, and that they cost the stores nothing."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from daybreak.core.model import Cancelled, Done, Failed, Failure, HandedBack, JobSpec, Lease, Lost, Suspended, TimedOut
from daybreak.policy.admit import digest
from daybreak.policy.settle import settle
from daybreak.telemetry import sdk, submit_spans
from daybreak.telemetry.attempt_spans import AttemptSpans

AT = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def lease(*, trace=TRACE, attempt=1, fence=1, **changes) -> Lease:
    spec = JobSpec(id="j1", task="send", queue="mail", trace=trace, **changes.pop("spec", {}))
    started = AT + timedelta(seconds=9)
    return Lease(
        seq=1, spec=spec, fence=fence, attempt=attempt, priority=5, worker="w", until=started, started_at=started,
        lease_for=timedelta(seconds=7), created_at=AT, **changes,
    )  # fmt: skip


class Traced:
    def __init__(self, sampler=None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = AttemptSpans(provider.get_tracer("daybreak"))

    def settle(self, lease, outcome, times=(100.0, 101.5)):
        if times is not None:
            self.spans.ran(lease, *times)
        self.spans.settled(lease, settle(lease, outcome, chance=0.5, by="w"))

    @property
    def written(self):
        return self._exporter.get_finished_spans()


@pytest.fixture
def traced():
    return Traced()


def test_the_first_attempt_brings_the_wait(traced):
    traced.settle(lease(), Done())
    wait, run = traced.written
    assert (wait.name, wait.start_time, wait.end_time) == (
        "wait send", int(AT.timestamp()) * 10**9, (int(AT.timestamp()) + 9) * 10**9
    )  # fmt: skip
    assert (run.name, run.start_time, run.end_time) == ("run send", 100 * 10**9, 1015 * 10**8)
    for span in (wait, run):
        assert f"{span.context.trace_id:032x}" == TRACE[3:35]
        assert f"{span.parent.span_id:016x}" == TRACE[36:52]
    assert dict(run.attributes) == {
        "daybreak.job": "j1", "daybreak.task": "send", "daybreak.queue": "mail", "daybreak.priority": 5,
        "daybreak.attempt": 1, "daybreak.outcome": "completed", "daybreak.state": "completed", "daybreak.worker": "w",
    }  # fmt: skip


def test_a_delayed_job_waits_from_when_it_is_due(traced):
    traced.settle(lease(spec={"delay": timedelta(seconds=4)}), Done())
    wait = traced.written[0]
    assert wait.end_time - wait.start_time == 5 * 10**9


@pytest.mark.parametrize(
    ("outcome", "told", "names"),
    [
        (Failed(Failure(message="no", kinds=("ValueError",), traceback="...")), "failed", ["wait send", "run send"]),
        (TimedOut(timedelta(seconds=1)), "timed out", ["wait send", "run send"]),
        (Lost("killed"), "lost", ["wait send", "run send"]),
        (Cancelled(), "cancelled", ["wait send", "run send"]),
        (Suspended(), "suspended", ["run send"]),
        (HandedBack(), "handed back", ["run send"]),
    ],
)
def test_every_end_is_told(outcome, told, names, traced):
    traced.settle(lease(), outcome)
    assert [span.name for span in traced.written] == names
    assert traced.written[-1].attributes["daybreak.outcome"] == told


def test_a_failure_is_an_exception_of_the_span(traced):
    traced.settle(lease(attempt=2, fence=2), Failed(Failure(message="no", kinds=("ValueError",), traceback="there")))
    [run] = traced.written
    assert (run.status.is_ok, run.status.description) == (False, "ValueError: no")
    assert dict(run.events[0].attributes) == {
        "exception.type": "ValueError", "exception.message": "no", "exception.stacktrace": "there"
    }  # fmt: skip


def test_what_never_began_has_no_span(traced):
    traced.settle(lease(), HandedBack(unused=True), times=None)
    traced.settle(lease(), HandedBack(), times=None)
    traced.settle(lease(begun=False), Lost(), times=None)
    assert traced.written == ()


def test_a_child_is_told_the_span_that_is_written_later_whoever_writes_it(traced):
    told = traced.spans.trace_of(lease())
    Traced().settle(lease(), Done())
    reaper = Traced()
    reaper.settle(lease(fence=2, reaped=True), Lost(), times=None)
    traced.settle(lease(), Done())
    for span in (traced.written[-1], reaper.written[-1]):
        assert submit_spans.to_traceparent(span.context) == told
    assert reaper.written[-1].attributes["daybreak.reaped_by"] == "w"


def test_each_attempt_has_its_own_id(traced):
    told = {traced.spans.trace_of(lease(attempt=n, fence=n)) for n in range(1, 50)}
    assert len(told) == 49


@pytest.mark.parametrize("trace", [None, "nonsense", f"00-{'0' * 32}-{'0' * 16}-01", "00-xyz"])
def test_a_job_without_a_trace_begins_one_with_its_wait(trace, traced):
    traced.settle(lease(trace=trace), Failed(Failure(message="no")))
    traced.settle(lease(trace=trace, attempt=2, fence=2), Done())
    wait, first, second = traced.written
    assert wait.parent is None
    assert {first.parent.span_id, second.parent.span_id} == {wait.context.span_id}
    assert len({span.context.trace_id for span in traced.written}) == 1


@pytest.mark.parametrize(
    ("sampler", "trace", "count"),
    [
        (None, TRACE[:-2] + "00", 0),
        (ALWAYS_OFF, TRACE, 0),
        (ALWAYS_OFF, None, 0),
        (ALWAYS_ON, TRACE[:-2] + "00", 2),
    ],
)
def test_the_sampler_decides(sampler, trace, count):
    traced = Traced(sampler)
    traced.settle(lease(trace=trace), Done())
    assert len(traced.written) == count
    assert traced.spans.trace_of(lease(trace=trace)).endswith("01" if count else "00")


def test_a_trace_is_no_part_of_the_content_of_a_key():
    spec = lease().spec
    assert digest(spec) == digest(replace(spec, trace=None))


def test_traced_jobs_take_the_fast_paths():
    pytest.importorskip("psycopg")
    pytest.importorskip("hiredis")
    from daybreak.stores.postgres import plain_path
    from daybreak.stores.redis.specs import kind_of

    spec = lease().spec
    assert plain_path.are_plain([spec])
    assert kind_of(spec) == kind_of(replace(spec, trace=None))


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
    ],
)
def test_the_environment_decides_whether_the_sdk_is_set_up(env, wanted, monkeypatch):
    for name in ("SDK_DISABLED", "TRACES_EXPORTER", "EXPORTER_OTLP_ENDPOINT", "EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert sdk.is_wanted("traces") is wanted


def test_without_the_sdk_jobs_run_untraced_and_the_log_says_what_to_install(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    sdk.set_up_traces()
    sdk.set_up_metrics()
    assert caplog.text.count("pip install 'daybreak[otel]'") == 2
    assert not submit_spans.is_on()
