"""The cache under the names of PyPLECS. The results are those of the store: of all processes, with an age and a size.

What decides a result: the content of the model, the parameters without `exclude_fields`, the simulated time, what is
asked, and the version of PLECS. Labels of a request do not, and every task keeps its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from daybreak import Cache, Daybreak
from daybreak.store.protocol import CacheQuery
from daybreak.tasks.cache_key import key_of_values
from orchestration.tasks import SimulationRequest, SimulationResult

ITEM: Final = "item"  # the task of what queues hold
EXCLUDED: Final = ("timestamp", "run_id")
GIVEN: Final = "simulations-given"  # the queue of results that were computed elsewhere
Model = SimulationRequest | str | Path


@dataclass
class SimulationCache:
    """Known results of simulations. A result is used for `ttl`, and at most `size` bytes are kept. `engine` tells
    the version of the simulator; while it is unknown, nothing is cached."""

    app: Daybreak
    ttl: str | None = None
    size: str | None = None
    exclude_fields: Sequence[str] = EXCLUDED
    engine: Callable[[], str | None] | None = None

    @property
    def settings(self) -> Cache:
        return Cache(ttl=self.ttl, size=self.size)

    def flight(self, request: SimulationRequest, model: Path) -> dict[str, Any] | None:
        """What decides the result of a request for this model; None if that is not known. Asks PLECS for its version,
        at most every 10 minutes."""
        engine = None if self.engine is None else self.engine()
        if engine is None:
            return None
        parameters = {name: value for name, value in request.parameters.items() if name not in self.exclude_fields}
        return {
            "model": hashlib.sha256(model.read_bytes()).hexdigest(),
            "parameters": parameters,
            "simulation_time": request.simulation_time,
            "output_variables": list(request.output_variables),
            "engine": engine,
        }

    # These take a request, or the path of a model and the parameters. The model counts with the content it has now.

    def compute_hash(self, model_file: Model, parameters: Mapping[str, Any] | None = None) -> str:
        """The key of a result; empty while the version of PLECS is unknown."""
        request = _request(model_file, parameters)
        flight = self.flight(request, Path(request.model_file))
        return "" if flight is None else key_of_values(ITEM, flight).flight

    def get_cached_result(
        self, model_file: Model, parameters: Mapping[str, Any] | None = None
    ) -> SimulationResult | None:
        """The result, if it is known and may be used."""
        return self.app.portal.run(self._get(self.compute_hash(model_file, parameters)))

    async def _get(self, key: str) -> SimulationResult | None:
        client = await self.app.client()
        page = await client.store.cached(CacheQuery(flights=(key,), limit=1))
        if not key or not page.entries:
            return None
        job = await self.app.job(page.entries[0].job).ainfo()
        return SimulationResult(job.id, success=True, **{**job.result, "cached": True})

    def cache_result(
        self,
        model_file: Model,
        parameters: Mapping[str, Any] | None,
        timeseries_data: Any,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Keep a result that was computed elsewhere, in place of the one that is known. Answers its key; it is empty,
        and nothing is kept, while the version of PLECS is unknown."""
        request = _request(model_file, parameters)
        flight = self.flight(request, Path(request.model_file))
        if flight is None:
            return ""
        key = key_of_values(ITEM, flight).flight
        self.app.cache.invalidate(flight=key)
        result = SimulationResult("", True, timeseries_data, dict(metadata or {}))
        queue = self.app.queue(GIVEN)
        item = queue.add({"model_file": request.model_file}, flight=flight, cache=self.settings)
        for lease in queue.take(id=item.id):
            lease.complete(result.stored())
        return key

    def invalidate_cache(self, model_file: Model, parameters: Mapping[str, Any] | None = None) -> bool:
        """Drop one result. Tasks that have it keep it."""
        key = self.compute_hash(model_file, parameters)
        return bool(key and self.app.cache.invalidate(flight=key))

    def clear_cache(self) -> int:
        """Drop all results of simulations; how many."""
        return self.app.cache.invalidate(task=ITEM)

    def get_cache_stats(self) -> dict[str, Any]:
        """Numbers of the store, over all processes since it was made."""
        return self.app.portal.run(self.stats())

    async def stats(self) -> dict[str, Any]:
        found = next((one for one in (await self.app.cache.astats()).tasks if one.task == ITEM), None)
        if found is None:
            return {"total_entries": 0, "total_size": 0, "hits": 0, "misses": 0, "hit_rate": 0.0, "time_saved": 0.0}
        return {
            "total_entries": found.entries,
            "total_size": found.bytes,
            "hits": found.hits,
            "misses": found.computed,
            "hit_rate": found.hit_rate,
            "time_saved": found.saved.total_seconds(),
        }


def _request(model_file: Model, parameters: Mapping[str, Any] | None) -> SimulationRequest:
    if isinstance(model_file, SimulationRequest):
        return model_file
    return SimulationRequest(str(model_file), dict(parameters or {}))
