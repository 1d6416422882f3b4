"""The spans of what happens to a job after its submit: its wait, and every attempt.

The supervisor writes them when an attempt is settled, so an attempt has its span even if its child was killed; if the
whole worker was killed, the worker that takes over its jobs writes it. The id of a span follows from the job and the
fence of the lease, so that the child can be told the id before the span exists, and spans that the task itself made
have the right parent whoever writes it.

This needs the SDK: a span with a given id, start and end is made of its `ReadableSpan`."""

from __future__ import annotations

import hashlib
import logging
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from daybreak.core.model import Failure, Lease, Settlement, State
from daybreak.core.units import micros
from daybreak.policy.outcome_label import waiting_since
from daybreak.telemetry import submit_spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import SpanContext

_log = logging.getLogger("daybreak.worker")

TRACEPARENT_LENGTH: Final = 55
MAX_TIMES: Final = 20_000  # attempts that have ended and are not settled yet


class AttemptSpans:
    """Writes the spans of the jobs that a worker runs."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased  # noqa: PLC0415
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

        self._resource, self._processor, self._sampler = tracer.resource, tracer.span_processor, tracer.sampler
        self._scope = tracer._instrumentation_scope  # noqa: SLF001 - the SDK has no public name for it
        self._follows_parent = type(self._sampler) is ParentBased
        self._make_span, self._make_context = ReadableSpan, SpanContext
        self._sampled, self._unsampled = TraceFlags(1), TraceFlags(0)
        self._kind, self._inner = SpanKind.CONSUMER, SpanKind.INTERNAL
        self._no_status = Status()
        self._make_status, self._error = Status, StatusCode.ERROR
        self._times: dict[tuple[int, int], tuple[float, float]] = {}

    @classmethod
    def of_this_process(cls) -> AttemptSpans | None:
        """None if this process has no tracer provider."""
        if not submit_spans.is_on():
            return None
        try:
            return cls(submit_spans.tracer())  # type: ignore[arg-type] # checked by what follows
        except (ImportError, AttributeError) as error:
            _log.warning(
                "attempts are not traced: the tracer provider is not that of the OpenTelemetry SDK (%s)", error
            )
            return None

    def trace_of(self, lease: Lease) -> str:
        """The `traceparent` for the child: that of the attempt's span, or of the submit if the trace is not sampled."""
        if self._is_unsampled(lease.spec.trace):
            return lease.spec.trace  # type: ignore[return-value] # there is one
        parent = self._parent_of(lease)
        return submit_spans.to_traceparent(
            self._make_context(
                parent.trace_id, _span_id(lease, _run_of(lease)), is_remote=False, trace_flags=parent.trace_flags
            )
        )

    def ran(self, lease: Lease, started_at: float, ended_at: float) -> None:
        """Note when an attempt really started and ended, in seconds of the wall clock of this machine."""
        if len(self._times) >= MAX_TIMES:  # attempts whose lease was lost are never settled
            self._times.clear()
        self._times[lease.seq, lease.fence] = (started_at, ended_at)

    def settled(self, lease: Lease, settlement: Settlement) -> None:
        """Write the span of an attempt, and with the first attempt that of the wait. An attempt that never began has
        none."""
        times = self._times.pop((lease.seq, lease.fence), None)
        if self._is_unsampled(lease.spec.trace):
            return
        outcome = outcome_of(lease, settlement)
        if not lease.begun or (outcome == "handed back" and times is None):
            return
        parent = self._parent_of(lease)
        if not parent.trace_flags:
            return
        if settlement.attempt == lease.attempt == 1:
            self._write_wait(lease, parent)
        started_at, ended_at = times or (lease.started_at.timestamp(), time.time())
        failure = settlement.failure
        attributes = self._attributes(lease)
        attributes["daybreak.attempt"] = lease.attempt
        attributes["daybreak.outcome"] = outcome
        attributes["daybreak.state"] = settlement.state.value
        attributes["daybreak.reaped_by" if lease.reaped else "daybreak.worker"] = lease.worker
        if settlement.reason is not None:
            attributes["daybreak.reason"] = settlement.reason.value
        end = int(ended_at * 1e9)
        self._write(
            f"run {lease.spec.task}",
            _run_of(lease),
            lease,
            parent,
            kind=self._kind,
            attributes=attributes,
            start_time=int(started_at * 1e9),
            end_time=end,
            status=self._no_status if failure is None else self._make_status(self._error, str(failure)),
            events=() if failure is None else (_exception(failure, end),),
        )

    def detached(self, lease: Lease) -> None:
        """Forget an attempt that goes on elsewhere: whoever runs it traces it."""
        self._times.pop((lease.seq, lease.fence), None)

    def _write_wait(self, lease: Lease, parent: SpanContext) -> None:
        since = min(waiting_since(lease), lease.started_at)
        self._write(
            f"wait {lease.spec.task}",
            "wait",
            lease,
            parent,
            kind=self._inner,
            attributes=self._attributes(lease),
            start_time=_nanos(since),
            end_time=_nanos(lease.started_at),
            status=self._no_status,
        )

    def _attributes(self, lease: Lease) -> dict[str, str | int]:
        spec = lease.spec
        return {
            "daybreak.job": spec.id,
            "daybreak.task": spec.task,
            "daybreak.queue": spec.queue,
            "daybreak.priority": lease.priority,
        }

    def _write(self, name: str, run: str, lease: Lease, parent: SpanContext, **fields: Any) -> None:
        span_id = _span_id(lease, run)
        context = self._make_context(parent.trace_id, span_id, is_remote=False, trace_flags=parent.trace_flags)
        self._processor.on_end(
            self._make_span(
                name,
                context,
                parent=None if parent.span_id == span_id else parent,
                resource=self._resource,
                instrumentation_scope=self._scope,
                **fields,
            )
        )

    def _is_unsampled(self, trace: str | None) -> bool:
        """A quick answer for most jobs of a busy system. False if the sampler must be asked."""
        return trace is not None and self._follows_parent and trace.endswith("-00") and len(trace) == TRACEPARENT_LENGTH

    def _parent_of(self, lease: Lease) -> SpanContext:
        """The span of the submit. A job that was submitted without one begins a trace of its own, whose ids follow from
        its id; the wait is its first span."""
        found = None if lease.spec.trace is None else submit_spans.from_traceparent(lease.spec.trace)
        if found is not None and self._follows_parent:
            return found
        trace_id = _digest(lease.spec.id, 16) if found is None else found.trace_id
        parent_id = _span_id(lease, "wait") if found is None else found.span_id
        is_sampled = self._is_sampled(trace_id, found, lease)
        return self._make_context(
            trace_id,
            parent_id,
            is_remote=found is not None,
            trace_flags=self._sampled if is_sampled else self._unsampled,
        )

    def _is_sampled(self, trace_id: int, parent: SpanContext | None, lease: Lease) -> bool:
        from opentelemetry import trace  # noqa: PLC0415

        context = None if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent))
        result = self._sampler.should_sample(context, trace_id, f"run {lease.spec.task}", self._kind)
        return bool(result.decision.is_sampled())  # type: ignore[no-untyped-call]


def outcome_of(lease: Lease, settlement: Settlement) -> str:
    """How an attempt ended, in one or two words."""
    if settlement.lost > lease.lost:
        return "lost"
    if {"late", "hung"} & set(settlement.counts_as.split()):
        return "timed out"
    match settlement.state:
        case State.COMPLETED | State.CANCELLED | State.SUSPENDED:
            return settlement.state.value
        case State.FAILED:
            return "failed"
        case _:
            return "handed back" if settlement.failure is None else "failed"


def _exception(failure: Failure, at: int) -> Any:
    from opentelemetry.sdk.trace import Event  # noqa: PLC0415

    attributes = {
        "exception.type": failure.kinds[0] if failure.kinds else failure.kind,
        "exception.message": failure.message,
    }
    if failure.traceback:
        attributes["exception.stacktrace"] = failure.traceback
    return Event("exception", attributes, at)


def _run_of(lease: Lease) -> str:
    # A reaper takes a lease over under the next fence.
    return str(lease.fence - lease.reaped)


def _span_id(lease: Lease, run: str) -> int:
    return _digest(f"{lease.spec.id}/{run}", 8)


def _digest(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "big") or 1


def _nanos(at: datetime) -> int:
    return micros(at) * 1000
