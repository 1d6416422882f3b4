"""One scrape as text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from daybreak.api.metrics.families import Families
from daybreak.api.metrics.figures import Figures, read_figures
from daybreak.api.metrics.other_names import NAMES
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.units import span
from daybreak.system.ports import World

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
FRESH_FOR: Final = timedelta(seconds=1)  # several scrapers share what was read


class Exposition:
    """The metrics of one server. Scrapes that come within a second share what was read from the store."""

    def __init__(self, other_names: Sequence[str], world: World) -> None:
        for name in other_names:
            if name not in NAMES:
                raise BadInput(f"no set of metric names is called {name!r}; the sets are {', '.join(NAMES)}")
        self._other_names = tuple(dict.fromkeys(other_names))
        self._world = world
        self._text = b""
        self._read_at: int | None = None
        self._reading = asyncio.Lock()

    async def text(self, client: Client) -> bytes:
        async with self._reading:
            now = self._world.steady()
            if self._read_at is None or now - self._read_at >= span(FRESH_FOR):
                self._text = expose(await read_figures(client), self._other_names)
                self._read_at = now
            return self._text


def expose(figures: Figures, other_names: Sequence[str] = ()) -> bytes:
    """The text format of Prometheus. A name that two systems share is written once."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(figures, other_names))
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, figures: Figures, other_names: Sequence[str]) -> None:
        self._figures = figures
        self._other_names = other_names

    def collect(self) -> Iterator[Metric]:
        seen: set[str] = set()
        for metric in self._all():
            if metric.name not in seen:
                seen.add(metric.name)
                yield metric

    def _all(self) -> Iterator[Metric]:
        yield from Families(self._figures).all()
        for name in self._other_names:
            yield from NAMES[name](self._figures)
