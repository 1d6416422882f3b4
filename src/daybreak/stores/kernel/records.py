"""Records: settings and other small values, written by compare-and-set on their revision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.model import Gate, Health, Put, QueueSettings, Record, ResourceSettings
from daybreak.store.protocol import (
    REQUEST_KIND,
    SAGA_MARK_KIND,
    SAGAS_TOPIC,
    SCHEDULE_KIND,
    SCHEDULES_TOPIC,
    asked_worker,
    work_topic,
    worker_topic,
)
from daybreak.stores.kernel import resource_queue
from daybreak.stores.kernel.insert import insert, lock_keys_and_names
from daybreak.stores.kernel.transaction import Transaction

Settings = QueueSettings | ResourceSettings | Gate | Health

# The kinds of records that change how the store works.
SETTINGS_KINDS: Final[dict[str, type[Settings]]] = {
    "queue": QueueSettings,
    "resource": ResourceSettings,
    "gate": Gate,
    "health": Health,
}
RESOURCE_KINDS: Final = frozenset({"resource", "gate", "health"})


def put(tx: Transaction, puts: Sequence[Put]) -> list[Record | None]:
    """Write records; None for one that has another revision than expected."""
    if inserts := [spec for put in puts for spec in put.inserts]:
        # Before the records, as in an exchange that inserts jobs and writes records: always in the same order.
        lock_keys_and_names(tx, inserts)
    if puts:
        tx.lock_names("record", [f"{put.kind}:{put.name}" for put in puts])
    return [_put(tx, put) for put in puts]


def _put(tx: Transaction, put: Put) -> Record | None:
    if put.expect is not None and put.expect != tx.read_revision(put.kind, put.name):
        return None
    revision = tx.next_revision()
    if put.tells:
        tx.publish(events.record_event(put, tx.at))
    tx.write_record(put, revision)
    _apply(tx, put)
    if put.inserts:
        insert(tx, put.inserts, bounded=False)
    return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)


def _apply(tx: Transaction, put: Put) -> None:
    """Have a record take effect, if it is a setting or a request. A deleted setting is the default again."""
    match read_settings(put):
        case QueueSettings() as settings:
            tx.write_settings(put.name, None if put.value is None else settings)
            tx.forget_settings(put.name)
            tx.wake(work_topic(put.name))
        case ResourceSettings() as settings:
            resource_queue.set_resource(tx, put.name, settings)
        case Gate() as gate:
            resource_queue.set_gate(tx, put.name, gate)
        case Health() as health:
            resource_queue.set_health(tx, put.name, health)
        case None:
            if put.kind == REQUEST_KIND and put.value is not None:
                tx.wake(worker_topic(asked_worker(put.name)))
            elif put.kind == SCHEDULE_KIND:
                tx.wake(SCHEDULES_TOPIC)
            elif put.kind == SAGA_MARK_KIND:
                tx.wake(SAGAS_TOPIC)


def check(puts: Iterable[Put]) -> None:
    """Refuse bad records before anything is written."""
    for put in puts:
        if put.tells and put.tells not in events.KINDS:
            raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is not a kind of event")
        read_settings(put)


def read_settings(put: Put) -> Settings | None:
    """The settings that a record contains; None if its kind is not one of settings."""
    if (kind := SETTINGS_KINDS.get(put.kind)) is None:
        return None
    try:
        return msgspec.json.decode(put.value or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{put.kind} {put.name!r}: not valid {put.kind} settings: {error}") from None
