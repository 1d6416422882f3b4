"""Metrics: read from the store each time, so they agree over all processes and never drift.

| module | what it holds |
|---|---|
| `figures` | what one reading of the store returns |
| `families` | our own metrics |
| `other_names` | the same figures under the names of the systems that Daybreak replaces |
| `labels` | how many values a label may have |
| `instruments` | the same metrics for OpenTelemetry |

`/metrics` of the server writes them for Prometheus. They are built with the classes of prometheus-client."""
