"""Alerts: what a person should know before users complain.

| module | what it holds |
|---|---|
| `settings` | the thresholds and where notices go, from `[alerts]` in daybreak.toml |
| `figures` | the measured values: depths, waits and rates per queue, workers, locks |
| `watch` | one process at a time checks the values, decides by `policy.alerts`, and delivers notices |
| `sinks` | the log, a command, a signed webhook |

`daybreak serve` and every worker run a watch; only the one that holds the record is active."""

from daybreak.api.alerts.watch import AlertWatch, read_alerts

__all__ = ["AlertWatch", "read_alerts"]
