"""What a person or a monitoring system is told about jobs.

| module | what it holds |
|---|---|
| `job_log` | log lines |
| `submit_spans` | OpenTelemetry: the span of a submit, and the trace context that jobs carry |
| `attempt_spans` | OpenTelemetry: the spans of the wait and of every attempt of a job |
| `histogram_exporter` | OpenTelemetry: adds histograms that were read from the store |
| `sdk` | OpenTelemetry: sets up the SDK by the environment, in processes that are Daybreak's own |

OpenTelemetry is imported only if someone uses it: without the extra `otel`, or without a tracer provider, all of it
costs one check."""

from daybreak.telemetry.job_log import (
    changed_code,
    describe_code_change,
    detached,
    duplicates_of_other_code,
    lost,
    settled,
    shed,
)

__all__ = ["changed_code", "describe_code_change", "detached", "duplicates_of_other_code", "lost", "settled", "shed"]
