"""Known results, as flight.lua stores them."""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Final

import msgspec

from daybreak.core.units import clean, moment, period
from daybreak.store.protocol import CacheEntry, CachePage, CacheQuery, Uncache, Uncached
from daybreak.stores.redis import codes, scripts
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.event_codec import read_short
from daybreak.stores.redis.read import parse_cursor
from daybreak.stores.redis.rows import unpack_value
from daybreak.stores.redis.specs import Args

_ENTRY: Final = struct.Struct("<16sB8d")  # leader, flags, version, created, used, until, size, ran, hits, refs
_USED: Final = 4  # the position of `used` among them
_unpack_parts = msgspec.msgpack.Decoder(dict[str, str]).decode


async def cached(client: RedisClient, query: CacheQuery, now: datetime | None) -> CachePage:
    """One page of the known results."""
    used = number = ""
    if query.cursor is not None:
        *seen, number = parse_cursor(query.cursor, 1 if query.results else 2)
        used = "".join(seen)
    flights = [clean(flight) for flight in query.flights]
    args: Args = [int(query.results), clean(query.task or ""), used, number, query.limit, len(flights), *flights]
    _, found, more = await client.run(scripts.CACHED, args, now)
    entries = [_entry(packed, result) for _, packed, result in found]
    if not (more and found):
        return CachePage(entries, None)
    last, packed, _ = found[-1]
    if query.results:
        return CachePage(entries, f"{int(last)}")
    return CachePage(entries, f"{int(_ENTRY.unpack_from(packed)[_USED])}:{int(last)}")


async def uncache(client: RedisClient, request: Uncache, now: datetime | None) -> Uncached:
    """Forget known results, one chunk."""
    flights = [clean(flight) for flight in request.flights]
    args: Args = [clean(request.task or ""), request.limit, len(flights), *flights]
    _, dropped, again = await client.run(scripts.UNCACHE, args, now)
    return Uncached(dropped, bool(again))


def _entry(packed: bytes, result: bytes | None) -> CacheEntry:
    _, _, version, created, used, until, size, ran, hits, _ = _ENTRY.unpack_from(packed)
    flight, at = read_short(packed, _ENTRY.size)
    task, at = read_short(packed, at)
    job, at = read_short(packed, at)
    return CacheEntry(
        flight=flight.decode(), task=task.decode(), version=int(version), job=job.decode(),
        parts=_unpack_parts(packed[at:]), size=int(size), ran=period(int(ran)), hits=int(hits),
        created_at=moment(int(created)), used_at=moment(int(used)),
        until=None if until == codes.NONE else moment(int(until)),
        result=None if result is None else unpack_value(result),
    )  # fmt: skip
