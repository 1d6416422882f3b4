"""`QueueMetrics`: the five instruments of the document for the queue of executions alone, computed from the store at
each reading. Nothing is counted up and down, so nothing drifts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from daybreak import Daybreak
from daybreak.api.metrics.figures import Figures, read_figures
from daybreak.api.metrics.other_names import integr8scode
from execution_queue.service import EXECUTIONS

SCHEDULED: Final = "queue_schedule"


class QueueMetrics:
    """`queue.depth`, `queue.active`, `queue.enqueue.total`, `queue.schedule.total` and `queue.wait_time`, as a
    Prometheus exporter of OpenTelemetry spells them; and `queue.event_data_lost` of the code, which is always 0: a
    payload lives as long as its execution."""

    def __init__(self, app: Daybreak) -> None:
        self._app = app

    async def collect(self) -> Iterator[Metric]:
        figures = of_queue(await read_figures(await self._app.client()), EXECUTIONS)
        others = [metric for metric in integr8scode(figures) if metric.name != SCHEDULED]
        # Each scheduled execution is detached once. The attempts that ended would leave out those that were cancelled.
        scheduled = sum(total.n for total in figures.totals if total.what == "detached")
        return iter([
            *others,
            CounterMetricFamily(SCHEDULED, "Total executions scheduled from queue", value=scheduled),
            CounterMetricFamily("queue_event_data_lost", "Executions whose payload was lost", value=0),
        ])  # fmt: skip

    async def text(self) -> bytes:
        """All of them as Prometheus reads them."""
        from prometheus_client import CollectorRegistry  # noqa: PLC0415
        from prometheus_client.exposition import generate_latest  # noqa: PLC0415

        found = list(await self.collect())

        class Once:
            @staticmethod
            def collect() -> list[Metric]:
                return found

        registry = CollectorRegistry()
        registry.register(Once())  # type: ignore[arg-type]
        return bytes(generate_latest(registry))


def of_queue(figures: Figures, queue: str) -> Figures:
    """What figures say of one queue."""
    return replace(
        figures,
        tallies=[one for one in figures.tallies if one.queue == queue],
        totals=[one for one in figures.totals if one.queue == queue],
        sketches={key: sketch for key, sketch in figures.sketches.items() if key[0] == queue},
    )
