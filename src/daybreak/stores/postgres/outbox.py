"""What was submitted inside other transactions (within.py) is accepted here, after their commit: rank, capacity, keys
and unique names apply now. Whoever comes next does it, each item once."""

from __future__ import annotations

import logging

import msgspec

from daybreak.core.model import JobSpec
from daybreak.store.protocol import Verdict
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.insert import Inserting
from daybreak.stores.postgres.ledger import Ledger

_log = logging.getLogger("daybreak.postgres")
_decode = msgspec.msgpack.Decoder(JobSpec).decode
encode = msgspec.msgpack.Encoder().encode


def accept(ledger: Ledger, limit: int) -> int:
    """How many were accepted. One that is refused now has nobody left to be told: it is logged."""
    found = ledger.rows(ledger.sql.take_incoming, (limit,))
    if not found:
        return 0
    items = sorted(found)
    try:
        ledger.trying(lambda: _insert(ledger, [_decode(spec) for _, spec in items]))
    except Exception as error:
        if faults.is_passing(error) or faults.is_lost(error):
            raise
        for n, spec in items:  # one that cannot be kept must not stand in the way of everything behind it
            _accept_alone(ledger, n, spec)
    return len(found)


def _accept_alone(ledger: Ledger, n: int, packed: bytes) -> None:
    try:
        ledger.trying(lambda: _insert(ledger, [_decode(packed)]))
    except Exception as error:
        if faults.is_passing(error) or faults.is_lost(error):
            raise
        why = faults.without_password(str(error))
        _log.error("a job submitted within a transaction cannot be accepted and is set aside as number %d: %s", n, why)
        ledger.run(
            ledger.sql.set_aside, (n, packed, why.encode("ascii", "backslashreplace").decode().replace("\0", ""))
        )


def _insert(ledger: Ledger, specs: list[JobSpec]) -> None:
    # What the commit has accepted is not refused for a full queue: its submitter was told yes.
    for answer, spec in zip(Inserting(ledger, specs, bounded=False).insert(), specs, strict=True):
        if answer.verdict is Verdict.SPENT:
            _log.warning(
                "job %s, submitted within a transaction, was refused: key %r is spent, job %s ran under it and is gone",
                spec.id, spec.key, answer.job,
            )  # fmt: skip
        elif answer.verdict is Verdict.CONFLICT:
            _log.warning(
                "job %s, submitted within a transaction, was refused: %s is in use by job %s",
                spec.id, "its key" if answer.same == "key" else "its unique name", answer.job,
            )  # fmt: skip


def is_there(ledger: Ledger) -> bool:
    return bool(ledger.value(ledger.sql.has_incoming))
