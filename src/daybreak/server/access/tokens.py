"""Tokens: random secrets that are shown once, stored as a hash, and sent in the Authorization header.

A token is written `daybreak_<id>_<secret>`. The id finds its record (kind `token`); the secret has 256 random bits, so
its plain SHA-256 cannot be searched through, and comparing hashes takes the same time wherever they differ."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.server_records import TOKEN as KIND
from daybreak.core.errors import BadInput, RecordChanged
from daybreak.core.model import Put, Record
from daybreak.policy.admit import check_name
from daybreak.server.access.callers import Role, roles_of
from daybreak.store.protocol import Store

PREFIX: Final = "daybreak"
MAX_TOKENS: Final = 1000
# An expired or revoked token stays in the list for this long, so that a person can see what happened to it.
LISTED_FOR: Final = timedelta(days=30)
_NO_HASH: Final = "0" * 64


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is stored: everything but its secret. `queues` of None means all queues."""

    id: str
    name: str
    hash: str
    roles: tuple[Role, ...]
    queues: tuple[str, ...] | None = None
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""
    forget_at: datetime | None = None

    def state(self, now: datetime) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"


async def create_token(
    store: Store,
    name: str,
    roles: Iterable[str],
    *,
    now: datetime,
    by: str = "",
    queues: Iterable[str] | None = None,
    expires_in: timedelta | None = None,
) -> tuple[Token, str]:
    """Create a token. Returns the token and its text, which is not stored and cannot be shown again."""
    check_name("token", name)
    if not name.strip():
        raise BadInput("a token needs a name: it is recorded with every change made with the token")
    existing = await list_tokens(store)
    if any(token.name == name and token.state(now) == "active" for token in existing):
        raise BadInput(f"a token named {name!r} exists already: revoke it first, or choose another name")
    if len(existing) >= MAX_TOKENS:
        raise BadInput(f"there are {len(existing)} tokens, the limit is {MAX_TOKENS}: revoke those that nobody uses")
    scope = None if queues is None else tuple(dict.fromkeys(queues))
    for queue in scope or ():
        check_name("queue", queue)
    expires_at = None if expires_in is None else now + expires_in
    secret = secrets.token_urlsafe(32)
    token = Token(
        id=secrets.token_hex(8),
        name=name,
        hash=_hash(secret),
        roles=tuple(sorted(roles_of(roles))),
        queues=scope or None,
        created_at=now,
        created_by=by,
        expires_at=expires_at,
        forget_at=None if expires_at is None else expires_at + LISTED_FOR,
    )
    [put] = await store.put([Put(kind=KIND, name=token.id, value=msgspec.json.encode(token), expect=0)])
    if put is None:
        raise RecordChanged(KIND, token.id)
    return token, f"{PREFIX}_{token.id}_{secret}"


async def list_tokens(store: Store) -> list[Token]:
    """All tokens, the newest first. Records that cannot be decoded are left out."""
    found = [token for record in await store.records(KIND) if (token := _read(record)) is not None]
    return sorted(found, key=lambda token: token.created_at, reverse=True)


async def has_usable_token(store: Store, now: datetime) -> bool:
    return any(token.state(now) == "active" for token in await list_tokens(store))


async def revoke_token(store: Store, which: str, *, now: datetime, by: str = "") -> Token:
    """Revoke a token by its id or by the name of an active one. Servers refuse it within two seconds."""
    for _ in range(20):
        found = [
            (record, token)
            for record in await store.records(KIND)
            if (token := _read(record)) is not None
            and (token.id == which or (token.name == which and token.state(now) != "revoked"))
        ]
        if not found:
            raise BadInput(f"no token {which!r}: daybreak tokens list shows their ids and names")
        record, token = found[0]
        if token.revoked_at is not None:
            return token
        revoked = msgspec.structs.replace(token, revoked_at=now, revoked_by=by, forget_at=now + LISTED_FOR)
        [put] = await store.put([
            Put(kind=KIND, name=token.id, value=msgspec.json.encode(revoked), expect=record.revision)
        ])  # fmt: skip
        if put is not None:
            return revoked
    raise RecordChanged(KIND, which)


def parts_of(text: str) -> tuple[str, str] | None:
    """The id and the secret of a token's text; None if the text is not a token."""
    prefix, _, rest = text.partition("_")
    token_id, separator, secret = rest.partition("_")
    if prefix != PREFIX or not separator or len(token_id) != 16 or not 32 <= len(secret) <= 100:
        return None
    return token_id, secret


async def find_token(store: Store, text: str) -> Token | None:
    """The token of this text, whatever its state; None if there is none, or its secret differs."""
    parts = parts_of(text)
    if parts is None:
        return None
    token_id, secret = parts
    token = next((_read(record) for record in await store.records(KIND, token_id)), None)
    # An unknown id takes the same comparison as a wrong secret.
    known = _NO_HASH if token is None else token.hash
    return token if hmac.compare_digest(known, _hash(secret)) else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(record: Record) -> Token | None:
    try:
        return msgspec.json.decode(record.value, type=Token)
    except msgspec.MsgspecError:
        return None
