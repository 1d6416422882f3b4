"""Sets up the OpenTelemetry SDK by the environment, in processes that are Daybreak's own: workers, their children, and
servers. A provider that the user's code has set stays.

    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL    where and how spans and metrics are sent
    OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER                 otlp, console, none, or another that is installed

The SDK itself reads the rest: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_... and so
on."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final, Literal

_log = logging.getLogger("daybreak")

FLUSH_WITHIN: Final = 2.0  # seconds; a child that exits is killed after three
QUEUE_SIZE: Final = 32_768  # spans; the SDK's own 2,048 are a fraction of a second of short jobs
EXPORT_EVERY: Final = 1000  # milliseconds: a child that is killed loses the spans of the last second at most

histogram_sources: list[Callable[[], list[Any]]] = []  # called at each export, in the thread of the SDK
_meter_providers: list[Any] = []  # set by this module

Signal = Literal["traces", "metrics"]


def is_wanted(signal: Signal) -> bool:
    """Whether the environment asks for these."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    )


def set_up_traces() -> None:
    """Set a tracer provider, if the environment asks for one and nobody has set one. An error is logged: jobs run
    without traces."""
    if not is_wanted("traces"):
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return
        # The SDK's own exit handler may wait for an exporter for half a minute.
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        for exporter in _exporters("traces"):
            provider.add_span_processor(BatchSpanProcessor(exporter, **_batching()))
        trace.set_tracer_provider(provider)
        atexit.register(flush, provider)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, jobs must run
        _log_unavailable("traces", error)


def set_up_metrics() -> None:
    """Set a meter provider, if the environment asks for one and nobody has set one."""
    if not is_wanted("metrics"):
        return
    try:
        from opentelemetry import metrics  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        if isinstance(metrics.get_meter_provider(), MeterProvider):
            return
        from daybreak.telemetry.histogram_exporter import HistogramExporter  # noqa: PLC0415

        exporters = [HistogramExporter(exporter, _read_histograms) for exporter in _exporters("metrics")]
        readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
        provider = MeterProvider(readers, resource=_resource(), shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
        _meter_providers.append(provider)
    except Exception as error:  # noqa: BLE001
        _log_unavailable("metrics", error)


def _read_histograms() -> list[Any]:
    return [histogram for source in histogram_sources for histogram in source()]


def flush_metrics() -> None:
    """Export the metrics once more, if this module set the provider."""
    for provider in _meter_providers:
        flush(provider)


def flush(provider: Any) -> None:
    """Send what is not sent yet, for at most a few seconds. Blocks; never raises."""
    # In a thread of its own: an exporter may take longer than it was told.
    thread = threading.Thread(target=_flush, args=(provider,), name="daybreak-flush", daemon=True)
    thread.start()
    thread.join(FLUSH_WITHIN)


def _flush(provider: Any) -> None:
    try:
        provider.force_flush(int(FLUSH_WITHIN * 1000))
    except Exception as error:  # noqa: BLE001 - an exporter may raise anything
        _log.warning("could not export the last spans or metrics: %s", error)


def _batching() -> dict[str, Any]:
    """What the environment does not say."""
    said: dict[str, Any] = {}
    if "OTEL_BSP_MAX_QUEUE_SIZE" not in os.environ:
        said["max_queue_size"] = QUEUE_SIZE
    if "OTEL_BSP_SCHEDULE_DELAY" not in os.environ:
        said["schedule_delay_millis"] = EXPORT_EVERY
    return said


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "daybreak"})


def _exporters(signal: Signal) -> list[Any]:
    said = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() or "otlp"
    names = [name.strip() for name in said.split(",") if name.strip() not in ("", "none")]
    return [_exporter(signal, name) for name in names]


def _exporter(signal: Signal, name: str) -> Any:
    if name == "otlp":
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or os.environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
        )
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
    if not found:
        raise LookupError(f"no exporter {name!r} for {signal} is installed")
    return found[0].load()()


def _log_unavailable(signal: Signal, error: Exception) -> None:
    hint = ""
    if isinstance(error, ImportError):
        hint = "; install it with: pip install 'daybreak[otel]'"
    _log.warning("OpenTelemetry %s are off, although the environment asks for them: %s%s", signal, error, hint)
