"""Runs the requests that change something: each is audited, and with an `Idempotency-Key` it happens once.

The answer to a request that changed something is kept for 24 hours in the store, so any server repeats it, also after a
restart. While the first request runs, its record is a lease: a second request with the key gets 409 and Retry-After. If
the server was killed, the lease runs out, and the next request with the key takes over. It knows the revision that the
job had before the first attempt, so it sees in the job's history whether the change has happened.

A request that was refused has changed nothing, and no answer is kept. docs/decisions/0023-server.md goes through
every point at which a server can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.server_records import ANSWER_PARTS, answer_kind
from daybreak.core.errors import DaybreakError, StoreError
from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.server.audit import Audit, AuditEntry
from daybreak.server.problems import IN_PROGRESS, INVALID, KEY_REUSED, Problem
from daybreak.server.replies import Reply, encoded
from daybreak.store.protocol import Store
from daybreak.system.ports import Ids

if TYPE_CHECKING:
    from daybreak.server.application import Server
    from daybreak.server.routing import Call

HEADER: Final = "idempotency-key"
REPLAYED: Final = {"idempotency-replayed": "true"}
KEPT_FOR: Final = timedelta(hours=24)
LEASE: Final = timedelta(seconds=30)
RENEW_EVERY: Final = timedelta(seconds=10)
COME_BACK_IN: Final = timedelta(seconds=1)
JOB_KEY: Final = "idempotency-key:"  # what the keys of jobs begin with that come from this header
_KEY: Final = re.compile(r"[!-~]{1,200}")


class KeptAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a key. `running_until` is set while the first request runs; after it, status and body are set.
    `revision` is the job's revision before the first attempt; `cursor` is where a change of many jobs continues."""

    fingerprint: str
    forget_at: datetime
    running_until: datetime | None = None
    revision: int | None = None
    cursor: str | None = None
    audit: str = ""
    status: int = 0
    headers: dict[str, str] = {}
    body: str = ""

    def reply(self) -> Reply:
        return Reply(self.body.encode(), self.status, {**self.headers, **REPLAYED})


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """A key as it was sent, and where its answer is kept."""

    key: str
    kind: str
    name: str
    fingerprint: str

    @property
    def job_key(self) -> str:
        """The idempotency key of a job that this request submits. No caller can send such a key in a body."""
        return JOB_KEY + self.name[:40]


class Writes:
    """The changes that one server makes for its callers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.audit = Audit(server)
        self._new_id = Ids(server.app.world)
        self._kept: dict[int, int] = {}  # answers to submits that this server has kept, by hour

    def now(self) -> datetime:
        return moment(self._server.app.world.wall())

    # -- any change but a submit ---------------------------------------------------------------------------------------

    async def run(self, call: Call[Any, Any]) -> Reply:
        """The answer of the route, or the kept answer of the first request with this key."""
        store = (await call.client()).store
        keyed = keyed_request(call)
        if keyed is None:
            entry = self.audit.started(call, self._new_id())
            await store.put([self.audit.put(entry)])
            return await self._finish(call, store, entry, None, 0)
        kept, revision = await self._begin(call, store, keyed)
        if kept.running_until is None:
            return kept.reply()
        entry = self.audit.started(call, kept.audit)
        return await self._finish(call, store, entry, (keyed, kept), revision)

    async def _begin(self, call: Call[Any, Any], store: Store, keyed: KeyedRequest) -> tuple[KeptAnswer, int]:
        """Take the lease of this key, with its revision; or the answer, if it is there."""
        baseline = await _revision_of(call, store)
        for _ in range(5):
            now = self.now()
            found = await _kept(store, keyed)
            if found is None:
                kept, before = KeptAnswer(
                    fingerprint=keyed.fingerprint,
                    forget_at=now + KEPT_FOR,
                    running_until=now + LEASE,
                    revision=baseline,
                    audit=self._new_id(),
                ), 0  # fmt: skip
            else:
                kept, before = found
                check_same(keyed, kept)
                if kept.running_until is None:
                    return kept, before
                if kept.running_until > now:
                    raise Problem(
                        IN_PROGRESS,
                        "the first request with this Idempotency-Key is still running",
                        hint="send the same request again a little later",
                        retry_after=COME_BACK_IN,
                    )
                kept = replace(kept, running_until=now + LEASE)
                call.takes_over = kept
            entry = self.audit.started(call, kept.audit)
            # The record of the audit goes with the lease: one transaction.
            [record, _] = await store.put([_put(keyed, kept, before), self.audit.put(entry)])
            if record is not None:
                return kept, record.revision
        raise Problem(IN_PROGRESS, "another server is processing this request", retry_after=COME_BACK_IN)

    async def _finish(
        self,
        call: Call[Any, Any],
        store: Store,
        entry: AuditEntry,
        lease: tuple[KeyedRequest, KeptAnswer] | None,
        revision: int,
    ) -> Reply:
        held = None if lease is None else HeldKey(store, lease[0], lease[1], revision, self)
        call.held_key = held
        try:
            async with _renewed(held):
                answer = await call.route.run(call)
        except BaseException as error:
            await self._give_up(store, entry, held, error)
            raise
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        status = reply.status or call.route.status
        puts = [self.audit.done(entry, status) if reply.changed else self.audit.undone(entry)]
        if held is not None:
            puts.append(held.answered(reply, status) if reply.changed else held.forgotten())
        await store.put(puts)
        await self.audit.trim(store)
        return reply

    async def _give_up(self, store: Store, entry: AuditEntry, held: HeldKey | None, error: BaseException) -> None:
        """Refused: nothing is kept. If it may have happened, the record stays, and the next request goes on from it."""
        if _was_refused(error):
            puts = [self.audit.undone(entry), *([] if held is None else [held.forgotten()])]
        else:
            puts = [] if held is None else [held.released()]
        with contextlib.suppress(StoreError):
            if puts:
                await store.put(puts)

    # -- submits -------------------------------------------------------------------------------------------------------

    async def kept_submit(self, call: Call[Any, Any], keyed: KeyedRequest) -> Reply | None:
        """The kept answer to a submit. None if there is none: then the job's own key says whether there is a job."""
        found = await _kept((await call.client()).store, keyed)
        if found is None:
            return None
        check_same(keyed, found[0])
        return found[0].reply()

    async def keep_submit(self, call: Call[Any, Any], keyed: KeyedRequest, reply: Reply) -> Reply:
        """Keep this answer, unless another request with the key was faster: then that answer counts."""
        hour = int(self.now().timestamp() // 3600)
        self._kept = {past: n for past, n in self._kept.items() if past > hour - 24}
        if sum(self._kept.values()) >= self._server.settings.max_answers:
            return reply  # the job's own key still finds it
        self._kept[hour] = self._kept.get(hour, 0) + 1
        store = (await call.client()).store
        kept = KeptAnswer(
            fingerprint=keyed.fingerprint,
            forget_at=self.now() + KEPT_FOR,
            status=reply.status or call.route.status,
            headers=dict(reply.headers),
            body=encoded(reply.data).decode(),
        )
        [record] = await store.put([_put(keyed, kept, 0)])
        if record is None and (there := await _kept(store, keyed)) is not None:
            check_same(keyed, there[0])
            return there[0].reply()
        return reply


class HeldKey:
    """The lease of a key while its request runs."""

    def __init__(self, store: Store, keyed: KeyedRequest, kept: KeptAnswer, revision: int, writes: Writes) -> None:
        self._store = store
        self._keyed = keyed
        self._kept = kept
        self._revision = revision
        self._writes = writes

    async def renew(self, **changes: Any) -> None:
        """Hold it for longer. If another server took it over meanwhile, that one writes the answer."""
        kept = replace(self._kept, running_until=self._writes.now() + LEASE, **changes)
        [record] = await self._store.put([_put(self._keyed, kept, self._revision)])
        if record is not None:
            self._kept, self._revision = kept, record.revision

    def answered(self, reply: Reply, status: int) -> Put:
        body = b"" if reply.data is None else encoded(reply.data)
        kept = replace(
            self._kept, running_until=None, status=status, headers=dict(reply.headers), body=body.decode(),
            forget_at=self._writes.now() + KEPT_FOR,
        )  # fmt: skip
        return _put(self._keyed, kept, self._revision)

    def released(self) -> Put:
        """End the lease now, so that the next request takes over at once."""
        return _put(self._keyed, replace(self._kept, running_until=self._writes.now()), self._revision)

    def forgotten(self) -> Put:
        return Put(kind=self._keyed.kind, name=self._keyed.name, value=None, expect=self._revision)


@contextlib.asynccontextmanager
async def _renewed(held: HeldKey | None) -> AsyncIterator[None]:
    """Renew the lease while the block runs."""
    if held is None:
        yield
        return

    async def renew() -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY.total_seconds())
            with contextlib.suppress(StoreError):
                await held.renew()

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


