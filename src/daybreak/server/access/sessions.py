"""Sign-in without a token, for a person at the machine: a one-time code from the link that `daybreak serve` prints is
exchanged for a cookie.

Codes and sessions are records (kinds `sign-in code` and `session`) under the SHA-256 of their secret, so several
servers on one store share them, they survive a restart, and a person who can read the store cannot use them."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from daybreak.client.server_records import SESSION as SESSION_KIND
from daybreak.client.server_records import SIGN_IN_CODE as CODE_KIND
from daybreak.core.model import Put
from daybreak.store.protocol import Store


class SignInCode(Struct, frozen=True, kw_only=True):
    """A code that was not used yet. It expires at `forget_at`."""

    by: str
    forget_at: datetime


class Session(Struct, frozen=True, kw_only=True):
    """A signed-in person. Requests that change something must repeat `csrf` in a header. It ends at `forget_at`."""

    by: str
    csrf: str
    forget_at: datetime


async def create_code(store: Store, *, by: str, now: datetime, valid_for: timedelta) -> str:
    code = secrets.token_urlsafe(24)
    value = msgspec.json.encode(SignInCode(by=by, forget_at=now + valid_for))
    await store.put([Put(kind=CODE_KIND, name=_name(code), value=value, expect=0)])
    return code


async def is_code(store: Store, code: str, *, now: datetime) -> bool:
    """Whether the code is valid. This check does not use it up."""
    for record in await store.records(CODE_KIND, _name(code)):
        return msgspec.json.decode(record.value, type=SignInCode).forget_at > now
    return False


async def sign_in(store: Store, code: str, *, now: datetime, valid_for: timedelta) -> tuple[str, Session] | None:
    """Exchange a code for a session, once per code, however many servers get it. Returns the session's secret, or None
    if the code is not valid."""
    for record in await store.records(CODE_KIND, _name(code)):
        found = msgspec.json.decode(record.value, type=SignInCode)
        secret = secrets.token_urlsafe(32)
        session = Session(by=found.by, csrf=secrets.token_urlsafe(24), forget_at=now + valid_for)
        # Only the request that deletes the code at this revision may create the session.
        [deleted] = await store.put([Put(kind=CODE_KIND, name=record.name, value=None, expect=record.revision)])
        if found.forget_at <= now or deleted is None:
            return None
        await store.put([Put(kind=SESSION_KIND, name=_name(secret), value=msgspec.json.encode(session), expect=0)])
        return secret, session
    return None


async def find_session(store: Store, secret: str, *, now: datetime) -> Session | None:
    for record in await store.records(SESSION_KIND, _name(secret)):
        session = msgspec.json.decode(record.value, type=Session)
        return session if session.forget_at > now else None
    return None


async def sign_out(store: Store, secret: str) -> None:
    await store.put([Put(kind=SESSION_KIND, name=_name(secret), value=None)])


def _name(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
