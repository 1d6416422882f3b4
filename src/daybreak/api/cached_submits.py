"""Submits of a task whose results are cached: gives each job the key under which the store looks for a known result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from daybreak.client.cache_seal import read_seal
from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import JobSpec, Need, Options
from daybreak.store.protocol import Uncache
from daybreak.tasks.cache import Cache
from daybreak.tasks.cache_key import CacheKeys, Surroundings

if TYPE_CHECKING:
    from daybreak.api.store_sessions import Sessions
    from daybreak.client.client import Client
    from daybreak.tasks.registry import Definition

CHUNK: Final = 500
OPTIONS_LIMIT: Final = 5000


class CachedSubmits:
    """How the jobs of one task are submitted. With `refreshes`, a known result is dropped first, so that the job
    computes it anew.

    If the store is away and its jobs go into the spool, a job whose key needs the store, or that refreshes, has none:
    it runs, and its result is not kept."""

    def __init__(self, definition: Definition, cache: Cache, *, refreshes: bool = False) -> None:
        self._keys = CacheKeys(definition, cache)
        self._caching = cache.caching
        self._calls = any(callable(part) for part in cache.environment)
        self._refreshes = refreshes
        self._options: dict[tuple[Need, ...], Options] = {}  # the jobs of a task share few instances

    def keyed(self, sessions: Sessions, spec: JobSpec) -> JobSpec:
        """The job with its key. Blocks."""
        around = self._keys.surroundings()
        if around is None:
            return spec
        if self._refreshes or (sessions.seal is None and self._keys.needs_seal(spec.args, around)):
            return sessions.portal.run(sessions.here(self._all_keyed(sessions, [spec], around)))[0]
        return self._with_key(spec, around, sessions.seal)

    async def akeyed(
        self, sessions: Sessions, specs: Sequence[JobSpec], around: Surroundings | None = None
    ) -> list[JobSpec]:
        """The jobs with their keys. The declared environment is read once for all of them, unless it is given."""
        found = around or await self.surroundings()
        return list(specs) if found is None else await sessions.here(self._all_keyed(sessions, specs, found))

    async def surroundings(self) -> Surroundings | None:
        """The declared environment now. Functions that tell it are called in another thread, because they may block."""
        return await asyncio.to_thread(self._keys.surroundings) if self._calls else self._keys.surroundings()

    async def _all_keyed(self, sessions: Sessions, specs: Sequence[JobSpec], around: Surroundings) -> list[JobSpec]:
        needs_seal = sessions.seal is None and any(self._keys.needs_seal(spec.args, around) for spec in specs)
        client = await _client_if_there(sessions) if needs_seal or self._refreshes else None
        if (needs_seal or self._refreshes) and client is None:
            return list(specs)
        if needs_seal and client is not None:
            sessions.seal = await read_seal(client.store)
        found = [self._with_key(spec, around, sessions.seal) for spec in specs]
        if self._refreshes and client is not None:
            await _drop(client, [spec.flight for spec in found if spec.flight is not None])
        return found

    async def keyed_with(self, client: Client, spec: JobSpec) -> JobSpec:
        """The job with its key, for this client."""
        around = await self.surroundings()
        if around is None:
            return spec
        seal = await read_seal(client.store) if self._keys.needs_seal(spec.args, around) else None
        found = self._with_key(spec, around, seal)
        if self._refreshes:
            await _drop(client, [found.flight] if found.flight is not None else [])
        return found

    def _with_key(self, spec: JobSpec, around: Surroundings, seal: bytes | None) -> JobSpec:
        key = self._keys.key(spec.args, around, seal)
        needs = spec.options.resources
        options = self._options.get(needs)
        if options is None:
            if len(self._options) >= OPTIONS_LIMIT:
                self._options.clear()
            options = self._options[needs] = replace(spec.options, cache=self._caching)
        return replace(spec, flight=key.flight, flight_parts=key.parts, options=options)


async def keyed_by(
    client: Client, definition: Definition, cache: Cache, spec: JobSpec, *, refreshes: bool = False
) -> JobSpec:
    """The job with its key, for a caller that has a client and no app."""
    submits = CachedSubmits(definition, cache, refreshes=refreshes)
    return await submits.keyed_with(client, spec)


def without_cache(spec: JobSpec) -> JobSpec:
    """The job without its key: it runs, whatever is known."""
    if spec.flight is None:
        return spec
    return replace(spec, flight=None, flight_parts={}, options=replace(spec.options, cache=None))


async def _client_if_there(sessions: Sessions) -> Client | None:
    """The client, or None if the store is away and jobs go into the spool."""
    if sessions.spool is None:
        return await sessions.client()
    with contextlib.suppress(StoreUnavailable):
        return await sessions.spool.open_client([])
    return None


async def _drop(client: Client, flights: Iterable[str]) -> None:
    """Drop what is known under these keys."""
    wanted = list(dict.fromkeys(flights))
    for start in range(0, len(wanted), CHUNK):
        await client.store.uncache(Uncache(flights=tuple(wanted[start : start + CHUNK]), limit=CHUNK))
