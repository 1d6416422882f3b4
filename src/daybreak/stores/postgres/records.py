"""Records: settings and other small values, written with an optional check of the revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.model import (
    NO_GATE,
    NO_HEALTH,
    UNLIMITED,
    Gate,
    Health,
    Put,
    QueueSettings,
    Record,
    ResourceSettings,
)
from daybreak.core.units import span
from daybreak.store import protocol
from daybreak.store.protocol import REQUEST_KIND, SCHEDULE_KIND, SCHEDULES_TOPIC, asked_worker, work_topic, worker_topic
from daybreak.stores.postgres import resource_queue
from daybreak.stores.postgres.arrays import Texts
from daybreak.stores.postgres.insert import Inserting, lock_names
from daybreak.stores.postgres.ledger import Ledger

RECORD_LOCKS = 0x444252  # class of advisory locks
# Kinds that change how the store works.
SETTINGS_KINDS: Final[dict[str, type]] = {
    "queue": QueueSettings,
    "resource": ResourceSettings,
    "gate": Gate,
    "health": Health,
}
T = TypeVar("T")


def is_plain(put: Put) -> bool:
    """Whether one statement is enough: no expected revision, no settings, no event, no jobs, nobody to wake."""
    has_effect = put.kind in SETTINGS_KINDS or put.kind in (REQUEST_KIND, SCHEDULE_KIND)
    return not has_effect and put.expect is None and put.value is not None and not put.tells and not put.inserts


def use_resources(puts: Sequence[Put]) -> bool:
    """Whether one of them is a setting of a resource, or brings a job with a holder."""
    return any(
        put.kind in ("resource", "gate", "health") or any(spec.holder is not None for spec in put.inserts)
        for put in puts
    )


def plain_params(put: Put) -> tuple[Any, ...]:
    return RECORD_LOCKS, _lock_name(put), put.kind, put.name, put.value


def put(ledger: Ledger, puts: Sequence[Put]) -> list[Record | None]:
    if inserts := [spec for put in puts for spec in put.inserts]:
        lock_names(ledger, inserts)  # before the records, as an exchange that inserts jobs and puts records does
    if puts:
        # A record that does not exist yet has no row to lock.
        ledger.rows(ledger.sql.lock_names, (RECORD_LOCKS, Texts([_lock_name(put) for put in puts])))
    return [_put(ledger, put) for put in puts]


def _lock_name(put: Put) -> str:
    return f"{put.kind}:{put.name}"


def _put(ledger: Ledger, put: Put) -> Record | None:
    sql = ledger.sql
    current_revision = ledger.value(sql.get_record, (put.kind, put.name))
    if put.expect is not None and put.expect != (current_revision or 0):
        return None
    # All records share one sequence, so a record that was deleted and written again never repeats a revision.
    revision = ledger.next_revision()
    if put.tells:
        ledger.publish(events.record_event(put, ledger.at))
    if put.value is None:
        ledger.run(sql.delete_record, (put.kind, put.name))
    else:
        ledger.run(sql.put_record, (put.kind, put.name, revision, put.value))
    match put.kind:
        case "queue":
            _put_queue(ledger, put.name, _decoded(put, QueueSettings))
        case "resource":
            resource_queue.set_resource(ledger, put.name, _decoded(put, ResourceSettings) or UNLIMITED)
        case "gate":
            resource_queue.set_gate(ledger, put.name, _decoded(put, Gate) or NO_GATE)
        case "health":
            resource_queue.set_health(ledger, put.name, _decoded(put, Health) or NO_HEALTH)
        case protocol.REQUEST_KIND if put.value is not None:
            ledger.wake(worker_topic(asked_worker(put.name)))
        case protocol.SCHEDULE_KIND:
            ledger.wake(SCHEDULES_TOPIC)
    if put.inserts:
        Inserting(ledger, put.inserts, bounded=False).insert()
    return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)


def _put_queue(ledger: Ledger, name: str, settings: QueueSettings | None) -> None:
    sql = ledger.sql
    ledger.rows(sql.lock_claims)
    if settings is None:
        ledger.run(sql.delete_queue, (name,))
    else:
        ledger.run(
            sql.put_queue,
            (
                name, settings.paused, settings.max_running, settings.capacity, settings.when_full == "shed",
                settings.discipline == "aging", span(settings.patience), settings.weight,
            ),
        )  # fmt: skip
    ledger.forget_settings(name)
    ledger.wake(work_topic(name))


def check(puts: Sequence[Put]) -> None:
    for put in puts:
        if put.tells and put.tells not in events.KINDS:
            raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is not a kind of event")
        if (kind := SETTINGS_KINDS.get(put.kind)) is not None:
            _decoded(put, kind)


def _decoded(put: Put, kind: type[T]) -> T | None:
    if put.value is None:
        return None
    try:
        return msgspec.json.decode(put.value, type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{put.kind} {put.name!r}: not valid {put.kind} settings: {error}") from None


def records(ledger: Ledger, kind: str, name: str | None) -> list[Record]:
    return [
        Record(kind=kind, name=record_name, value=value, revision=revision)
        for record_name, revision, value in ledger.rows(ledger.sql.all_records, (kind, name, name))
    ]
