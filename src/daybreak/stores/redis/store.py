"""The seam over a Redis or Valkey server."""

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
    Usage,
    Watch,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_moved
from daybreak.stores.redis import adopt, examine, faults, gauges, read, replies, requests, scripts
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.blocking_client import Caller
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.hiredis import need_library
from daybreak.stores.redis.plain_submit import ShortWay
from daybreak.stores.redis.rows import leases_of
from daybreak.stores.redis.server_clock import ServerClock
from daybreak.stores.redis.wake import Wake
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

NAMESPACE = "daybreak"


class RedisStore:
    """Jobs on a server, for any number of processes on any machines.

    What a crash of the server may lose depends on its settings: `traits` and `examine` say it. `timeout` is how long
    an answer may take before the connection is given up; `connect_within` of the URL (5s), how long a connection may,
    which `connect_limit` lets follow what is seen."""

    def __init__(
        self,
        url: str = "redis://localhost:6379",
        *,
        world: World | None = None,
        namespace: str | None = None,
        timeout: timedelta = timedelta(seconds=10),
        connect_limit: ConnectLimit | None = None,
    ) -> None:
        need_library()
        address = parse(url)
        self.namespace = namespace or address.namespace or NAMESPACE
        self._world = world or RealWorld()
        hands = ServerClock(self._world)
        self._line = RedisClient(address, examine.checked_namespace(self.namespace), timeout, hands, connect_limit)
        self._short = ShortWay(self._line.hands)
        self._wake = Wake(self._line)
        self._caller: Caller | None = None
        self._durable = "as the server's settings say"

    def __repr__(self) -> str:
        return f"<RedisStore {self._line.address} {self.namespace!r}>"

    @property
    def traits(self) -> Traits:
        return Traits(name="redis", durable=self._durable, shared=True, features=frozenset({"resources"}))

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._caller is None:
            self._line.reopen()
            try:
                self._durable = await self._suit()
            except BaseException:
                await self._line.close()
                raise
            self._caller = Caller(self._line, self._short)
        return self

    async def _suit(self) -> str:
        """Look at the server. A repeat does no harm, so what was cut short is repeated while the caller is patient."""
        pause = 0.05
        with patience.within(patience.left(patience.PATIENCE.total_seconds())):
            while True:
                try:
                    return await examine.suit(self._line)
                except faults.Cut:
                    if patience.left() <= pause:
                        raise
                    await asyncio.sleep(pause * (0.5 + self._world.chance.random()))
                    pause = min(2 * pause, 1.0)

    async def close(self) -> None:
        """Let go of all connections. Closing twice is fine; a forked child only forgets."""
        caller, self._caller = self._caller, None
        if caller is not None:
            await self._wake.close()
            caller.close()
            await self._line.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _in_use(self) -> RedisClient:
        if self._caller is None:
            raise StoreUnavailable(
                f"{self._line.address} is not open: use 'async with RedisStore(...)', or await open() first"
            )
        return self._line

    # -- the seam ------------------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        line = self._in_use()
        if (short := self._short.args(specs)) is not None:
            accepted = self._short.answered(specs, await line.run(scripts.SUBMIT, short, now))
            if accepted is not None:
                return accepted
        reply = await line.run(scripts.EXCHANGE, requests.insert(specs), now)
        return replies.inserted(specs, reply[2])

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """`insert` for a thread that waits: those who wait at the same time are sent together."""
        self._in_use()
        assert self._caller is not None
        return self._caller.insert(specs)

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        reply = await self._in_use().run(scripts.EXCHANGE, requests.exchange(exchange), now)
        return replies.exchanged(exchange, reply)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        _, held = await self._in_use().run(scripts.EXTEND, requests.beats(beats), now)
        return [replies.EXTENDED[code] for code in held]

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        line, watched, asked, even = self._in_use(), span(reap.watched_for), requests.LATER, None
        if now is None:
            # By the time of asking: whoever could not report while the question was on its way is not given up.
            before = line.hands.asked_at()
            await line.link()
            asked = before or line.hands.asked_at() or asked
            watched, even = line.hands.watched_for(watched), line.hands.even_since()
        _, taken = await line.run(scripts.REAP, requests.reap(reap, asked, watched, even), now)
        return leases_of(reap.worker, None, taken)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        _, due, expired, wait = await self._in_use().run(scripts.ADVANCE, (limit,), now)
        return Advanced(due=due, expired=expired, next_in=read.delay(wait), again=limit in (due, expired))

    async def amend(self, wanted: Amend, *, now: datetime | None = None) -> Amended:
        line, wanted, cursor = self._in_use(), cleaned_amend(wanted), None
        names: Sequence[str | bytes] = [clean(job) for job in wanted.jobs]
        if wanted.filter is not None:
            names, cursor = await read.find_chunk(line, wanted)
        _, amended = await line.run(scripts.AMEND, requests.amend(wanted, names), now)
        return Amended(replies.amended(wanted, amended), cursor)

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        return [None if found is None else found.job for found in await read.get(self._in_use(), jobs)]

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        _, found = await self._in_use().run(scripts.KEYS, (len(keys), *(clean(key) for key in keys)), now)
        return [None if said is None else replies.known_key(said) for said in found]

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
        return replies.purged(await self._in_use().run(scripts.PURGE, requests.purge(purge), now))

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        line = self._in_use()
        _, found = await line.run(scripts.PACK, (len(jobs), *(clean(job) for job in jobs)))
        return [None if reply is None else adopt.packed(reply, line.hands.offset) for reply in found]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned = [cleaned_moved(one) for one in moved]
        _, adopted = await self._in_use().run(scripts.ADOPT, adopt.adopt(cleaned, clean(by)), now)
        return replies.inserted([one.job.spec for one in moved], adopted)

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        return (await self.exchange(Exchange(put=puts), now=now)).put

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        one: Literal[0, 1] = 0 if name is None else 1
        _, found = await self._in_use().run(scripts.RECORDS, (clean(kind), clean(name or ""), one))
        return replies.records(kind, found)

    async def examine(self) -> list[Finding]:
        """Also when it is not open."""
        return await examine.examine(self._line)

    # -- waking --------------------------------------------------------------------------------------------------------

    def watch(self, topics: Iterable[str]) -> Watch:
        self._in_use()
        return self._wake.watch(topics)
