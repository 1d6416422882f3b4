"""Alerts: what a person should know before users complain.

| module | what it holds |
|---|---|
| `settings` | the thresholds and where notices go, from `[alerts]` in daybreak.toml |
| `figures` | what is measured: depths, waits and rates per queue, workers, locks |
| `watch` | one process at a time looks, decides by `policy.alerts`, and delivers notices |
| `sinks` | the log, a command, a signed webhook |

`daybreak serve` and every worker run a watch; the one that holds its record looks."""

from daybreak.api.alerts.watch import AlertWatch, read_alerts

__all__ = ["AlertWatch", "read_alerts"]
