"""RedisStore: the store protocol on a Redis or Valkey server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Self

from daybreak.core.errors import StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.core.units import clean, span
from daybreak.store.protocol import (
    POSITION_EXACT_TO,
    Advanced,
    Amend,
    Amended,
    Beat,
    CachePage,
    CacheQuery,
    ConnectLimit,
    Exchange,
    Exchanged,
    Extended,
    Feed,
    Filter,
    Finding,
    Inserted,
    KnownKey,
    Moved,
    Page,
    Position,
    Purge,
    Purged,
    Query,
    Reap,
    Tally,
    Total,
    Traits,
    Uncache,
    Uncached,
    Usage,
    Watch,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_moved
from daybreak.stores.redis import adopt, examine, faults, flights, gauges, read, replies, requests, scripts
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.blocking_client import BlockingClient
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.hiredis import require_library
from daybreak.stores.redis.plain_submit import PlainSubmit
from daybreak.stores.redis.rows import leases_of
from daybreak.stores.redis.server_clock import ServerClock
from daybreak.stores.redis.wake import Wake
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

NAMESPACE = "daybreak"


class RedisStore:
    """Jobs on a server, for any number of processes on any machines.

    What a crash of the server may lose depends on its settings: see `traits` and `examine`. `timeout` is how long a
    reply may take before the connection is aborted. `connect_within` in the URL (5s) is how long connecting may take;
    `connect_limit` adapts it to the times that were measured."""

    def __init__(
        self,
        url: str = "redis://localhost:6379",
        *,
        world: World | None = None,
        namespace: str | None = None,
        timeout: timedelta = timedelta(seconds=10),
        connect_limit: ConnectLimit | None = None,
    ) -> None:
        require_library()
        address = parse(url)
        self.namespace = namespace or address.namespace or NAMESPACE
        self._world = world or RealWorld()
        clock = ServerClock(self._world)
        self._client = RedisClient(address, examine.checked_namespace(self.namespace), timeout, clock, connect_limit)
        self._plain_submit = PlainSubmit(self._client.clock)
        self._wake = Wake(self._client)
        self._blocking_client: BlockingClient | None = None
        self._durable = "as the server's settings say"

    def __repr__(self) -> str:
        return f"<RedisStore {self._client.address} {self.namespace!r}>"

    @property
    def traits(self) -> Traits:
        return Traits(
            name="redis", durable=self._durable, shared=True, features=frozenset({"resources", "cache", "batches"})
        )

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._blocking_client is None:
            self._client.reopen()
            try:
                self._durable = await self._check_server()
            except BaseException:
                await self._client.close()
                raise
            self._blocking_client = BlockingClient(self._client, self._plain_submit)
        return self

    async def _check_server(self) -> str:
        """Check the server. If the connection is cut, repeat it until the caller's patience ends: it changes
        nothing."""
        pause = 0.05
        with patience.within(patience.left(patience.PATIENCE.total_seconds())):
            while True:
                try:
                    return await examine.check_server(self._client)
                except faults.ConnectionCut:
                    if patience.left() <= pause:
                        raise
                    await asyncio.sleep(pause * (0.5 + self._world.chance.random()))
                    pause = min(2 * pause, 1.0)

    async def close(self) -> None:
        """Close all connections. Closing twice is fine. A forked child closes none: they belong to its parent."""
        caller, self._blocking_client = self._blocking_client, None
        if caller is not None:
            await self._wake.close()
            caller.close()
            await self._client.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _in_use(self) -> RedisClient:
        if self._blocking_client is None:
            raise StoreUnavailable(
                f"{self._client.address} is not open: use 'async with RedisStore(...)', or await open() first"
            )
        return self._client

    # -- the store protocol --------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        client = self._in_use()
        if (plain_args := self._plain_submit.args(specs)) is not None:
            accepted = self._plain_submit.to_inserted(specs, await client.run(scripts.SUBMIT, plain_args, now))
            if accepted is not None:
                return accepted
        reply = await client.run(scripts.EXCHANGE, requests.insert(specs), now)
        return replies.to_inserted(specs, reply[2])

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """Blocking `insert`. Threads that call it at the same time share one round trip."""
        self._in_use()
        assert self._blocking_client is not None
        return self._blocking_client.insert(specs)

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        reply = await self._in_use().run(scripts.EXCHANGE, requests.exchange(exchange), now)
        return replies.to_exchanged(exchange, reply)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        _, held = await self._in_use().run(scripts.EXTEND, requests.beats(beats), now)
        return [replies.EXTENDED[code] for code in held]

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        client, watched, asked_at, even_since = self._in_use(), span(reap.watched_for), requests.FAR_FUTURE, None
        if now is None:
            # Judge leases by the time at which this request was sent: whatever delays the request may have delayed the
            # heartbeats of the holders, too.
            known_at = client.clock.at_the_earliest(reap.asked_at)
            await client.connection()
            asked_at = known_at or client.clock.at_the_earliest(reap.asked_at) or asked_at
            watched, even_since = client.clock.watched_for(watched), client.clock.even_since()
        _, taken = await client.run(scripts.REAP, requests.reap(reap, asked_at, watched, even_since), now)
        return leases_of(reap.worker, None, taken)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        _, due, expired, wait, landing = await self._in_use().run(scripts.ADVANCE, (limit,), now)
        again = limit in (due, expired) or bool(landing)
        return Advanced(due=due, expired=expired, next_in=read.delay(wait), again=again)

    async def amend(self, request: Amend, *, now: datetime | None = None) -> Amended:
        client, request, cursor = self._in_use(), cleaned_amend(request), None
        names: Sequence[str | bytes] = [clean(job) for job in request.jobs]
        if request.filter is not None:
            names, cursor = await read.find_chunk(client, request)
        _, amended = await client.run(scripts.AMEND, requests.amend(request, names), now)
        return Amended(replies.to_amended(request, amended), cursor)

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        return [None if found is None else found.job for found in await read.get(self._in_use(), jobs)]

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        _, found = await self._in_use().run(scripts.KEYS, (len(keys), *(clean(key) for key in keys)), now)
        return [None if entry is None else replies.to_known_key(entry) for entry in found]

    async def find(self, query: Query) -> Page:
        return await read.find(self._in_use(), query)

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        return await read.count(self._in_use(), where)

    async def totals(self, queue: str | None = None) -> list[Total]:
        return await read.totals(self._in_use(), queue)

    async def position(self, job: str) -> Position | None:
        _, ahead = await self._in_use().run(scripts.POSITION, (clean(job),))
        return None if ahead < 0 else Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)

    async def usage(self, name: str | None = None) -> list[Usage]:
        return await gauges.usage(self._in_use(), name)

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        return await read.events(self._in_use(), after, limit)

    async def history(self, job: str) -> list[Event]:
        [found] = await read.get(self._in_use(), [job])
        return [] if found is None else found.history()

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return replies.to_purged(await self._in_use().run(scripts.PURGE, requests.purge(purge), now))

    async def cached(self, query: CacheQuery, *, now: datetime | None = None) -> CachePage:
        return await flights.cached(self._in_use(), query, now)

    async def uncache(self, request: Uncache, *, now: datetime | None = None) -> Uncached:
        return await flights.uncache(self._in_use(), request, now)

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        client = self._in_use()
        _, found = await client.run(scripts.PACK, (len(jobs), *(clean(job) for job in jobs)))
        return [None if reply is None else adopt.to_moved(reply, client.clock.offset) for reply in found]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned = [cleaned_moved(one) for one in moved]
        _, adopted = await self._in_use().run(scripts.ADOPT, adopt.adopt(cleaned, clean(by)), now)
        return replies.to_inserted([one.job.spec for one in moved], adopted)

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        return (await self.exchange(Exchange(put=puts), now=now)).put

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        one: Literal[0, 1] = 0 if name is None else 1
        _, found = await self._in_use().run(scripts.RECORDS, (clean(kind), clean(name or ""), one))
        return replies.to_records(kind, found)

    async def examine(self) -> list[Finding]:
        """Works even if the store is not open."""
        return await examine.examine(self._client)

    # -- waking --------------------------------------------------------------------------------------------------------

    def watch(self, topics: Iterable[str]) -> Watch:
        self._in_use()
        return self._wake.watch(topics)
