"""The metrics for OpenTelemetry: observable instruments that read the store when the SDK collects.

Their names are those for Prometheus, with dots and without the endings `_total` and `_seconds`. OpenTelemetry has no
observable histograms: the waits and run times are added to what the SDK exports, if the environment set it up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from daybreak.api.metrics.figures import Figures, read_figures
from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.core.units import moment
from daybreak.policy.alerts import AlertState
from daybreak.telemetry import sdk

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger("daybreak")

SCOPE: Final = "daybreak"
FRESH_FOR: Final = 1.0  # seconds: all instruments of one collection share one reading
READ_WITHIN: Final = 5.0  # seconds
OTHER_SPELLINGS: Final = {
    "queue_enqueue": "queue.enqueue.total",
    "queue_schedule": "queue.schedule.total",
    "queue_wait_time": "queue.wait_time",
}


class StoreMetrics:
    """Exports the metrics of one store as long as `run` runs. `worker` is the id of the worker in this process, if
    there is one: of several workers, only the one that started first exports."""

    def __init__(self, client: Client, *, worker: str | None = None) -> None:
        self._client = client
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._latest: Mapping[str, Metric] = {}
        self._had_error = False

    async def run(self) -> None:
        """Never raises because of metrics: jobs matter more."""
        if not is_on():
            return
        self._loop = asyncio.get_running_loop()
        try:
            self._register()
        except Exception as error:  # noqa: BLE001 - an SDK of another version
            _log.warning("metrics are not exported by OpenTelemetry: %r", error)
            return
        sdk.histogram_sources.append(self.histograms)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(asyncio.to_thread(sdk.flush_metrics))
            with contextlib.suppress(ValueError):
                sdk.histogram_sources.remove(self.histograms)
            self._loop = None

    def _register(self) -> None:
        from opentelemetry import metrics  # noqa: PLC0415

        meter = metrics.get_meter(SCOPE)
        for metric in all_metrics(_nothing(self._client)):
            name, unit = spelling(metric.name)
            if metric.type == "counter":
                create: Any = meter.create_observable_counter
            elif metric.type == "gauge":
                create = meter.create_observable_gauge
            else:
                continue
            create(name, callbacks=[self._observer(metric.name)], unit=unit, description=metric.documentation)

    def _observer(self, name: str) -> Callable[[object], list[Any]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415

        def observe(_: object) -> list[Any]:
            metric = self._read().get(name)
            if metric is None:
                return []
            return [Observation(sample.value, dict(sample.labels)) for sample in metric.samples]

        return observe

    # -- in the thread of the SDK --------------------------------------------------------------------------------------

    def _read(self) -> Mapping[str, Metric]:
        """The metrics by name, at most a second old; empty if another process exports them, or the store is away."""
        loop = self._loop
        if loop is None or _is_running_here(loop):
            return {}
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_FOR:
                self._latest = self._read_now(loop)
                self._read_at = time.monotonic()
            return self._latest

    def _read_now(self, loop: asyncio.AbstractEventLoop) -> Mapping[str, Metric]:
        future = asyncio.run_coroutine_threadsafe(read_figures(self._client), loop)
        try:
            figures = future.result(READ_WITHIN)
        except Exception as error:  # noqa: BLE001 - the SDK must be able to go on
            future.cancel()
            if not self._had_error:
                reason = error if isinstance(error, StoreError) else repr(error)
                _log.warning("could not read the metrics of the store: %s", reason)
            self._had_error = True
            return {}
        self._had_error = False
        if self._worker is not None and exporter_of(figures) != self._worker:
            return {}
        return {metric.name: metric for metric in all_metrics(figures)}

    def histograms(self) -> list[Any]:
        """The histograms, as data of the SDK."""
        return [_histogram(metric) for metric in self._read().values() if metric.type == "histogram"]


def is_on() -> bool:
    """Whether someone has set a meter provider in this process."""
    api = sys.modules.get("opentelemetry.metrics")
    if api is None:
        return False
    return type(api.get_meter_provider()).__name__ not in ("_ProxyMeterProvider", "NoOpMeterProvider")


def all_metrics(figures: Figures) -> Iterator[Metric]:
    from daybreak.api.metrics.families import Families  # noqa: PLC0415 - needs prometheus-client
    from daybreak.api.metrics.other_names import integr8scode  # noqa: PLC0415

    yield from Families(figures).all()
    yield from integr8scode(figures)


def spelling(name: str) -> tuple[str, str]:
    """The name and the unit of an instrument, from its name for Prometheus."""
    if name in OTHER_SPELLINGS:
        return OTHER_SPELLINGS[name], "s" if "time" in name else "1"
    if name.endswith("_seconds"):
        return name.removesuffix("_seconds").replace("_", "."), "s"
    return name.replace("_", "."), "1"


def exporter_of(figures: Figures) -> str | None:
    """Of the live workers that could export, the one that started first."""
    workers = [worker for worker in figures.workers if worker.exports_metrics and worker.is_live(figures.now)]
    first = min(workers, key=lambda worker: (worker.started_at or figures.now, worker.id), default=None)
    return None if first is None else first.id


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _histogram(metric: Metric) -> Any:
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
    )
    from opentelemetry.sdk.metrics.export import Metric as Exported  # noqa: PLC0415

    found: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, float]], list[float]]] = {}
    for sample in metric.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", None)
        buckets, sums = found.setdefault(tuple(sorted(labels.items())), ([], []))
        if bound is not None:
            buckets.append((float(bound), sample.value))
        elif sample.name.endswith("_sum"):
            sums.append(sample.value)
    name, unit = spelling(metric.name)
    now = time.time_ns()
    points = []
    for labels_of, (buckets, sums) in found.items():
        buckets.sort()
        up_to = [int(count) for _, count in buckets]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels_of),
                start_time_unix_nano=0,
                time_unix_nano=now,
                count=up_to[-1],
                sum=sums[0],
                bucket_counts=[more - less for more, less in zip(up_to, [0, *up_to], strict=False)],
                explicit_bounds=[bound for bound, _ in buckets[:-1]],
                min=0.0,
                max=0.0,
            )
        )
    return Exported(name, metric.documentation, unit, Histogram(points, AggregationTemporality.CUMULATIVE))


def _nothing(client: Client) -> Figures:
    """The figures of an empty store: they say which metrics there are."""
    return Figures(
        now=moment(client.wall()), tallies=[], totals=[], oldest={}, resources=[], locks=[], workers=[],
        alerts=AlertState(), sketches={},
    )  # fmt: skip
