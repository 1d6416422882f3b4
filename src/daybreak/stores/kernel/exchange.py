"""Exchange: settle, insert, put and claim in one transaction."""

from __future__ import annotations

from daybreak.core.model import Put
from daybreak.store.protocol import Exchange, Exchanged
from daybreak.stores.kernel import records, resource_queue
from daybreak.stores.kernel.claim import Claiming
from daybreak.stores.kernel.insert import insert, lock_keys_and_names
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.transaction import Transaction


def exchange(tx: Transaction, request: Exchange) -> Exchanged:
    """Do one exchange."""
    settling = Settling(tx)
    settled = _settle(tx, settling, request) if request.settle else []
    if settling.inserts:
        insert(tx, settling.inserts, bounded=False)
    if settling.puts:
        records.put(tx, settling.puts)
    inserted = insert(tx, request.insert) if request.insert else []
    put = records.put(tx, request.put) if request.put else []
    resource_queue.offer_freed(tx)
    if request.claim is None:
        return Exchanged(settled=settled, inserted=inserted, put=put)
    tx.before_claim(request.claim)
    claiming = Claiming(tx, request.claim)
    leases = claiming.claim()
    return Exchanged(
        settled=settled, inserted=inserted, put=put, leases=leases, next_in=claiming.next_in, again=claiming.again
    )


def _settle(tx: Transaction, settling: Settling, request: Exchange) -> list[bool]:
    """Settle leases. What follows in the same transaction is locked in the order of an insert: names, jobs, then all
    flights together. Otherwise it could deadlock with one."""
    follow = [spec for settlement in request.settle for spec in settlement.inserts]
    follow += request.insert
    lock_keys_and_names(tx, follow)
    return settling.settle(request.settle, follow)


def puts_of(request: Exchange) -> list[Put]:
    """All records that an exchange writes."""
    return [*request.put, *(put for settlement in request.settle for put in settlement.puts)]


def finish(tx: Transaction) -> None:
    """End the work of a transaction: offer what it freed, and write what is left to write."""
    resource_queue.offer_freed(tx)
    tx.write()
    tx.gauges.save()
