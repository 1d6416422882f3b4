"""What was submitted inside other transactions (within.py) is accepted here, after their commit: rank, capacity, keys
and unique names apply now. Whoever comes next does it, each item once."""

from __future__ import annotations

import logging

import msgspec

from daybreak.model import JobSpec
from daybreak.store import Verdict
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
    specs = [_decode(spec) for _, spec in sorted(found)]
    # What the commit has accepted is not refused for a full queue: its submitter was told yes.
    for answer, spec in zip(Inserting(ledger, specs, bounded=False).insert(), specs, strict=True):
        if answer.verdict is Verdict.CONFLICT:
            _log.warning(
                "job %s, submitted within a transaction, was refused: %s is in use by job %s",
                spec.id, "its key" if answer.same == "key" else "its unique name", answer.job,
            )  # fmt: skip
    return len(found)


def is_there(ledger: Ledger) -> bool:
    return bool(ledger.value(ledger.sql.has_incoming))
