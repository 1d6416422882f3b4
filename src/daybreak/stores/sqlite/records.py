"""Records: settings and other small values, written by compare-and-set on their revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.model import Gate, Health, Put, QueueSettings, Record, ResourceSettings
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX
from daybreak.store.protocol import REQUEST_KIND, SCHEDULE_KIND, SCHEDULES_TOPIC, asked_worker, work_topic, worker_topic
from daybreak.stores.sqlite import gauge_rows, job_moves
from daybreak.stores.sqlite.insert import Inserting
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.statements import sql


def put(ledger: Ledger, puts: Sequence[Put]) -> list[Record | None]:
    return [_put(ledger, put) for put in puts]


def _put(ledger: Ledger, put: Put) -> Record | None:
    settings = _settings(put)
    there = ledger.execute(sql.get_record, (put.kind, put.name)).fetchone()
    if put.expect is not None and put.expect != (there[0] if there else 0):
        return None
    # All records share one series of revisions, so a record that was deleted and written again has a new number.
    revision = (ledger.value(sql.get_meta, ("revision",)) or 0) + 1
    ledger.execute(sql.set_meta, ("revision", revision))
    if put.value is None:
        ledger.execute(sql.delete_record, (put.kind, put.name))
    else:
        ledger.execute(sql.put_record, (put.kind, put.name, revision, put.value))
    if put.tells:
        ledger.publish(events.record_event(put, ledger.at))
    match settings:
        case QueueSettings():
            ledger.known.settings[put.name] = settings
            ledger.wake(work_topic(put.name))
        case ResourceSettings():
            gauge_rows.changed(ledger, put.name).set_up(settings)
            ledger.freed.add(put.name)
        case Gate():
            _shut(ledger, put.name, settings)
        case Health():
            gauge_rows.changed(ledger, put.name).spare(settings.spare_for, ledger.steady)
            ledger.freed.add(RETRY_CAUSE_PREFIX + put.name)
    if put.kind == REQUEST_KIND and put.value is not None:
        ledger.wake(worker_topic(asked_worker(put.name)))
    if put.kind == SCHEDULE_KIND:
        ledger.wake(SCHEDULES_TOPIC)
    if put.inserts:
        Inserting(ledger, bounded=False).insert(put.inserts)
    return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)


def _shut(ledger: Ledger, resource: str, gate: Gate) -> None:
    gauge = gauge_rows.changed(ledger, resource)
    gauge.shut(gate, ledger.steady)
    if gauge.kept is not None and gauge.shut_until and (row := job_moves.load(ledger, gauge.kept.seq)):
        # A shut resource must not hold back the slots of others.
        gauge_rows.release_reservation(ledger, gauge_rows.needs_of(row), row.seq)
    ledger.freed.add(resource)


Settings = QueueSettings | ResourceSettings | Gate | Health

_KINDS: Final[dict[str, type[Settings]]] = {
    "queue": QueueSettings,
    "resource": ResourceSettings,
    "gate": Gate,
    "health": Health,
}


def _settings(put: Put) -> Settings | None:
    if put.tells and put.tells not in events.KINDS:
        raise BadInput(f"{put.kind} {put.name!r}: {put.tells!r} is not a kind of event")
    if (kind := _KINDS.get(put.kind)) is None:
        return None
    try:
        return msgspec.json.decode(put.value or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{put.kind} {put.name!r}: not valid {put.kind} settings: {error}") from None


def records(ledger: Ledger, kind: str, name: str | None) -> list[Record]:
    return [
        Record(kind=kind, name=called, value=value, revision=revision)
        for called, revision, value in ledger.execute(sql.all_records, (kind, name))
    ]
