"""The records that servers keep in the store, and when they are deleted.

| kind | what it is | how many | deleted |
|---|---|---|---|
| `token` | a token of a caller, its secret hashed | 1,000 | 30 days after it expired or was revoked |
| `session`, `sign-in code` | a signed-in person, a link that was not used yet | one per sign-in | when it expires |
| `answer 00` to `answer 3f` | an answer under an idempotency key | those of 24 hours | after 24 hours |
| `audit` | a change that a server made for a caller | the latest 5,000 | after 90 days |
| `audit of submits` | the number of jobs that a caller submitted in a minute | the latest 5,000 | after 90 days |

Each value is a JSON object whose `forget_at` says when the janitor may delete it. Answers can be many, so they are
spread over 64 kinds by a hash of their name, and the janitor reads one kind at a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Put, Record
from daybreak.store.protocol import Store

TOKEN: Final = "token"  # noqa: S105 - the kind of a record
SESSION: Final = "session"
SIGN_IN_CODE: Final = "sign-in code"
AUDIT: Final = "audit"
AUDIT_OF_SUBMITS: Final = "audit of submits"  # of their own, so that many submits do not push other changes out
ANSWER_PARTS: Final = 64
MOST_AUDITED: Final = 5000
_CHUNK: Final = 500


class _Forgettable(Struct):
    forget_at: datetime | None = None


def answer_kind(part: int) -> str:
    """The kind of the answers in this part, 0 to 63."""
    return f"answer {part:02x}"


async def forget_server_records(store: Store, now: datetime) -> None:
    """Delete what has expired, and all but the latest entries of the audit, whose names are in the order of time."""
    for kind in (TOKEN, SESSION, SIGN_IN_CODE):
        await _forget(store, [record for record in await store.records(kind) if _is_over(record, now)])
    await trim_audit(store, now)


async def trim_audit(store: Store, now: datetime) -> None:
    for kind in (AUDIT, AUDIT_OF_SUBMITS):
        found = sorted(await store.records(kind), key=lambda record: record.name)
        surplus = len(found) - MOST_AUDITED
        await _forget(store, [record for n, record in enumerate(found) if n < surplus or _is_over(record, now)])


async def forget_answers(store: Store, part: int, now: datetime) -> None:
    await _forget(store, [record for record in await store.records(answer_kind(part)) if _is_over(record, now)])


async def _forget(store: Store, records: Iterable[Record]) -> None:
    """Delete records, each only if it has not changed since it was read."""
    puts = [Put(kind=record.kind, name=record.name, value=None, expect=record.revision) for record in records]
    for start in range(0, len(puts), _CHUNK):
        await store.put(puts[start : start + _CHUNK])


def _is_over(record: Record, now: datetime) -> bool:
    try:
        forget_at = msgspec.json.decode(record.value, type=_Forgettable).forget_at
    except msgspec.MsgspecError:  # written by another program: keep it
        return False
    return forget_at is not None and forget_at.tzinfo is not None and forget_at <= now
