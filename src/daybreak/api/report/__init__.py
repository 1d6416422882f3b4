"""The morning report: what happened in a time or in a run, the failures by their cause, and what to do.

`clusters.py` groups failed jobs, `collect.py` gathers the figures."""

from daybreak.api.report.clusters import FailureCluster, read_clusters
from daybreak.api.report.collect import Report, collect_report

__all__ = ["FailureCluster", "Report", "collect_report", "read_clusters"]
