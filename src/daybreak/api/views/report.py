"""The morning report and its failure clusters as JSON data."""

from __future__ import annotations

from typing import Any

from daybreak.api.report import FailureCluster, Report
from daybreak.api.views.scalars import instant


def report_view(report: Report) -> dict[str, Any]:
    """All figures of a report."""
    return {
        "since": instant(report.since),
        "until": instant(report.until),
        "run": report.run,
        "counts": report.counts,
        "unfinished": report.unfinished,
        "failures": [cluster_view(cluster) for cluster in report.failures.clusters],
        "failures_complete": report.failures.is_all,
        "saved_by_retries": report.saved,
        "cached": report.cached,
        "cache_saved": None if report.cache_saved is None else report.cache_saved.total_seconds(),
        "lost_attempts": report.lost,
        "slowest": [
            {"id": job.id, "task": job.task, "ran_for": job.ran_for.total_seconds(), "attempt": job.attempt}
            for job in report.slowest
        ],
        "workers_gone": [
            {"name": worker.name, "host": worker.host, "seen_at": instant(worker.seen_at)} for worker in report.gone
        ],
        "points": [
            {
                "at": instant(point.at), "completed": point.completed, "failed": point.failed,
                "running": point.running, "waiting": point.waiting,
            }
            for point in report.points
        ],
    }  # fmt: skip


def cluster_view(cluster: FailureCluster) -> dict[str, Any]:
    """One cluster of failed jobs, with one example."""
    return {
        "cluster": cluster.fingerprint,
        "jobs": cluster.n,
        "kind": cluster.kind,
        "message": cluster.message,
        "error": cluster.error,
        "traceback": cluster.traceback,
        "example": cluster.example,
        "first_at": instant(cluster.first_at),
        "last_at": instant(cluster.last_at),
        "tasks": cluster.tasks,
        "reasons": cluster.reasons,
    }