def keyed_request(call: Call[Any, Any]) -> KeyedRequest | None:
    """The request's key, or None if it was sent without one. Keys of different callers never meet."""
    sent = call.request.headers.getall(HEADER, [])
    if not sent:
        return None
    if len(sent) > 1 or not _KEY.fullmatch(sent[0]):
        raise Problem(INVALID, "an Idempotency-Key is 1 to 200 visible ASCII characters", hint="send a new UUID")
    caller = call.caller
    name = hashlib.sha256("\0".join((caller.kind, caller.by, sent[0])).encode("utf-8", "surrogatepass")).hexdigest()
    route, query = call.route, call.request.scope.get("query_string", b"")
    path = route.path.format(**call.path).encode("utf-8", "surrogatepass")
    content = b"\0".join((route.method.encode(), path, query, call.raw))
    return KeyedRequest(
        key=sent[0],
        kind=answer_kind(int(name[:4], 16) % ANSWER_PARTS),
        name=name,
        fingerprint=hashlib.sha256(content).hexdigest(),
    )


def _was_refused(error: BaseException) -> bool:
    """Whether an error says for sure that nothing was changed."""
    if isinstance(error, Problem):
        return error.kind.status < 500
    return isinstance(error, DaybreakError) and not isinstance(error, StoreError)


def check_same(keyed: KeyedRequest, kept: KeptAnswer) -> None:
    if kept.fingerprint != keyed.fingerprint:
        raise Problem(
            KEY_REUSED,
            f"Idempotency-Key {keyed.key!r} was sent with another request",
            hint="send a new key with a new request, and the same key only with the same method, path and body",
        )


async def _kept(store: Store, keyed: KeyedRequest) -> tuple[KeptAnswer, int] | None:
    for record in await store.records(keyed.kind, keyed.name):
        return msgspec.json.decode(record.value, type=KeptAnswer), record.revision
    return None


def _put(keyed: KeyedRequest, kept: KeptAnswer, expect: int) -> Put:
    return Put(kind=keyed.kind, name=keyed.name, value=msgspec.json.encode(kept), expect=expect)


async def _revision_of(call: Call[Any, Any], store: Store) -> int | None:
    """The revision of the job that a route changes; None for other routes, 0 for a job that is not there."""
    if not call.route.changes_job:
        return None
    [job] = await store.get([call.path["id"]])
    return 0 if job is None else job.revision
