"""The span of a submit, and the trace context that jobs carry from the process that submits them to the child that runs
them: the W3C `traceparent`, in `JobSpec.trace`.

This module uses the API of OpenTelemetry alone, so it works with every tracer provider."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from daybreak.core.model import JobSpec

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, Tracer

SCOPE: Final = "daybreak"
TRACEPARENT: Final = "traceparent"
_tracers: dict[int, tuple[object, Tracer]] = {}  # the tracer of the provider that is set, by the provider's id


def is_on() -> bool:
    """Whether someone has set a tracer provider in this process."""
    api = sys.modules.get("opentelemetry.trace")
    # Nobody can have set a provider if nobody has imported the API.
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def tracer() -> Tracer:
    from opentelemetry import trace  # noqa: PLC0415 - only if someone traces

    provider = trace.get_tracer_provider()
    known = _tracers.get(id(provider))
    if known is None or known[0] is not provider:
        _tracers.clear()
        known = _tracers[id(provider)] = (provider, provider.get_tracer(SCOPE))
    return known[1]


class SubmitSpan:
    """The span of one submit. Entering it returns the jobs, which carry its context from then on.

    Jobs that carry a context already are being submitted once more: they get no second span. Jobs with a holder, such
    as locks, get none."""

    def __init__(self, specs: Sequence[JobSpec]) -> None:
        self._specs = list(specs)
        self._span: contextlib.AbstractContextManager[Any] | None = None

    def __enter__(self) -> list[JobSpec]:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        specs = self._specs
        if any(spec.trace is not None or spec.holder is not None for spec in specs) or not specs:
            return specs
        first, count = specs[0], len(specs)
        attributes: dict[str, str | int] = {"daybreak.task": first.task, "daybreak.queue": first.queue}
        if count == 1:
            attributes["daybreak.job"] = first.id
        else:
            attributes["daybreak.jobs"] = count
        self._span = tracer().start_as_current_span(
            f"submit {first.task}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        context = self._span.__enter__().get_span_context()
        if not context.is_valid:
            return specs
        trace = to_traceparent(context)
        return [replace(spec, trace=trace) for spec in specs]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, traceback)


def to_traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


@functools.lru_cache(maxsize=1024)  # jobs that were submitted together share it
def from_traceparent(text: str) -> SpanContext | None:
    """The span of another process; None if the text is not a traceparent."""
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    parts = text.split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    try:
        context = SpanContext(int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16) & 1))
    except ValueError:
        return None
    return context if context.is_valid else None


def enter_context(traceparent: str) -> object | None:
    """Make the span with this traceparent the current one of this thread or asyncio task. Returns what `leave_context`
    needs; None if OpenTelemetry is not installed."""
    if not _is_installed():
        return None
    from opentelemetry import context  # noqa: PLC0415

    parent = _context_of(traceparent)
    return None if parent is None else context.attach(parent)


@functools.cache
def _is_installed() -> bool:
    try:
        import opentelemetry.context  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def leave_context(token: object | None) -> None:
    if token is not None:
        from opentelemetry import context  # noqa: PLC0415

        context.detach(token)  # type: ignore[arg-type] # it came from `attach`


def _context_of(traceparent: str) -> Context | None:
    from opentelemetry import trace  # noqa: PLC0415

    found = from_traceparent(traceparent)
    return None if found is None else trace.set_span_in_context(trace.NonRecordingSpan(found))


@contextlib.contextmanager
def continued(headers: Mapping[str, str]) -> Iterator[None]:
    """Submits in this block continue the trace that a request names in its header `traceparent`, unless the server has
    a span of its own for the request."""
    traceparent = headers.get(TRACEPARENT)
    if traceparent is None or not is_on():
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = enter_context(traceparent)
    try:
        yield
    finally:
        leave_context(token)
