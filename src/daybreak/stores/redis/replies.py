"""Converts replies of scripts into values of the store protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Literal

from daybreak.core.model import JobSpec, Put, Record
from daybreak.store.protocol import Amend, Amendment, Exchange, Exchanged, Extended, Inserted, KnownKey, Purged
from daybreak.stores.redis import codes
from daybreak.stores.redis.read import delay
from daybreak.stores.redis.rows import leases_of, unpack_value

YES: Final = ord("1")
EXTENDED: Final = {
    ord("0"): Extended(held=False),
    **{
        ord(str(1 + 2 * c + 4 * s)): Extended(held=True, cancel=bool(c), suspend=bool(s))
        for c in (0, 1)
        for s in (0, 1)
    },
}
_INSERTED: Final = struct.Struct("<BBBd")
_REVISION: Final = struct.Struct("<d")
_Verdict = Literal["done", "requested", "refused", "missing"]
_AMENDED: Final[tuple[_Verdict, ...]] = ("done", "requested", "refused", "missing")


def to_exchanged(request: Exchange, reply: Sequence[Any]) -> Exchanged:
    _, settled, accepted, revisions, claimed = reply
    claim = request.claim
    ends = [code == YES for code in settled]
    put = [_record(each, int(revision)) for each, revision in zip(request.put, revisions, strict=True)]
    if claim is None:
        return Exchanged(settled=ends, inserted=to_inserted(request.insert, accepted), put=put)
    return Exchanged(
        settled=ends,
        inserted=to_inserted(request.insert, accepted),
        put=put,
        leases=leases_of(claim.worker, claim.call, claimed),
        next_in=delay(claimed[4]),
        again=bool(claimed[5]),
    )


def to_inserted(specs: Sequence[JobSpec], reply: Sequence[Any] | None) -> list[Inserted]:
    """The answer for each job. The ids of existing jobs, and of jobs that were shed, come in a separate list."""
    if not specs or reply is None:
        return []
    first, packed, ids = reply
    if len(packed) == 1:  # all are new, and in the same state
        state = codes.STATES[packed[0]]
        return [Inserted(codes.VERDICTS[0], spec.id, seq, state) for seq, spec in enumerate(specs, int(first))]
    others = iter(ids)
    answers = []
    for spec, (verdict, same, code, seq) in zip(specs, _INSERTED.iter_unpack(packed), strict=True):
        other = next(others).decode() if same > 1 else spec.id
        code_digest = ""
        if same == codes.BY_KEY:  # the digest of its code follows the id
            other, _, code_digest = other.rpartition("\0")
        now_in = None if code == codes.NO_STATE else codes.STATES[code]
        if same == codes.EVICTED:
            answers.append(Inserted(codes.VERDICTS[verdict], spec.id, int(seq), now_in, evicted=other))
        else:
            answers.append(
                Inserted(codes.VERDICTS[verdict], other, int(seq), now_in, codes.SAME[same], code=code_digest)
            )
    return answers


def to_known_key(entry: Sequence[Any]) -> KnownKey:
    job, digest, is_spent = entry
    return KnownKey(job.decode(), digest.decode(), bool(is_spent))


def _record(put: Put, revision: int) -> Record | None:
    if not revision:
        return None
    return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)


def to_records(kind: str, found: Sequence[Any]) -> list[Record]:
    named = sorted(
        (name.decode(), packed) for name, packed in zip(found[::2], found[1::2], strict=True) if packed is not None
    )
    return [
        Record(
            kind=kind, name=name, value=unpack_value(packed[_REVISION.size :]),
            revision=int(_REVISION.unpack_from(packed)[0]),
        )
        for name, packed in named
    ]  # fmt: skip


def to_purged(reply: Sequence[Any]) -> Purged:
    _, moved, jobs, events, keys, again = reply
    return Purged(
        jobs=jobs, events=events, keys=keys,
        moved=[code == YES for code in moved], again=bool(again),
    )  # fmt: skip


def to_amended(request: Amend, found: Sequence[bytes]) -> list[Amendment]:
    answers = []
    names = iter(request.jobs)
    for packed in found:
        verdict, state = packed[0], packed[1]
        job = next(names) if request.filter is None else packed[2:].decode()
        answers.append(Amendment(job, _AMENDED[verdict], None if state == codes.NO_STATE else codes.STATES[state]))
    if request.filter is None:
        return answers
    return [answer for answer in answers if answer.verdict in ("done", "requested")]
