"""Accepts jobs that were submitted inside other transactions (transactional_submit.py), after those have committed:
rank, keys and unique names apply now. The next claim, advance or read does it, once for each job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from daybreak.core.model import JobSpec
from daybreak.store.protocol import Verdict
from daybreak.stores.kernel.insert import insert
from daybreak.stores.postgres import faults

if TYPE_CHECKING:
    from daybreak.stores.postgres.transaction import PostgresTransaction

_log = logging.getLogger("daybreak.postgres")
_decode = msgspec.msgpack.Decoder(JobSpec).decode
encode = msgspec.msgpack.Encoder().encode


def accept(tx: PostgresTransaction, limit: int) -> int:
    """Accept up to `limit` jobs and return how many. A refusal is only logged: its submitter is gone."""
    found = tx.rows(tx.sql.take_incoming, (limit,))
    if not found:
        return 0
    items = sorted(found)
    try:
        tx.in_savepoint(lambda: _insert(tx, [_decode(spec) for _, spec in items]))
    except Exception as error:
        if faults.is_retryable(error) or faults.is_lost(error):
            raise
        for n, spec in items:  # one job that cannot be stored must not block all jobs after it
            _accept_one(tx, n, spec)
    return len(found)


def _accept_one(tx: PostgresTransaction, n: int, packed: bytes) -> None:
    try:
        tx.in_savepoint(lambda: _insert(tx, [_decode(packed)]))
    except Exception as error:
        if faults.is_retryable(error) or faults.is_lost(error):
            raise
        why = faults.without_password(str(error))
        _log.error(
            "a job submitted within a transaction cannot be accepted; it is kept in table aside as number %d: %s",
            n,
            why,
        )
        tx.run(tx.sql.set_aside, (n, packed, why.encode("ascii", "backslashreplace").decode().replace("\0", "")))


def _insert(tx: PostgresTransaction, specs: list[JobSpec]) -> None:
    # Not refused for a full queue: the commit has already confirmed it to the submitter.
    for answer, spec in zip(insert(tx, specs, bounded=False), specs, strict=True):
        if answer.verdict is Verdict.SPENT:
            _log.warning(
                "job %s, submitted within a transaction, was refused: key %r was used by job %s, which has been purged",
                spec.id, spec.key, answer.job,
            )  # fmt: skip
        elif answer.verdict is Verdict.CONFLICT:
            _log.warning(
                "job %s, submitted within a transaction, was refused: %s is in use by job %s",
                spec.id, "its key" if answer.same == "key" else "its unique name", answer.job,
            )  # fmt: skip
