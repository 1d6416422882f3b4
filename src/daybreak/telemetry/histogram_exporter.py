"""A metric exporter that adds histograms to what the SDK has collected: OpenTelemetry has no observable histograms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricExportResult, MetricsData


class HistogramExporter(MetricExporter):
    """`histograms` is called at each export."""

    def __init__(self, exporter: MetricExporter, histograms: Callable[[], list[Metric]]) -> None:
        super().__init__(
            preferred_temporality=exporter._preferred_temporality,  # noqa: SLF001 - as the SDK's own reader does
            preferred_aggregation=exporter._preferred_aggregation,  # noqa: SLF001
        )
        self._exporter = exporter
        self._histograms = histograms

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        return self._exporter.export(self._with_histograms(metrics_data), timeout_millis, **options)

    def _with_histograms(self, data: MetricsData) -> MetricsData:
        added = [histogram for histogram in self._histograms() if histogram.data.data_points]
        for number, resource in enumerate(data.resource_metrics):
            for at, scope in enumerate(resource.scope_metrics):
                if added and scope.scope.name == "daybreak":
                    scopes = list(resource.scope_metrics)
                    scopes[at] = replace(scope, metrics=[*scope.metrics, *added])
                    resources = list(data.resource_metrics)
                    resources[number] = replace(resource, scope_metrics=scopes)
                    return MetricsData(resource_metrics=resources)
        return data

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        self._exporter.shutdown(timeout_millis, **options)
